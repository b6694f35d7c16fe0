//! What a UDP transport can be told, and why it may refuse.

use std::fmt;
use std::net::{Ipv6Addr, SocketAddr};

use rustix::io::Errno;

use crate::transport::MIN_DATAGRAM;

/// Largest datagram there is, in bytes: what IPv4's 16-bit length leaves for the payload.
pub const MAX_DATAGRAM: usize = 65_507;

/// Settings of a [`UdpTransport`](super::UdpTransport).
///
/// ```
/// use erpc_core::transport::udp::{UdpConfig, UdpTransport};
///
/// let config = UdpConfig::new().address("127.0.0.1:0".parse()?).recv_buffer(1 << 20);
/// let transport = UdpTransport::bind(&config)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct UdpConfig {
    pub(super) address: SocketAddr,
    pub(super) recv_buffer: usize,
    pub(super) send_buffer: usize,
    pub(super) max_datagram: Option<usize>,
    pub(super) offload: bool,
}

impl Default for UdpConfig {
    fn default() -> Self {
        Self {
            address: SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
            recv_buffer: 4 << 20,
            send_buffer: 4 << 20,
            max_datagram: None,
            offload: true,
        }
    }
}

impl UdpConfig {
    /// The defaults: every interface, a port that the kernel picks, 4 MiB of buffers.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The address to bind. Port 0 lets the kernel pick one.
    ///
    /// Default `[::]:0`: every interface, IPv6 and IPv4 alike, or IPv4 alone on a host without IPv6.
    /// Any other IPv6 address speaks IPv6 only.
    #[must_use]
    pub fn address(mut self, address: SocketAddr) -> Self {
        self.address = address;
        self
    }

    /// Bytes of payload and bookkeeping that the kernel should queue for us while we are busy; default
    /// 4 MiB.
    ///
    /// The kernel silently cuts this to `net.core.rmem_max` (212,992 on an untuned system) and doubles
    /// what is left; [`UdpTransport::recv_buffer`](super::UdpTransport::recv_buffer) tells the result.
    /// It bounds what peers may have in flight towards this endpoint, all together.
    #[must_use]
    pub fn recv_buffer(mut self, bytes: usize) -> Self {
        self.recv_buffer = bytes;
        self
    }

    /// Bytes that may wait for the network card, counted like `recv_buffer` and cut to
    /// `net.core.wmem_max`; default 4 MiB. Too small, and bursts to a slow link are dropped here.
    #[must_use]
    pub fn send_buffer(mut self, bytes: usize) -> Self {
        self.send_buffer = bytes;
        self
    }

    /// Largest datagram to send or accept, in bytes: [`MIN_DATAGRAM`], 1,052, to 65,507.
    ///
    /// Default: what fits the interface that is bound to, or 65,507 when bound to all of them. What a
    /// session uses is the smaller of both ends and of the path between them.
    #[must_use]
    pub fn max_datagram(mut self, bytes: usize) -> Self {
        self.max_datagram = Some(bytes);
        self
    }

    /// Whether runs of packets of one length to one peer may pass through the kernel as one piece
    /// (`UDP_SEGMENT`, `UDP_GRO`); default yes, where the kernel can. On the wire they are the same
    /// packets. The receiving side uses it only while runs come, so that single packets cost nothing
    /// more; without it, a packet of a run costs as much as one alone.
    #[must_use]
    pub fn offload(mut self, on: bool) -> Self {
        self.offload = on;
        self
    }

    pub(super) fn check(&self) -> Result<(), UdpError> {
        match self.max_datagram {
            Some(bytes) if !(MIN_DATAGRAM..=MAX_DATAGRAM).contains(&bytes) => {
                Err(UdpError::DatagramSize { bytes })
            }
            _ => Ok(()),
        }
    }
}

/// Why a UDP transport could not be opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum UdpError {
    /// Somebody has that port.
    AddressInUse {
        /// The address that was asked for.
        address: SocketAddr,
    },
    /// No interface of this host has that address.
    AddressNotAvailable {
        /// The address that was asked for.
        address: SocketAddr,
    },
    /// The port is reserved, or a policy forbids it.
    PermissionDenied {
        /// The address that was asked for.
        address: SocketAddr,
    },
    /// [`UdpConfig::max_datagram`] is out of bounds.
    DatagramSize {
        /// What was asked for.
        bytes: usize,
    },
    /// A group must have 1 to 256 members.
    GroupSize {
        /// What was asked for.
        members: usize,
    },
    /// Another refusal of the operating system.
    Os {
        /// What was being done.
        doing: &'static str,
        /// The address that was asked for.
        address: SocketAddr,
        /// What the operating system said.
        errno: Errno,
    },
}

impl UdpError {
    /// What a failure of `bind` says.
    pub(super) fn from_bind(errno: Errno, address: SocketAddr) -> Self {
        match errno {
            Errno::ADDRINUSE => Self::AddressInUse { address },
            Errno::ADDRNOTAVAIL => Self::AddressNotAvailable { address },
            Errno::ACCESS | Errno::PERM => Self::PermissionDenied { address },
            errno => Self::Os { doing: "bind a socket", address, errno },
        }
    }
}

impl fmt::Display for UdpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AddressInUse { address } => {
                write!(
                    f,
                    "{address} is in use; stop the process that has it (`ss -ulpn` names it) or pick another port"
                )
            }
            Self::AddressNotAvailable { address } => {
                write!(
                    f,
                    "no interface has the address {}; bind one that `ip address` lists, or [::]",
                    address.ip()
                )
            }
            Self::PermissionDenied { address } => {
                write!(
                    f,
                    "not allowed to bind {address}; ports below 1024 need CAP_NET_BIND_SERVICE, pick a higher one"
                )
            }
            Self::DatagramSize { bytes } => {
                write!(
                    f,
                    "datagrams of {bytes} bytes; max_datagram takes {MIN_DATAGRAM} to {MAX_DATAGRAM}"
                )
            }
            Self::GroupSize { members } => {
                write!(f, "a group of {members} sockets; it takes 1 to 256")
            }
            Self::Os { doing, address, errno } => {
                write!(f, "could not {doing} for {address}: {errno}")
            }
        }
    }
}

impl std::error::Error for UdpError {}
