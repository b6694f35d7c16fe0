//! Settings and errors of a UDP transport.

use std::fmt;
use std::net::{Ipv6Addr, SocketAddr};

use rustix::io::Errno;

use crate::debug_text::debug_is_display;
use crate::transport::MIN_DATAGRAM;

/// Largest possible UDP payload, in bytes: the limit of IPv4's 16-bit length field.
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
    /// The defaults: all interfaces, a port chosen by the kernel, 4 MiB for each buffer.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The address to bind. With port 0 the kernel chooses a port.
    ///
    /// Default `[::]:0`: all interfaces, IPv6 and IPv4, or IPv4 alone on a host without IPv6. A
    /// socket on any other IPv6 address is IPv6-only.
    #[must_use]
    pub fn address(mut self, address: SocketAddr) -> Self {
        self.address = address;
        self
    }

    /// Bytes of payload and bookkeeping that the kernel should queue while the endpoint is busy.
    /// Default 4 MiB.
    ///
    /// The kernel silently caps this at `net.core.rmem_max` (212,992 on an untuned system) and
    /// doubles the result; [`UdpTransport::recv_buffer`](super::UdpTransport::recv_buffer) returns
    /// the effective size, which limits how much all peers together may have in flight to this
    /// endpoint.
    #[must_use]
    pub fn recv_buffer(mut self, bytes: usize) -> Self {
        self.recv_buffer = bytes;
        self
    }

    /// Bytes that may wait for the network card, counted like `recv_buffer` and capped at
    /// `net.core.wmem_max`. Default 4 MiB. If the buffer is too small, this host drops bursts to a
    /// slow link.
    #[must_use]
    pub fn send_buffer(mut self, bytes: usize) -> Self {
        self.send_buffer = bytes;
        self
    }

    /// Largest datagram to send or accept, in bytes: [`MIN_DATAGRAM`] (1,052) to [`MAX_DATAGRAM`]
    /// (65,507). Other values are refused with [`UdpError::DatagramSize`].
    ///
    /// Default: the payload that fits the MTU of the bound interface, or 65,507 when bound to all
    /// interfaces. A session uses the smallest of both ends' limits and the path's.
    #[must_use]
    pub fn max_datagram(mut self, bytes: usize) -> Self {
        self.max_datagram = Some(bytes);
        self
    }

    /// Whether runs of packets of one length to one peer may pass through the kernel as one unit
    /// (`UDP_SEGMENT`, `UDP_GRO`). Default yes, if the kernel supports it. On the wire, zeros may follow
    /// packets of a run, so that all have one length. The receiver enables `UDP_GRO` only while runs arrive, so that single
    /// packets cost nothing extra. Without offload, each packet of a run costs as much as a single
    /// packet.
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
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum UdpError {
    /// Another socket uses that port.
    AddressInUse {
        /// The requested address.
        address: SocketAddr,
    },
    /// No interface of this host has that address.
    AddressNotAvailable {
        /// The requested address.
        address: SocketAddr,
    },
    /// The port is reserved, or a policy forbids it.
    PermissionDenied {
        /// The requested address.
        address: SocketAddr,
    },
    /// [`UdpConfig::max_datagram`] is out of bounds.
    DatagramSize {
        /// The requested size, in bytes.
        bytes: usize,
    },
    /// A group must have 1 to 256 members.
    GroupSize {
        /// The requested number of members.
        members: usize,
    },
    /// Any other error of the operating system.
    Os {
        /// The operation that failed.
        doing: &'static str,
        /// The requested address.
        address: SocketAddr,
        /// The error of the operating system.
        errno: Errno,
    },
}

impl UdpError {
    /// The error for a failed `bind`.
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
                    "{address} is in use; stop the process that uses it (`ss -ulpn` lists it) or choose another port"
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
                    "not allowed to bind {address}; ports below 1024 need CAP_NET_BIND_SERVICE, choose a higher one"
                )
            }
            Self::DatagramSize { bytes } => {
                write!(
                    f,
                    "max_datagram is {bytes} bytes; it must be {MIN_DATAGRAM} to {MAX_DATAGRAM}"
                )
            }
            Self::GroupSize { members } => {
                write!(f, "a group of {members} sockets; it must have 1 to 256")
            }
            Self::Os { doing, address, errno } => {
                write!(f, "could not {doing} for {address}: {errno}")
            }
        }
    }
}

debug_is_display!(UdpError);

impl std::error::Error for UdpError {}
