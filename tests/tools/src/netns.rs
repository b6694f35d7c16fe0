//! Network namespaces. They need root and iproute2. Nothing outside of them changes.

use std::env;
use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Command;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// A network namespace. Dropping a `Namespace` deletes the namespace, and the interfaces in it. The
/// first namespace of a process also deletes those of test processes that were killed.
#[derive(Debug)]
pub struct Namespace {
    name: String,
}

impl Namespace {
    /// Creates an empty namespace. Its name is unique and ends with `role`.
    ///
    /// # Errors
    /// The reason why the machine cannot create it.
    pub fn new(role: &str) -> Result<Self, String> {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        static LEFT_OVER: Once = Once::new();
        LEFT_OVER.call_once(delete_left_over);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let name = format!("erpc-{}-{serial}-{role}", std::process::id());
        run("ip", &format!("netns add {name}"))
            .map_err(|error| format!("no network namespaces here: {error}"))?;
        Ok(Self { name })
    }

    /// The name of the namespace for `ip` and `tc`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs `ip` with these arguments in this namespace. Returns its output.
    ///
    /// # Errors
    /// The error output of `ip`.
    pub fn ip(&self, arguments: &str) -> Result<String, String> {
        run("ip", &format!("-n {} {arguments}", self.name))
    }

    /// Runs `tc` with these arguments in this namespace. Returns its output.
    ///
    /// # Errors
    /// The error output of `tc`.
    pub fn tc(&self, arguments: &str) -> Result<String, String> {
        run("tc", &format!("-n {} {arguments}", self.name))
    }

    /// Runs `body` on a new thread, whose sockets belong to this namespace.
    ///
    /// # Panics
    /// If `body` panics, or the thread cannot enter the namespace, for which it needs the same
    /// rights as [`Namespace::new`].
    pub fn within<R: Send>(&self, body: impl FnOnce() -> R + Send) -> R {
        thread::scope(|scope| {
            let body = scope.spawn(|| {
                self.enter();
                body()
            });
            body.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Moves the calling thread, and no other, into this namespace.
    ///
    /// # Panics
    /// If the thread cannot enter the namespace, for which it needs the same rights as
    /// [`Namespace::new`].
    pub fn enter(&self) {
        let file = File::open(format!("/run/netns/{}", self.name)).expect("the namespace exists");
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
            .expect("the creator of a namespace may enter it");
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // An error means that another process has deleted the namespace.
        run("ip", &format!("netns delete {}", self.name)).unwrap_or_default();
    }
}

/// Deletes the namespaces of test processes that were killed.
fn delete_left_over() {
    let names = run("ip", "netns list").unwrap_or_default();
    // A line is a name, or a name and a number in parentheses.
    for name in names.lines().filter_map(|line| line.split(' ').next()) {
        let mut parts = name.split('-');
        let (kind, process) = (parts.next(), parts.next().and_then(|part| part.parse().ok()));
        let is_gone = |process: u32| !Path::new(&format!("/proc/{process}")).exists();
        if kind == Some("erpc") && process.is_some_and(is_gone) {
            // An error means that another process has deleted the namespace.
            run("ip", &format!("netns delete {name}")).unwrap_or_default();
        }
    }
}

/// Prints that `test` is skipped because of `reason`.
///
/// # Panics
/// If the variable `CI_FULL` is 1 and the machine cannot create namespaces. If it can create
/// namespaces, other load on the machine is the reason, and the test may be skipped.
pub fn skip(test: &str, reason: &str) {
    let lacks_namespaces = is_full() && Namespace::new("probe").is_err();
    assert!(!lacks_namespaces, "{test} must not be skipped: {reason}");
    say_skipped(test, reason);
}

/// Prints that `test` is skipped because this machine cannot create what it needs.
///
/// # Panics
/// If the variable `CI_FULL` is 1.
pub fn skip_unsupported(test: &str, reason: &str) {
    assert!(!is_full(), "{test} must not be skipped: {reason}");
    say_skipped(test, reason);
}

fn is_full() -> bool {
    env::var_os("CI_FULL").is_some_and(|value| value == "1")
}

fn say_skipped(test: &str, reason: &str) {
    // Writes to `stderr` directly, because the harness hides the output of `eprintln` in passing
    // tests.
    let said = format!("SKIPPED {test}: {reason}\n");
    std::io::stderr().write_all(said.as_bytes()).expect("standard error is open");
}

/// Runs `program` and returns its output. `arguments` are separated by spaces, and contain none
/// themselves.
///
/// # Errors
/// The error output of `program`, or that it does not start.
pub fn run(program: &str, arguments: &str) -> Result<String, String> {
    let output = Command::new(program)
        .args(arguments.split(' '))
        .output()
        .map_err(|error| format!("`{program}` of iproute2 does not start: {error}"))?;
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    match output.status.success() {
        true => Ok(said(&output.stdout)),
        false => Err(format!("`{program} {arguments}`: {}", said(&output.stderr))),
    }
}
