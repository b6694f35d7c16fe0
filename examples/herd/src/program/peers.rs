//! The same load for other caches, to compare: Redis and memcached, with their text protocols over
//! one TCP connection. Commands travel in batches, and each answer is checked.

use std::error::Error;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use erpc_test_tools::random::{Random, mix};
use erpc_test_tools::zipf::Zipf;

use super::load::{Mix, value};
use super::{Cpu, LoadArgs};

/// The protocol of a cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(super) enum Protocol {
    Redis,
    Memcached,
}

/// A connection to a cache.
struct Peer {
    protocol: Protocol,
    to: TcpStream,
    from: BufReader<TcpStream>,
    batch: Vec<u8>,
    line: String,
    /// Of each key, the version of its value.
    versions: Vec<u32>,
    len: usize,
}

/// One command of a batch.
#[derive(Clone, Copy)]
struct Command {
    number: u64,
    /// The version that it writes, if it writes.
    version: Option<u32>,
}

/// Measures all mixes, and prints a line of JSON for each.
pub(super) fn run(
    protocol: Protocol,
    address: &str,
    cpu: Cpu,
    args: &LoadArgs,
) -> Result<(), Box<dyn Error>> {
    let to = TcpStream::connect(address)?;
    to.set_nodelay(true)?;
    to.set_read_timeout(Some(Duration::from_secs(20)))?;
    let mut peer = Peer {
        protocol,
        from: BufReader::with_capacity(1 << 16, to.try_clone()?),
        to,
        batch: Vec::new(),
        line: String::new(),
        versions: vec![0; args.keys as usize],
        len: args.value.into(),
    };
    let window = u64::from(args.outstanding.get());
    for first in (0..args.keys).step_by(window as usize) {
        let numbers = first..(first + window).min(args.keys);
        peer.exchange(
            &numbers.map(|number| Command { number, version: Some(1) }).collect::<Vec<_>>(),
        )?;
    }
    let (mut random, zipf) = (Random::new(1), Zipf::new(args.keys));
    let time = Duration::from_secs(args.secs.get().into());
    for mix in Mix::ALL {
        let (start, before, mut calls) = (Instant::now(), cpu.spent()?, 0);
        while start.elapsed() < time {
            let commands: Vec<_> =
                (0..window).map(|_| peer.choose(mix, &mut random, &zipf)).collect();
            peer.exchange(&commands)?;
            calls += window;
        }
        let name = format!("{protocol:?}").to_lowercase();
        println!("{}", cpu.json(&name, mix, calls, start.elapsed(), before)?);
    }
    Ok(())
}

impl Peer {
    fn choose(&self, mix: Mix, random: &mut Random, zipf: &Zipf) -> Command {
        let is_put = random.percent(mix.puts);
        let number = match mix.is_zipf {
            true => zipf.number(random),
            false => random.below(self.versions.len() as u64),
        };
        let version = is_put.then(|| self.versions[number as usize] + 1);
        Command { number, version }
    }

    /// Sends a batch of commands, and checks the answers.
    fn exchange(&mut self, commands: &[Command]) -> Result<(), Box<dyn Error>> {
        self.batch.clear();
        for &command in commands {
            self.write(command)?;
        }
        self.to.write_all(&self.batch)?;
        for &Command { number, version } in commands {
            match version {
                Some(version) => {
                    self.stored()?;
                    self.versions[number as usize] = version;
                }
                None => {
                    let got = self.read(number)?;
                    let expected = value(number, self.versions[number as usize], self.len);
                    if got.is_some_and(|got| got != expected) {
                        return Err(format!("a wrong value of key {number}").into());
                    }
                }
            }
        }
        Ok(())
    }

    fn write(&mut self, Command { number, version }: Command) -> io::Result<()> {
        let key = format!("{:016x}", mix(number));
        let out = &mut self.batch;
        match (self.protocol, version) {
            (Protocol::Redis, None) => write!(out, "*2\r\n$3\r\nGET\r\n$16\r\n{key}\r\n"),
            (Protocol::Memcached, None) => write!(out, "get {key}\r\n"),
            (protocol, Some(version)) => {
                let len = self.len;
                match protocol {
                    Protocol::Redis => {
                        write!(out, "*3\r\n$3\r\nSET\r\n$16\r\n{key}\r\n${len}\r\n")?;
                    }
                    Protocol::Memcached => write!(out, "set {key} 0 0 {len}\r\n")?,
                }
                out.extend_from_slice(&value(number, version, len));
                out.write_all(b"\r\n")
            }
        }
    }

    /// The next line, without its end.
    fn next_line(&mut self) -> io::Result<&str> {
        self.line.clear();
        self.from.read_line(&mut self.line)?;
        Ok(self.line.trim_end())
    }

    fn stored(&mut self) -> Result<(), Box<dyn Error>> {
        let expected = match self.protocol {
            Protocol::Redis => "+OK",
            Protocol::Memcached => "STORED",
        };
        match self.next_line()? {
            line if line == expected => Ok(()),
            line => Err(format!("an answer to a write: {line}").into()),
        }
    }

    /// The value in the next answer. None if the cache has none.
    fn read(&mut self, number: u64) -> Result<Option<Vec<u8>>, Box<dyn Error>> {
        let protocol = self.protocol;
        let line = self.next_line()?;
        let len = match protocol {
            Protocol::Redis if line == "$-1" => return Ok(None),
            Protocol::Redis => line.strip_prefix('$'),
            Protocol::Memcached if line == "END" => return Ok(None),
            Protocol::Memcached => {
                line.starts_with("VALUE ").then(|| line.rsplit(' ').next()).flatten()
            }
        };
        let len: Option<usize> = len.and_then(|len| len.parse().ok());
        let len = len.ok_or_else(|| format!("an answer to a read of key {number}: {line}"))?;
        let mut value = vec![0; len];
        self.from.read_exact(&mut value)?;
        self.next_line()?;
        if protocol == Protocol::Memcached {
            // `END` follows the values.
            self.next_line()?;
        }
        Ok(Some(value))
    }
}

/// The CPU time that a process has spent, user and system. None without a process.
pub(super) fn cpu_time(process: Option<u32>) -> Result<Option<Duration>, Box<dyn Error>> {
    let Some(process) = process else { return Ok(None) };
    let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
    // The name in parentheses may have spaces. Fields 14 and 15 are ticks of 10 ms.
    let fields = stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace());
    let ticks =
        fields.map(|fields| fields.skip(11).take(2).filter_map(|of| of.parse::<u64>().ok()));
    let ticks: u64 = ticks.ok_or("/proc has no such process")?.sum();
    Ok(Some(Duration::from_millis(10 * ticks)))
}
