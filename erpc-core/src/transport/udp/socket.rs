//! Opening sockets.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{self, Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use super::config::{UdpConfig, UdpError};
use super::route::Family;
use super::sys;

/// A bound, non-blocking socket.
pub(super) struct UdpSocket {
    socket: Socket,
    family: Family,
    address: SocketAddr,
    recv_buffer: usize,
    /// Whether the kernel can segment datagrams (`UDP_SEGMENT`) and coalesce received ones
    /// (`UDP_GRO`).
    offload: bool,
}

impl UdpSocket {
    /// Binds `config`'s address exclusively.
    pub(super) fn bind(config: &UdpConfig) -> Result<Self, UdpError> {
        Self::bind_to(config, config.address, false)
    }

    /// Binds `address`. If `shared`, other sockets of this user that also set `shared` may bind it,
    /// too.
    pub(super) fn bind_to(
        config: &UdpConfig,
        address: SocketAddr,
        shared: bool,
    ) -> Result<Self, UdpError> {
        match Self::bind_family(config, address, shared) {
            // On a host without IPv6, the unspecified address means all IPv4 interfaces.
            Err(
                UdpError::Os { errno: Errno::AFNOSUPPORT, .. }
                | UdpError::AddressNotAvailable { .. },
            ) if address.is_ipv6() && address.ip().is_unspecified() => {
                let address = SocketAddr::from((Ipv4Addr::UNSPECIFIED, address.port()));
                Self::bind_family(config, address, shared)
            }
            result => result,
        }
    }

    fn bind_family(
        config: &UdpConfig,
        address: SocketAddr,
        shared: bool,
    ) -> Result<Self, UdpError> {
        let failed = |doing| move |error| UdpError::Os { doing, address, errno: errno(&error) };
        let (domain, family) = match address {
            SocketAddr::V4(_) => (Domain::IPV4, Family::V4),
            SocketAddr::V6(_) => (Domain::IPV6, Family::V6),
        };
        // socket2 sets close-on-exec.
        let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))
            .map_err(failed("open a socket"))?;
        socket.set_nonblocking(true).map_err(failed("configure a socket"))?;
        if family == Family::V6 {
            socket
                .set_only_v6(!address.ip().is_unspecified())
                .map_err(failed("configure a socket"))?;
        }
        if shared {
            socket.set_reuse_port(true).map_err(failed("share a port"))?;
        }
        never_fragment(&socket, family).map_err(|errno| UdpError::Os {
            doing: "forbid fragments",
            address,
            errno,
        })?;
        // A kernel that refuses this option reports no errors. Then only the silence of a peer
        // shows that the peer is gone.
        let _ = report_errors(&socket, family);
        // The kernel caps both buffers at the administrator's limits instead of failing.
        socket
            .set_recv_buffer_size(config.recv_buffer)
            .map_err(failed("size the receive buffer"))?;
        socket.set_send_buffer_size(config.send_buffer).map_err(failed("size the send buffer"))?;
        let recv_buffer =
            socket.recv_buffer_size().map_err(failed("read the receive buffer's size"))?;
        socket
            .bind(&SockAddr::from(address))
            .map_err(|error| UdpError::from_bind(errno(&error), address))?;
        let bound = socket.local_addr().map_err(failed("read the bound address"))?;
        let address = bound.as_socket().unwrap_or(address);
        let mut socket = Self { socket, family, address, recv_buffer, offload: false };
        // UDP_SEGMENT exists since Linux 4.18, UDP_GRO since 5.0; a kernel with UDP_GRO has both.
        socket.offload = config.offload && socket.coalesce(true) && socket.coalesce(false);
        Ok(socket)
    }

    /// Allows further sockets to bind the same address, or forbids it again.
    pub(super) fn share_port(&self, share: bool) -> Result<(), Errno> {
        self.socket.set_reuse_port(share).map_err(|error| errno(&error))
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub(super) fn family(&self) -> Family {
        self.family
    }

    /// The bound address. Its port is never 0.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Size of the kernel's receive queue in bytes, by the kernel's own count.
    pub(super) fn recv_buffer(&self) -> usize {
        self.recv_buffer
    }

    /// Whether the kernel segments and coalesces.
    pub(super) fn offload(&self) -> bool {
        self.offload
    }

    /// Makes the kernel coalesce received datagrams, or stop; returns whether that succeeded.
    pub(super) fn coalesce(&self, on: bool) -> bool {
        sys::set_option(self.fd(), libc::SOL_UDP, libc::UDP_GRO, on.into()).is_ok()
    }

    /// Declares sent packets ECN-capable (ECT), and makes the kernel report the traffic class of
    /// received packets; both, or neither.
    pub(super) fn enable_ecn(&self) -> Result<(), Errno> {
        const CAPABLE: i32 = 0b10;
        // The IPv6 options come first. Mapped addresses, possible only on the unspecified address,
        // use the IPv4 options.
        let options = [
            (libc::SOL_IPV6, libc::IPV6_RECVTCLASS, 1),
            (libc::SOL_IPV6, libc::IPV6_TCLASS, CAPABLE),
            (libc::SOL_IP, libc::IP_RECVTOS, 1),
            (libc::SOL_IP, libc::IP_TOS, CAPABLE),
        ];
        self.set_all(match self.family {
            Family::V4 => &options[2..],
            Family::V6 if self.address.ip().is_unspecified() => &options,
            Family::V6 => &options[..2],
        })
    }

    /// Sets all `options`, or none if one is refused. Each option is given as level, name and
    /// value, and must have the value 0 before.
    pub(super) fn set_all(&self, options: &[(i32, i32, i32)]) -> Result<(), Errno> {
        for (done, &(level, name, value)) in options.iter().enumerate() {
            if let Err(errno) = sys::set_option(self.fd(), level, name, value) {
                for &(level, name, _) in &options[..done] {
                    // An option that accepted a value also accepts its old value.
                    let _ = sys::set_option(self.fd(), level, name, 0);
                }
                return Err(errno);
            }
        }
        Ok(())
    }

    /// Whether no datagram is queued. Also false while an error is pending at the socket.
    pub(super) fn is_empty(&self) -> bool {
        let mut fds = [PollFd::from_borrowed_fd(self.fd(), PollFlags::IN)];
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) == Ok(0)
    }
}

/// Forbids the kernel and the network to fragment sent datagrams. A fragmented datagram is lost if
/// any of its fragments is, and the sizes of a session's datagrams were negotiated to fit the path.
fn never_fragment(socket: &Socket, family: Family) -> Result<(), Errno> {
    if family == Family::V6 {
        sockopt::set_ipv6_mtu_discover(socket, Ipv6PathMtuDiscovery::DO)?;
        // Packets to mapped addresses use the IPv4 option. An IPv6-only socket refuses it and does
        // not need it.
        let _ = sockopt::set_ip_mtu_discover(socket, Ipv4PathMtuDiscovery::DO);
        return Ok(());
    }
    sockopt::set_ip_mtu_discover(socket, Ipv4PathMtuDiscovery::DO)
}

/// Makes the kernel report packets that the network has returned.
fn report_errors(socket: &Socket, family: Family) -> Result<(), Errno> {
    let fd = socket.as_fd();
    if family == Family::V6 {
        sys::set_option(fd, libc::SOL_IPV6, libc::IPV6_RECVERR, 1)?;
    }
    // Mapped addresses use the IPv4 option. An IPv6-only socket may refuse it and does not need it.
    sys::set_option(fd, libc::SOL_IP, libc::IP_RECVERR, 1)
}

pub(super) fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}
