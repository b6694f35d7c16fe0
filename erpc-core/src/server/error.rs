//! Why a server could not start, or ended.

use std::fmt;
use std::io;

use crate::debug_text::debug_is_display;
use crate::protocol::ConfigError;
use crate::service::MethodCollision;
#[cfg(feature = "dpdk")]
use crate::transport::dpdk::DpdkError;
use crate::transport::mem::PortTaken;
use crate::transport::udp::UdpError;
use crate::transport::verbs::VerbsError;

/// Why a server could not start, or ended.
#[non_exhaustive]
pub enum ServeError {
    /// Two methods have the same name or the same id.
    Collision(MethodCollision),
    /// No service was added.
    NoService,
    /// The handler of this method runs in tokio, but the server has no runtime.
    NoRuntime {
        /// Full name of the method.
        method: &'static str,
    },
    /// A setting is out of bounds.
    Config(ConfigError),
    /// The listening address could not be resolved.
    Resolve {
        /// The address, or the name.
        address: String,
        /// The flaw of the address, or the system's error.
        error: io::Error,
    },
    /// The listening address could not be bound.
    Bind(UdpError),
    /// The port that DPDK drives could not be opened.
    #[cfg(feature = "dpdk")]
    Dpdk(DpdkError),
    /// The verbs device could not be opened.
    Verbs(VerbsError),
    /// Another endpoint of the memory transport has this address.
    Mem(PortTaken),
    /// An event loop could not be pinned to a core.
    Pin {
        /// Number of the core.
        core: usize,
        /// The system's error.
        error: io::Error,
    },
    /// The system refused to start a thread.
    Thread(io::Error),
    /// The system refused the handlers of SIGTERM and SIGINT.
    Signals(io::Error),
    /// An event loop panicked. The panic hook has reported where.
    Panicked,
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cannot serve: ")?;
        match self {
            Self::Collision(error) => error.fmt(f),
            Self::NoService => f.write_str("there is no method; add a service with `add_service`"),
            Self::NoRuntime { method } => {
                write!(
                    f,
                    "the handler of {method} runs in tokio, and the server has no runtime: add \
                     `.tokio(tokio::runtime::Handle::current())` to the builder of the server, with the feature \
                     `tokio` of erpc"
                )
            }
            Self::Config(error) => error.fmt(f),
            Self::Resolve { address, error } if address.is_empty() => {
                write!(f, "cannot look up the listening address: {error}")
            }
            Self::Resolve { address, error } => {
                write!(f, "cannot look up the listening address `{address}`: {error}")
            }
            Self::Bind(error) => error.fmt(f),
            #[cfg(feature = "dpdk")]
            Self::Dpdk(error) => error.fmt(f),
            Self::Verbs(error) => error.fmt(f),
            Self::Mem(error) => error.fmt(f),
            Self::Pin { core, error } => {
                write!(
                    f,
                    "no thread can be pinned to core {core}: {error}; `core` and `threads` name cores beyond those allowed"
                )
            }
            Self::Thread(error) => {
                write!(f, "the system refuses a thread: {error}; raise its limit or use fewer")
            }
            Self::Signals(error) => {
                write!(f, "the system refuses handlers of SIGTERM and SIGINT: {error}")
            }
            Self::Panicked => f.write_str("an event loop panicked"),
        }
    }
}

debug_is_display!(ServeError);

impl std::error::Error for ServeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Collision(error) => Some(error),
            Self::Config(error) => Some(error),
            Self::Thread(error)
            | Self::Signals(error)
            | Self::Resolve { error, .. }
            | Self::Pin { error, .. } => Some(error),
            Self::Bind(error) => Some(error),
            #[cfg(feature = "dpdk")]
            Self::Dpdk(error) => Some(error),
            Self::Verbs(error) => Some(error),
            Self::Mem(error) => Some(error),
            Self::NoService | Self::NoRuntime { .. } | Self::Panicked => None,
        }
    }
}
