//! The UDP socket of the exchange.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

use super::{MESSAGE_LEN, Message};
use crate::transport::udp::UdpRoute;
use crate::transport::verbs::config::{VerbsError, errno};

/// A bound socket, which never blocks.
pub(in crate::transport::verbs) struct Socket {
    socket: UdpSocket,
    /// The address, as peers reach it if the socket is not bound to one host's address.
    address: SocketAddr,
}

/// What a socket has received.
pub(in crate::transport::verbs) enum Received {
    Message(UdpRoute, Message),
    /// A datagram that is no message.
    Other,
}

impl Socket {
    pub(in crate::transport::verbs) fn bind(address: SocketAddr) -> Result<Self, VerbsError> {
        let refused = |error: io::Error| VerbsError::Exchange { address, errno: errno(&error) };
        let socket = UdpSocket::bind(address).map_err(refused)?;
        socket.set_nonblocking(true).map_err(refused)?;
        let address = socket.local_addr().map_err(refused)?;
        Ok(Self { socket, address })
    }

    /// Binds `count` sockets at consecutive ports from that of `address` on. If the port is 0, the
    /// system chooses the first one.
    pub(in crate::transport::verbs) fn bind_group(
        address: SocketAddr,
        count: u16,
    ) -> Result<Vec<Self>, VerbsError> {
        /// Random first ports that are tried.
        const ATTEMPTS: u32 = 32;
        let mut attempt = 0;
        loop {
            attempt += 1;
            let first = Self::bind(address)?;
            let port = first.address.port();
            let rest = (1..count).map(|at| {
                let port = port
                    .checked_add(at)
                    .ok_or(VerbsError::Endpoints { count: count.into(), udp_port: port })?;
                Self::bind(SocketAddr::new(address.ip(), port))
            });
            let group: Result<Vec<_>, _> = std::iter::once(Ok(first)).chain(rest).collect();
            match group {
                Err(_) if address.port() == 0 && attempt < ATTEMPTS => {}
                group => return group,
            }
        }
    }

    pub(in crate::transport::verbs) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sends a message. If the system refuses it, it is lost; whoever needs it asks again.
    pub(in crate::transport::verbs) fn send(&self, to: UdpRoute, message: &Message) {
        // Losses are repaired by the sender's timer, whatever their reason.
        let _ = self.socket.send_to(&message.to_bytes(), to.socket_addr());
    }

    /// The next datagram, if there is one.
    pub(in crate::transport::verbs) fn receive(&self) -> Option<Received> {
        // One byte more than a message, so that a longer datagram is not taken for one.
        let mut bytes = [0; MESSAGE_LEN + 1];
        // Errors are those of earlier messages, or there is nothing to receive.
        let (len, from) = self.socket.recv_from(&mut bytes).ok()?;
        Some(match Message::parse(&bytes[..len]) {
            Ok(message) => Received::Message(from.into(), message),
            Err(_) => Received::Other,
        })
    }

    pub(in crate::transport::verbs) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
