//! Runs the program, for a bounded time.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Longer than any run, also on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

/// A running program. It is killed when this is dropped.
pub(crate) struct Program {
    child: Child,
    lines: Receiver<String>,
    errors: Receiver<String>,
}

/// How a program ended, and what it wrote.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) output: Vec<String>,
    pub(crate) errors: Vec<String>,
}

impl Program {
    pub(crate) fn start(args: &[&str], input: &str) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_erpc-txn"))
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let mut stdin: ChildStdin = child.stdin.take().expect("it is piped");
        // A program that ends early does not read all of it.
        stdin.write_all(input.as_bytes()).unwrap_or_default();
        drop(stdin);
        let lines = lines_of(child.stdout.take().expect("it is piped"));
        let errors = lines_of(child.stderr.take().expect("it is piped"));
        Self { child, lines, errors }
    }

    /// Waits for a line of standard output that begins so, and returns it.
    pub(crate) fn line(&self, start: &str) -> String {
        let found = await_line(&self.lines, start);
        found.unwrap_or_else(|| {
            let errors: Vec<_> = self.errors.try_iter().collect();
            panic!("no line begins with {start:?}; errors: {errors:?}")
        })
    }

    /// As `line`, of standard error.
    pub(crate) fn error(&self, start: &str) -> String {
        await_line(&self.errors, start).unwrap_or_else(|| panic!("no error begins with {start:?}"))
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let id = Pid::from_child(&self.child);
        kill_process(id, signal).expect("the program runs");
    }

    /// The processes that the program has started.
    pub(crate) fn children(&self) -> Vec<Pid> {
        let id = self.child.id();
        let list = fs::read_to_string(format!("/proc/{id}/task/{id}/children"));
        let list = list.expect("the program runs");
        let pid = |text: &str| text.parse().ok().and_then(Pid::from_raw).expect("it is an id");
        list.split_whitespace().map(pid).collect()
    }

    /// Waits for the end.
    pub(crate) fn end(mut self) -> Ended {
        let end = Instant::now() + LIMIT;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("it is our child") {
                break status;
            }
            assert!(Instant::now() < end, "the program does not end");
            thread::sleep(Duration::from_millis(5));
        };
        let (output, errors) = (self.lines.iter().collect(), self.errors.iter().collect());
        Ended { code: status.code(), output, errors }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Fails if it has ended.
        self.child.kill().unwrap_or_default();
        drop(self.child.wait());
    }
}

fn lines_of(from: impl Read + Send + 'static) -> Receiver<String> {
    let (give, take) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            give.send(line).unwrap_or_default();
        }
    });
    take
}

fn await_line(lines: &Receiver<String>, start: &str) -> Option<String> {
    let end = Instant::now() + LIMIT;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let line = lines.recv_timeout(left).ok()?;
        if line.starts_with(start) {
            return Some(line);
        }
    }
}

/// Runs the program to its end.
pub(crate) fn run(args: &[&str], input: &str) -> Ended {
    Program::start(args, input).end()
}

/// Runs the program, which must fail with one line that contains `why`.
pub(crate) fn fails(args: &[&str], why: &str) {
    let ended = run(args, "");
    assert_eq!((ended.code, ended.errors.len()), (Some(1), 1), "{args:?}: {ended:?}");
    assert!(ended.errors[0].contains(why), "{args:?}: {ended:?}");
}

/// The addresses in the line of `local` that says how to try its cluster.
pub(crate) fn addresses(local: &Program) -> String {
    const TRY: &str = "try: erpc-txn shell --connect ";
    let line = local.line(TRY);
    let (addresses, names) = line[TRY.len()..].split_once(' ').expect("names follow");
    assert_eq!(names, "--table 1=data");
    addresses.to_owned()
}

/// A file that is removed when this is dropped.
pub(crate) struct TempFile(PathBuf);

impl TempFile {
    pub(crate) fn new(text: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let (process, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(format!("erpc-txn-{process}-{number}.toml"));
        fs::write(&path, text).expect("the folder can be written");
        Self(path)
    }

    pub(crate) fn path(&self) -> &str {
        self.0.to_str().expect("the folder's name is UTF-8")
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        fs::remove_file(&self.0).unwrap_or_default();
    }
}

/// Ports that nobody uses at this moment.
pub(crate) fn ports<const N: usize>() -> [u16; N] {
    let sockets = [(); N].map(|()| UdpSocket::bind("127.0.0.1:0").expect("there are ports"));
    sockets.map(|socket| socket.local_addr().expect("it is bound").port())
}
