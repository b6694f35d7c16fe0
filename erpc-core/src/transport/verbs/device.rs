//! What the transport needs from a verbs device: one queue pair with its completion queues.
//!
//! The traits are small on purpose. [`Ibverbs`](super::Ibverbs) implements them over libibverbs,
//! [`SoftFabric`](super::SoftFabric) in memory. Reliable Connected queue pairs would be a trait of
//! their own beside [`Device`], over the same [`Provider`] and [`Registration`]s.

use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use super::config::{VerbsConfig, VerbsError};

/// Bytes in front of each received datagram: the Global Routing Header, or room for it.
pub const GRH: usize = 40;

/// Opens devices.
pub trait Provider: Clone + Send + 'static {
    /// The devices.
    type Device: Device;

    /// Opens a device and creates a queue pair that is ready to send, and to receive once buffers
    /// are posted.
    ///
    /// # Errors
    /// [`VerbsError`], which says how to fix the problem.
    fn open(&self, config: &VerbsConfig) -> Result<Self::Device, VerbsError>;
}

/// An identifier of a port in the network: an IPv6 address, or an IPv4 address that is stored
/// IPv4-mapped.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// The address, if this is the GID of RoCE v2: IPv4 if it is IPv4-mapped.
    #[must_use]
    pub fn ip(self) -> IpAddr {
        Ipv6Addr::from(self.0).to_canonical()
    }
}

impl From<IpAddr> for Gid {
    fn from(ip: IpAddr) -> Self {
        Self(match ip {
            IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
            IpAddr::V6(v6) => v6.octets(),
        })
    }
}

/// How a port is addressed on its network.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Host {
    /// By a GID: RoCE.
    Gid(Gid),
    /// By a local identifier: InfiniBand, within a subnet.
    Lid(u16),
}

/// What a device offers. Constant while it is open.
#[derive(Clone, Copy, Debug)]
pub struct DeviceInfo {
    /// The port's GID at the configured index.
    pub gid: Gid,
    /// The port's LID; 0 over Ethernet.
    pub lid: u16,
    /// Whether packets have a GRH: over Ethernet always.
    pub is_global: bool,
    /// Largest datagram in bytes, from the port's active MTU.
    pub mtu: usize,
    /// Largest datagram, in bytes, that fits into a work request.
    pub inline: usize,
    /// Entries of the send queue.
    pub send_depth: u32,
    /// Entries of the receive queue.
    pub recv_depth: u32,
    /// Rate of the link in bytes per second, if it is known.
    pub rate: Option<u64>,
}

/// Memory that a device may access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Registration {
    /// The key that requests name.
    pub lkey: u32,
}

/// An address handle: the device's form of a [`Host`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AddressHandle(pub u64);

/// A piece of registered memory.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    /// Its first byte.
    pub start: *const u8,
    /// Its length in bytes.
    pub len: u32,
    /// The key of its [`Registration`]. Ignored for inline data.
    pub lkey: u32,
}

// SAFETY: an address and a length. Who may access the memory is up to those who post requests,
// which is unsafe.
unsafe impl Send for Piece {}
// SAFETY: as above.
unsafe impl Sync for Piece {}

impl Piece {
    /// No memory.
    pub const EMPTY: Self = Self { start: std::ptr::null(), len: 0, lkey: 0 };
}

/// A datagram to send.
#[derive(Clone, Copy, Debug)]
pub struct SendRequest {
    /// Returned with the completion.
    pub id: u64,
    /// The destination's port.
    pub host: AddressHandle,
    /// The destination's queue pair.
    pub qpn: u32,
    /// The destination's Q_Key.
    pub qkey: u32,
    /// The datagram, in one or two pieces; the second may be empty.
    pub pieces: [Piece; 2],
    /// Whether the device copies the datagram while the request is posted.
    pub inline: bool,
    /// Whether the request has a completion if it succeeds. Failed ones always have.
    pub signaled: bool,
    /// Immediate data.
    pub immediate: Option<u32>,
}

/// A buffer to receive into: [`GRH`] bytes, then the datagram.
#[derive(Clone, Copy, Debug)]
pub struct RecvRequest {
    /// Returned with the completion.
    pub id: u64,
    /// The buffer.
    pub buffer: Piece,
}

/// A completed request.
#[derive(Clone, Copy, Debug)]
pub struct Completion {
    /// The request's.
    pub id: u64,
    /// The error's code (`enum ibv_wc_status`); 0 for success. With an error, only `id` is valid.
    pub status: u32,
    /// Bytes received, of which the first [`GRH`] are not the datagram's.
    pub len: u32,
    /// The sender's queue pair.
    pub source_qpn: u32,
    /// The sender's LID, over InfiniBand.
    pub source_lid: u16,
    /// Whether the first bytes of the buffer are a GRH.
    pub has_grh: bool,
    /// Immediate data of the sender.
    pub immediate: Option<u32>,
}

impl Completion {
    /// A place to poll into.
    pub const EMPTY: Self = Self {
        id: 0,
        status: 0,
        len: 0,
        source_qpn: 0,
        source_lid: 0,
        has_grh: false,
        immediate: None,
    };
}

/// One of the two queues of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Queue {
    /// Sent datagrams.
    Send,
    /// Received datagrams.
    Receive,
}

/// What [`Device::rebuild`] has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rebuilt {
    /// The queue pair was reset and has its old number.
    Reset,
    /// The queue pair was replaced by one with another number.
    Replaced,
}

/// An open port with one Unreliable Datagram queue pair. One thread at a time uses it.
///
/// # Safety
/// After [`Device::rebuild`] has returned `Ok`, and after the device is dropped, it accesses no
/// memory of requests that were posted before. It writes to no memory but that of posted
/// [`RecvRequest`]s. When it is dropped, registrations and handles end with it.
pub unsafe trait Device: Send + Sync + 'static {
    /// What opens such devices.
    type Provider: Provider<Device = Self>;

    /// What the device offers.
    fn info(&self) -> DeviceInfo;

    /// Number of the queue pair.
    fn qpn(&self) -> u32;

    /// Lets the device access memory, until it is dropped.
    ///
    /// # Errors
    /// The system's error, such as `ENOMEM` when the limit of locked memory is reached.
    ///
    /// # Safety
    /// The memory stays mapped until the device is dropped.
    unsafe fn register(&self, start: NonNull<u8>, len: usize) -> io::Result<Registration>;

    /// Makes an address handle. With `is_ecn_capable`, datagrams to it may be marked by switches.
    ///
    /// # Errors
    /// The system's error, for instance if there is no route to the address.
    fn create_handle(&self, host: Host, is_ecn_capable: bool) -> io::Result<AddressHandle>;

    /// Destroys an address handle.
    ///
    /// # Safety
    /// The handle is of this device, is destroyed once, and no request in progress uses it.
    unsafe fn destroy_handle(&self, handle: AddressHandle);

    /// Posts buffers, in order, with one doorbell.
    ///
    /// # Errors
    /// The number of requests that were posted, and why the next one was not.
    ///
    /// # Safety
    /// The device may write to the buffers until the requests complete. Nothing else accesses them.
    unsafe fn post_recv(&self, requests: &[RecvRequest]) -> Result<(), (usize, io::Error)>;

    /// Posts datagrams, in order, with one doorbell.
    ///
    /// # Errors
    /// The number of requests that were posted, and why the next one was not.
    ///
    /// # Safety
    /// Pieces that are not inline stay readable and unchanged until the request completes, or a
    /// later one does. Handles exist until then.
    unsafe fn post_send(&self, requests: &[SendRequest]) -> Result<(), (usize, io::Error)>;

    /// Takes completions, at most as many as `into` has places. Returns their number.
    fn poll(&self, queue: Queue, into: &mut [Completion]) -> usize;

    /// Whether the queue pair works. May be a system call.
    fn is_ready(&self) -> bool;

    /// Makes the queue pair usable again after an error. All posted requests are gone, and so are
    /// their completions.
    ///
    /// # Errors
    /// The system's error. The device can be asked again later.
    fn rebuild(&self) -> io::Result<Rebuilt>;

    /// Whether the port is active. May be a system call.
    fn is_link_up(&self) -> bool;

    /// Datagrams to this port that found no posted buffer, for all its queue pairs together. `None`
    /// if the device does not count them. May be a system call.
    fn overflows(&self) -> Option<u64>;

    /// Makes the next completion of a received datagram a readable [`Device::events`].
    fn arm(&self);

    /// Takes the events, so that [`Device::events`] is not readable any more.
    fn take_events(&self);

    /// Readable after a completion if [`Device::arm`] was called before.
    fn events(&self) -> BorrowedFd<'_>;
}
