//! Several sockets on one port, and the program with which the kernel selects one for each packet.
//!
//! A group contains no foreign socket that is older than the group: the first socket binds its port
//! exclusively, which fails if the port is in use, and only then allows sharing. From then on,
//! sockets *of the same user* that set `SO_REUSEPORT` can join; Linux cannot close a group to them.
//! A second erpc group never joins, because its first socket binds exclusively.
//!
//! When a socket of a group closes, the kernel gives its number to the group's last socket. Groups
//! are therefore closed as a whole.

use libc::sock_filter;
use rustix::io::Errno;

use super::config::{UdpConfig, UdpError};
use super::socket::UdpSocket;
use super::sys;
use crate::wire::{HeaderWords, Kind};

/// Number of members that the one steering byte can distinguish.
pub(super) const MAX_GROUP: usize = 256;

/// Opens `members` sockets on `config`'s address. Returns them, and true if they share the port.
/// Member `i` then receives the packets whose first byte is `i`; see [`program`].
///
/// If the kernel refuses to steer, each member has its own port: the first member has the
/// requested port, the others have any port.
pub(super) fn bind_group(
    config: &UdpConfig,
    members: usize,
) -> Result<(Vec<UdpSocket>, bool), UdpError> {
    if !(1..=MAX_GROUP).contains(&members) {
        return Err(UdpError::GroupSize { members });
    }
    let first = UdpSocket::bind(config)?;
    if members == 1 {
        return Ok((vec![first], false));
    }
    let mut group = vec![first];
    match join(config, members, &mut group) {
        Ok(()) => Ok((group, true)),
        Err(_refused) => {
            group.truncate(1);
            // Best effort: if the kernel refuses this, it also refused to share.
            let _ = group[0].share_port(false);
            let mut any_port = config.address;
            any_port.set_port(0);
            while group.len() < members {
                group.push(UdpSocket::bind_to(config, any_port, false)?);
            }
            Ok((group, false))
        }
    }
}

/// Adds members to a group of one. The kernel numbers members in the order in which they bind.
fn join(config: &UdpConfig, members: usize, group: &mut Vec<UdpSocket>) -> Result<(), Errno> {
    let address = group[0].address();
    group[0].share_port(true)?;
    while group.len() < members {
        group.push(UdpSocket::bind_to(config, address, true).map_err(|_| Errno::ADDRINUSE)?);
    }
    sys::attach_reuseport_program(group[0].fd(), &program())
}

/// Byte offset of the header word with kind and packet number, and a mask for their bits in that
/// word, read as big-endian: version and flags are excluded.
const KIND_AT: usize = 8;
const KIND_AND_PACKET: u32 = 0x1cff_ffff;
/// Kind `Control` with packet number 1, which is little-endian: a client's first packet.
const HELLO: u32 = (Kind::Control as u32) << 26 | 0x0001_0000;

/// The member that `packet` names, `None` if any member may receive it. Equals the result of
/// [`program`], except for packets too short to have a kind.
#[inline]
pub(super) fn member_of(packet: &[u8]) -> Option<u8> {
    let kind_and_packet = match packet.get(KIND_AT..).and_then(|tail| tail.first_chunk()) {
        Some(&word) => u32::from_be_bytes(word) & KIND_AND_PACKET,
        None => 0,
    };
    if kind_and_packet == HELLO { None } else { packet.first().copied() }
}

/// The member that a packet of a message names: the first byte of the connection id.
#[inline(always)]
pub(super) const fn member_of_message(header: HeaderWords) -> u8 {
    header.connection().to_u64() as u8
}

/// The steering program, in classic BPF. It reads a datagram's payload and returns the number of a
/// socket. For a number without a socket, the kernel chooses by its hash of the addresses.
///
/// ```text
///   if kind == Control and packet number == 1: return none   a new client: spread
///   return payload[0]                                        ConnectionId's steering byte
/// ```
///
/// A payload too short for a kind goes to socket 0, which drops it as invalid.
const fn program() -> [sock_filter; 6] {
    const NO_SOCKET: u32 = u32::MAX;
    const LOAD_WORD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    const LOAD_BYTE: u32 = libc::BPF_LD | libc::BPF_B | libc::BPF_ABS;
    const AND: u32 = libc::BPF_ALU | libc::BPF_AND | libc::BPF_K;
    const IF_EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    [
        op(LOAD_WORD, KIND_AT as u32, 0, 0),
        op(AND, KIND_AND_PACKET, 0, 0),
        op(IF_EQUAL, HELLO, 0, 1),
        op(libc::BPF_RET | libc::BPF_K, NO_SOCKET, 0, 0),
        op(LOAD_BYTE, 0, 0, 0),
        op(libc::BPF_RET | libc::BPF_A, 0, 0, 0),
    ]
}

const fn op(code: u32, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code: code as u16, jt, jf, k }
}
