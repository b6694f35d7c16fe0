//! Other processes: told what to do by lines, heard by lines, gone when the test is.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::limit::secs;

/// A process of a test. It is killed when this is dropped, and should end by itself when its standard
/// input does: then it also goes if the test itself is killed.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Process {
    /// Longest wait for a line, and for the end of the output.
    const OUTPUT_TIMEOUT: Duration = secs(20);

    /// Starts `program`, one of this package's binaries: `env!("CARGO_BIN_EXE_..")`.
    ///
    /// # Panics
    /// If it cannot be started.
    #[must_use]
    pub fn start(name: &str, program: &str, arguments: &[&str]) -> Self {
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{name}: {program} does not start: {error}"));
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        let (send, lines) = channel();
        thread::spawn(move || {
            for line in output.lines() {
                let Ok(line) = line else { return };
                if send.send(line).is_err() {
                    return;
                }
            }
        });
        Self { name: name.to_owned(), child, input, lines }
    }

    /// Waits for the next line.
    ///
    /// # Panics
    /// If none comes.
    #[must_use]
    pub fn line(&self) -> String {
        match self.lines.recv_timeout(Self::OUTPUT_TIMEOUT) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => panic!("{}: says nothing", self.name),
            Err(RecvTimeoutError::Disconnected) => panic!("{}: has ended early", self.name),
        }
    }

    /// Waits for the next line, which begins with `word`, and returns the rest of it.
    ///
    /// # Panics
    /// If none comes, or another.
    #[must_use]
    pub fn expect(&self, word: &str) -> String {
        let line = self.line();
        match line.strip_prefix(word) {
            Some(rest) => rest.trim().to_owned(),
            None => panic!("{}: instead of {word} it says: {line}", self.name),
        }
    }

    /// The same, for an address.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn expect_address(&self, word: &str) -> SocketAddr {
        let text = self.expect(word);
        text.parse().unwrap_or_else(|_| panic!("{}: {text} is no address", self.name))
    }

    /// What it has said and nobody has read yet. All of it only after its end.
    pub fn rest(&mut self) -> Vec<String> {
        self.lines.iter().collect()
    }

    /// Sends a line.
    ///
    /// # Panics
    /// If it does not read any more.
    pub fn say(&mut self, line: &str) {
        let input = self.input.as_mut().expect("the input is open");
        writeln!(input, "{line}")
            .unwrap_or_else(|error| panic!("{}: does not listen: {error}", self.name));
    }

    /// `kill -9`, and waits until it is gone.
    pub fn kill(&mut self) {
        // An error means that it has ended by itself.
        self.child.kill().unwrap_or(());
        self.child.wait().expect("it is our child");
    }

    /// Stops it in its tracks, as a debugger or a paused virtual machine would.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets it go on.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal)
            .unwrap_or_else(|error| panic!("{}: cannot be signalled: {error}", self.name));
    }

    /// Closes its input and waits until it has ended well.
    ///
    /// # Panics
    /// If it does not end, or badly.
    pub fn finish(mut self) {
        drop(self.input.take());
        let deadline = Instant::now() + Self::OUTPUT_TIMEOUT;
        // There is no wait with a time-out in the standard library; the output ends with the process.
        while let Ok(line) =
            self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now()))
        {
            eprintln!("{}: {line}", self.name);
        }
        assert!(Instant::now() < deadline, "{}: does not end", self.name);
        let status = self.child.wait().expect("it is our child");
        assert!(status.success(), "{}: {status}", self.name);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Ends this process when its standard input does. For the binaries that tests start.
pub fn end_with_input() {
    thread::spawn(|| {
        for line in std::io::stdin().lines() {
            if line.is_err() {
                break;
            }
        }
        std::process::exit(0);
    });
}
