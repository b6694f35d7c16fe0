//! Other processes. They read and print lines, and end when the test ends.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::limit::secs;

/// A process of a test. Dropping a `Process` kills the process. The program should also end by
/// itself when its standard input ends, so that it ends if the test is killed.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Process {
    /// Longest wait of [`Process::line`] and of [`Process::finish`].
    const OUTPUT_TIMEOUT: Duration = secs(20);

    /// Starts `program`, for example a binary of the test's package: `env!("CARGO_BIN_EXE_..")`.
    /// Messages call the process `name`.
    ///
    /// # Panics
    /// If the process does not start.
    #[must_use]
    pub fn start(name: &str, program: &str, arguments: &[&str]) -> Self {
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{name}: {program} does not start: {error}"));
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().expect("standard output is piped"));
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

    /// Waits for the next line of the process.
    ///
    /// # Panics
    /// If the process prints no line for 20 s, or has ended.
    #[must_use]
    pub fn line(&self) -> String {
        match self.lines.recv_timeout(Self::OUTPUT_TIMEOUT) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => panic!("{}: printed no line", self.name),
            Err(RecvTimeoutError::Disconnected) => panic!("{}: ended early", self.name),
        }
    }

    /// Waits for the next line, which must start with `word`, and returns the rest of the line.
    ///
    /// # Panics
    /// As [`Process::line`], or if the line starts with another word.
    #[must_use]
    pub fn expect(&self, word: &str) -> String {
        let line = self.line();
        match line.strip_prefix(word) {
            Some(rest) => rest.trim().to_owned(),
            None => panic!("{}: expected {word}, printed: {line}", self.name),
        }
    }

    /// As [`Process::expect`], and parses the rest of the line as an address.
    ///
    /// # Panics
    /// As [`Process::expect`], or if the rest is not an address.
    #[must_use]
    pub fn expect_address(&self, word: &str) -> SocketAddr {
        let text = self.expect(word);
        text.parse().unwrap_or_else(|_| panic!("{}: {text} is not an address", self.name))
    }

    /// Waits until the process closes its output, and returns the lines not read so far.
    pub fn rest(&mut self) -> Vec<String> {
        self.lines.iter().collect()
    }

    /// Sends a line to the process.
    ///
    /// # Panics
    /// If the process has closed its input.
    pub fn say(&mut self, line: &str) {
        let input = self.input.as_mut().expect("the input is open");
        writeln!(input, "{line}")
            .unwrap_or_else(|error| panic!("{}: reads no input: {error}", self.name));
    }

    /// Kills the process (`kill -9`) and waits for its end.
    pub fn kill(&mut self) {
        // An error means that the process has ended by itself.
        self.child.kill().unwrap_or(());
        self.child.wait().expect("the process is a child of this one");
    }

    /// Pauses the process immediately, as a debugger or a paused virtual machine would.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// Resumes a paused process.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Asks the process to end, as the manager of a service does: SIGTERM.
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Sends SIGINT, as Ctrl-C in a terminal does.
    pub fn interrupt(&self) {
        self.signal(Signal::INT);
    }

    /// Asks the only child of the process to end: SIGTERM.
    ///
    /// # Panics
    /// If the process has no child, or it cannot be signalled.
    pub fn terminate_child(&self) {
        let own = self.child.id();
        let path = format!("/proc/{own}/task/{own}/children");
        let children = std::fs::read_to_string(&path)
            .unwrap_or_else(|error| panic!("{}: {path}: {error}", self.name));
        let child = children.split_whitespace().next().and_then(|child| child.parse().ok());
        let child = child.and_then(Pid::from_raw);
        let child = child.unwrap_or_else(|| panic!("{}: has no child", self.name));
        kill_process(child, Signal::TERM)
            .unwrap_or_else(|error| panic!("{}: its child: {error}", self.name));
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal)
            .unwrap_or_else(|error| panic!("{}: cannot be signalled: {error}", self.name));
    }

    /// Waits until the process has ended, with its input open. Returns the lines not read so far,
    /// and the exit code; `None` if a signal has killed it.
    ///
    /// # Panics
    /// If the process prints nothing for 20 s, and does not end.
    pub fn ended(&mut self) -> (Vec<String>, Option<i32>) {
        let mut lines = Vec::new();
        loop {
            match self.lines.recv_timeout(Self::OUTPUT_TIMEOUT) {
                Ok(line) => lines.push(line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("{}: does not end", self.name),
            }
        }
        let status = self.child.wait().expect("the process is a child of this one");
        (lines, status.code())
    }

    /// Closes the input of the process and waits for its end.
    ///
    /// # Panics
    /// If the process does not end within 20 s, or ends with an error.
    pub fn finish(mut self) {
        drop(self.input.take());
        let deadline = Instant::now() + Self::OUTPUT_TIMEOUT;
        // Waits for the end of the output, because the standard library has no `wait` with a
        // timeout.
        while let Ok(line) =
            self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now()))
        {
            eprintln!("{}: {line}", self.name);
        }
        assert!(Instant::now() < deadline, "{}: does not end", self.name);
        let status = self.child.wait().expect("the process is a child of this one");
        assert!(status.success(), "{}: {status}", self.name);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Ends this process when its standard input ends. For the binaries that tests start.
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
