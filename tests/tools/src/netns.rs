//! Network namespaces. They take root and iproute2; nothing outside of them is touched.

use std::env;
use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// A network namespace. It goes when this does, and what is in it too.
#[derive(Debug)]
pub struct Namespace {
    name: String,
}

impl Namespace {
    /// An empty one, whose name nobody else has and ends with `role`.
    ///
    /// # Errors
    /// What the machine says against it.
    pub fn new(role: &str) -> Result<Self, String> {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let name = format!("erpc-{}-{serial}-{role}", std::process::id());
        run("ip", &format!("netns add {name}"))
            .map_err(|error| format!("no network namespaces here: {error}"))?;
        Ok(Self { name })
    }

    /// What `ip` and `tc` know it by.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// `ip` with these arguments, in this namespace.
    ///
    /// # Errors
    /// What it says.
    pub fn ip(&self, arguments: &str) -> Result<String, String> {
        run("ip", &format!("-n {} {arguments}", self.name))
    }

    /// `tc` with these arguments, in this namespace.
    ///
    /// # Errors
    /// What it says.
    pub fn tc(&self, arguments: &str) -> Result<String, String> {
        run("tc", &format!("-n {} {arguments}", self.name))
    }

    /// Runs `body` on a thread of its own, whose sockets are of this namespace.
    ///
    /// # Panics
    /// As `body` does; and if the namespace cannot be entered, which takes no more than to make it.
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
    /// If it cannot be entered, which takes no more than to make it.
    pub fn enter(&self) {
        let file = File::open(format!("/run/netns/{}", self.name)).expect("the namespace is there");
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
            .expect("who makes a namespace may enter it");
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // An error means that somebody else has taken it away.
        run("ip", &format!("netns delete {}", self.name)).unwrap_or_default();
    }
}

/// Says that a test is not run, and why.
///
/// # Panics
/// If it must be run: `ERPC_REQUIRE_NAMESPACES` is set.
pub fn skip(test: &str, reason: &str) {
    let is_required = env::var_os("ERPC_REQUIRE_NAMESPACES").is_some();
    assert!(!is_required, "{test} must be run: {reason}");
    // Past the harness, which keeps to itself what tests print that do not fail.
    let said = format!("SKIPPED {test}: {reason}\n");
    std::io::stderr().write_all(said.as_bytes()).expect("somebody listens");
}

/// What `program` prints, told these arguments, which contain no spaces themselves.
///
/// # Errors
/// What it says if it fails.
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
