//! Reports of packets that the network or the system did not deliver.

use std::fmt;
use std::io;

/// Why the network or the system did not deliver a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum NetworkError {
    /// The destination host has no socket at the packet's port: the server has ended, was never
    /// started, or listens elsewhere. From an ICMP message "port unreachable".
    NothingListens,
    /// A router or the destination host says in an ICMP message that it cannot deliver the packet.
    Returned(Obstacle),
    /// This host's system refused to send the packet, with this error number: it has no route to
    /// the destination, or a firewall rule forbids the packet.
    NotSent(i32),
}

/// Why a router or host could not deliver a packet, from the type and code of its ICMP or ICMPv6
/// message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Obstacle {
    /// No route to the destination's network.
    Network,
    /// The destination's host does not answer, or does not exist.
    Host,
    /// A firewall forbids the packet.
    Prohibited,
    /// Another reason: the type and code of the message.
    Other(u8, u8),
}

impl NetworkError {
    /// Whether the destination host itself has answered that no process listens at the port. All
    /// other errors may be temporary: the network may repair itself.
    pub(crate) fn is_refusal(self) -> bool {
        matches!(self, Self::NothingListens)
    }
}

impl fmt::Display for NetworkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NothingListens => f.write_str(
                "connection refused: nothing listens at that port (ICMP port unreachable)",
            ),
            Self::Returned(obstacle) => match obstacle {
                Obstacle::Network => {
                    f.write_str("no route to the network (ICMP network unreachable)")
                }
                Obstacle::Host => f.write_str("no route to the host (ICMP host unreachable)"),
                Obstacle::Prohibited => {
                    f.write_str("a firewall rejects the packets (ICMP administratively prohibited)")
                }
                Obstacle::Other(kind, code) => write!(
                    f,
                    "the network returns the packets (ICMP message of type {kind}, code {code})"
                ),
            },
            Self::NotSent(errno) => {
                let error = io::Error::from_raw_os_error(*errno);
                write!(f, "this host cannot send the packets: {error}")
            }
        }
    }
}

impl std::error::Error for NetworkError {}

/// Bytes of a packet that an [`Undelivered`] keeps: the header, and the client's id in a handshake
/// message.
pub const QUOTE_LEN: usize = 32;

/// A packet of this endpoint that was not delivered, as a [`Transport`](super::Transport) reports
/// it. The report may be forged: anyone can send an ICMP message with any content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Undelivered<R> {
    /// The destination of the packet.
    pub route: R,
    /// Why the packet was not delivered.
    pub error: NetworkError,
    quote: [u8; QUOTE_LEN],
    len: u8,
}

impl<R> Undelivered<R> {
    /// Reports that `packet` to `route` was not delivered. Of the packet, the first [`QUOTE_LEN`]
    /// bytes are kept; fewer may be known.
    pub fn new(route: R, error: NetworkError, packet: &[u8]) -> Self {
        let len = packet.len().min(QUOTE_LEN);
        let mut quote = [0; QUOTE_LEN];
        quote[..len].copy_from_slice(&packet[..len]);
        Self { route, error, quote, len: len as u8 }
    }

    /// The first bytes of the packet, as far as they are known: at most [`QUOTE_LEN`].
    #[must_use]
    pub fn quote(&self) -> &[u8] {
        &self.quote[..usize::from(self.len)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_its_source() {
        let text = NetworkError::NothingListens.to_string();
        assert!(text.contains("connection refused") && text.contains("ICMP"), "{text}");
        let text = NetworkError::NotSent(libc::ENETUNREACH).to_string();
        assert!(text.contains("Network is unreachable"), "{text}");
    }

    #[test]
    fn a_quote_keeps_the_first_bytes() {
        let packet: Vec<u8> = (0..100).collect();
        for len in [0, 10, QUOTE_LEN, 100] {
            let report = Undelivered::new((), NetworkError::NothingListens, &packet[..len]);
            assert_eq!(report.quote(), &packet[..len.min(QUOTE_LEN)]);
        }
    }
}
