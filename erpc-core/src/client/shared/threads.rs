//! The threads whose endpoints make the calls of shared channels.

use std::fmt;
use std::io;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use crate::endpoint::pin::pin_thread;
use crate::endpoint::{Endpoint, Handle, OpenError};
use crate::event_loop::idle::IdlePolicy;
use crate::protocol::EndpointConfig;
use crate::service::Keeper;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::thread::Builder;
use crate::transport::udp::UdpConfig;

/// Threads with an endpoint over UDP each, which make the calls of
/// [`SharedChannel`](super::SharedChannel)s.
///
/// A program needs none of its own: the first shared channel starts one thread with default
/// settings, which all shared channels of the process use. Start threads to choose their number,
/// their cores or their settings:
///
/// ```no_run
/// use erpc_core::client::ClientThreads;
/// use erpc_core::event_loop::IdlePolicy;
///
/// // All shared channels of the process use these two threads.
/// ClientThreads::builder().threads(2).core(4).idle(IdlePolicy::Spin).start_default()?;
/// # Ok::<(), erpc_core::client::ClientThreadsError>(())
/// ```
///
/// Cheap to clone. The threads end after the last clone, and the last channel, call and stream that
/// use them, are dropped. The default threads never end.
#[derive(Clone)]
#[must_use = "the threads end with the last clone and the channels that use them"]
pub struct ClientThreads {
    threads: Arc<Threads>,
}

struct Threads {
    endpoints: Vec<Handle>,
    stop: Arc<AtomicBool>,
}

/// The threads of channels that name none.
static DEFAULT: Mutex<Option<ClientThreads>> = Mutex::new(None);

impl ClientThreads {
    /// Settings of new threads.
    pub fn builder() -> ClientThreadsBuilder {
        ClientThreadsBuilder {
            threads: 1,
            core: None,
            idle: IdlePolicy::YieldThenSleep { spin: IdlePolicy::DEFAULT_SPIN },
            udp: UdpConfig::new(),
            config: EndpointConfig::new(),
        }
    }

    /// The threads of channels that name none. Starts one thread with default settings, if
    /// [`ClientThreadsBuilder::start_default`] was not called.
    ///
    /// # Errors
    /// [`ClientThreadsError`] if the thread cannot be started. The next call tries again.
    pub fn default_threads() -> Result<Self, ClientThreadsError> {
        let mut default = DEFAULT.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(threads) = &*default {
            return Ok(threads.clone());
        }
        let threads = Self::builder().start()?;
        *default = Some(threads.clone());
        Ok(threads)
    }

    /// Keeps the threads alive.
    pub(super) fn keeper(&self) -> Keeper {
        Arc::clone(&self.threads) as _
    }

    /// Handles of the endpoints, one per thread.
    pub fn handles(&self) -> impl Iterator<Item = &Handle> {
        self.threads.endpoints.iter()
    }
}

impl Drop for Threads {
    /// Does not wait for the end of the threads, because this function can run on one of them.
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.endpoints.iter().for_each(Handle::wake);
    }
}

impl fmt::Debug for ClientThreads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientThreads").field("threads", &self.threads.endpoints.len()).finish()
    }
}

/// Settings of [`ClientThreads`].
#[derive(Clone, Debug)]
#[must_use = "a builder starts nothing until `start` or `start_default`"]
pub struct ClientThreadsBuilder {
    threads: usize,
    core: Option<usize>,
    idle: IdlePolicy,
    udp: UdpConfig,
    config: EndpointConfig,
}

impl ClientThreadsBuilder {
    /// Number of threads; at least 1, default 1. All calls of one calling thread are made by the
    /// same one of these threads. A channel opens its sessions on each thread that makes calls of
    /// it. One thread is enough as long as its core does not limit the calls per second.
    pub const fn threads(mut self, threads: usize) -> Self {
        self.threads = if threads == 0 { 1 } else { threads };
        self
    }

    /// Pins the threads to consecutive cores, beginning with `first`. Default: not pinned.
    pub const fn core(mut self, first: usize) -> Self {
        self.core = Some(first);
        self
    }

    /// What a thread does while it has no work. Default: [`IdlePolicy::YieldThenSleep`] with
    /// [`IdlePolicy::DEFAULT_SPIN`], because the calling threads need the cores, too.
    pub const fn idle(mut self, policy: IdlePolicy) -> Self {
        self.idle = policy;
        self
    }

    /// Settings of the sockets. Default: [`UdpConfig::new`].
    pub fn udp(mut self, udp: UdpConfig) -> Self {
        self.udp = udp;
        self
    }

    /// Settings of the endpoints. Default: [`EndpointConfig::new`].
    pub fn config(mut self, config: EndpointConfig) -> Self {
        self.config = config;
        self
    }

    /// Starts the threads.
    ///
    /// # Errors
    /// [`ClientThreadsError`] if a thread or its socket is refused, or a setting is out of range.
    pub fn start(self) -> Result<ClientThreads, ClientThreadsError> {
        let mut threads = Threads { endpoints: Vec::new(), stop: Arc::new(AtomicBool::new(false)) };
        for index in 0..self.threads {
            let setup = self.clone();
            let stop = Arc::clone(&threads.stop);
            let (ready, started) = sync_channel(1);
            let builder = Builder::new().name(format!("erpc-client-{index}"));
            // The thread is detached: it ends when `stop` is set.
            drop(
                builder
                    .spawn(move || setup.run(index, &stop, &ready))
                    .map_err(ClientThreadsError::Thread)?,
            );
            let endpoint = started.recv().unwrap_or(Err(ClientThreadsError::Panicked))?;
            threads.endpoints.push(endpoint);
        }
        Ok(ClientThreads { threads: Arc::new(threads) })
    }

    /// Starts the threads and makes them those of all shared channels that name none.
    ///
    /// # Errors
    /// [`ClientThreadsError::DefaultRuns`] if the process has default threads already, because this
    /// function was called before or a channel was built; otherwise as
    /// [`ClientThreadsBuilder::start`].
    pub fn start_default(self) -> Result<(), ClientThreadsError> {
        let mut default = DEFAULT.lock().unwrap_or_else(PoisonError::into_inner);
        if default.is_some() {
            return Err(ClientThreadsError::DefaultRuns);
        }
        *default = Some(self.start()?);
        Ok(())
    }

    /// The main function of a thread.
    fn run(
        self,
        index: usize,
        stop: &AtomicBool,
        ready: &SyncSender<Result<Handle, ClientThreadsError>>,
    ) {
        let endpoint = match self.open(index) {
            Ok(endpoint) => endpoint,
            // The receiver waits for this message.
            Err(error) => return ready.send(Err(error)).unwrap_or(()),
        };
        if ready.send(Ok(endpoint.handle())).is_ok() {
            endpoint.run_server(|| stop.load(Ordering::Acquire));
        }
        endpoint.shutdown();
    }

    fn open(self, index: usize) -> Result<Endpoint, ClientThreadsError> {
        if let Some(first) = self.core {
            let core = first + index;
            pin_thread(core).map_err(|error| ClientThreadsError::Pin { core, error })?;
        }
        let endpoint =
            Endpoint::udp_with(&self.udp, self.config).map_err(ClientThreadsError::Open)?;
        endpoint.set_idle_policy(self.idle);
        Ok(endpoint)
    }
}

/// Why threads for shared channels could not be started.
#[derive(Debug)]
#[non_exhaustive]
pub enum ClientThreadsError {
    /// An endpoint could not be opened.
    Open(OpenError),
    /// A thread could not be pinned to a core.
    Pin {
        /// Number of the core.
        core: usize,
        /// The system's error.
        error: io::Error,
    },
    /// The system refused to start a thread.
    Thread(io::Error),
    /// The process has default threads already.
    DefaultRuns,
    /// The thread panicked before its endpoint was open. The panic hook has reported where.
    Panicked,
}

impl fmt::Display for ClientThreadsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(error) => error.fmt(f),
            Self::Pin { core, error } => write!(
                f,
                "no thread can be pinned to core {core}: {error}; `core` and `threads` name cores beyond those allowed"
            ),
            Self::Thread(error) => {
                write!(f, "the system refuses a thread: {error}; raise its limit or use fewer")
            }
            Self::DefaultRuns => f.write_str(
                "the default client threads run already; call `start_default` before the first shared channel is built",
            ),
            Self::Panicked => f.write_str("a client thread panicked before its endpoint was open"),
        }
    }
}

impl std::error::Error for ClientThreadsError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Open(error) => Some(error),
            Self::Pin { error, .. } | Self::Thread(error) => Some(error),
            Self::DefaultRuns | Self::Panicked => None,
        }
    }
}
