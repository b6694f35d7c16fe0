//! Verbs devices in this process's memory, for tests and for counting instructions without a network
//! card.
//!
//! A [`SoftFabric`] is a network. It behaves as strictly as a device may: a send queue has room
//! again only after the completion of a signaled request was polled, requests that are not inline
//! are read when they are sent and not when they are posted, and memory that is not registered is an
//! error.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, eventfd};

use super::config::{GidChoice, VerbsConfig, VerbsError};
use super::device::{
    AddressHandle, Completion, Device, DeviceInfo, GRH, Gid, Host, Provider, Queue, Rebuilt,
    RecvRequest, Registration, SendRequest,
};
use super::grh;

/// `IBV_WC_LOC_LEN_ERR`.
const LENGTH: u32 = 1;
/// `IBV_WC_LOC_PROT_ERR`.
const PROTECTION: u32 = 4;
/// `IBV_WC_WR_FLUSH_ERR`.
const FLUSHED: u32 = 5;
/// Longest inline datagram, as over a card.
const INLINE: usize = 60;
/// Traffic class of datagrams that may be marked (ECT(0)).
const ECN_CAPABLE: u8 = 2;

/// A network of verbs devices in memory. Clones are the same network.
#[derive(Clone)]
pub struct SoftFabric {
    network: Arc<Mutex<Network>>,
    mtu: usize,
}

struct Network {
    pairs: HashMap<u32, Pair>,
    next_qpn: u32,
    /// Whether posted datagrams wait for [`SoftFabric::deliver`].
    is_held: bool,
    /// Whether a queue pair that is rebuilt gets another number.
    replaces: bool,
    /// Whether switches mark datagrams.
    marks: bool,
    lost: u64,
}

/// A queue pair.
struct Pair {
    gid: Gid,
    qkey: u32,
    is_broken: bool,
    recv: VecDeque<RecvRequest>,
    recv_depth: usize,
    send: VecDeque<Posted>,
    /// Entries of the send queue in use, and how many a polled completion frees.
    send_used: usize,
    send_depth: usize,
    unsignaled: usize,
    received: VecDeque<Completion>,
    sent: VecDeque<(Completion, usize)>,
    ranges: Vec<(usize, usize)>,
    hosts: HashMap<u64, (Host, bool)>,
    next_handle: u64,
    armed: bool,
    event: Arc<OwnedFd>,
    overflows: u64,
}

/// A datagram in a send queue.
struct Posted {
    request: SendRequest,
    /// Inline data, copied when the request was posted, if it waits.
    copied: Option<Vec<u8>>,
}

impl Posted {
    fn new(request: &SendRequest, waits: bool) -> Self {
        let copied = (waits && request.inline).then(|| Self::read(request));
        Self { request: *request, copied }
    }

    fn read(request: &SendRequest) -> Vec<u8> {
        let mut bytes = Vec::new();
        for piece in request.pieces.iter().filter(|piece| piece.len > 0) {
            // SAFETY: the poster promises that the memory is readable: inline data while they are
            // posted, others until the request completes.
            bytes.extend_from_slice(unsafe {
                slice::from_raw_parts(piece.start, piece.len as usize)
            });
        }
        bytes
    }
}

impl Default for SoftFabric {
    fn default() -> Self {
        Self::new(4_096)
    }
}

impl SoftFabric {
    /// A network whose datagrams have up to `mtu` bytes.
    #[must_use]
    pub fn new(mtu: usize) -> Self {
        let network = Network {
            pairs: HashMap::new(),
            next_qpn: 0x11,
            is_held: false,
            replaces: false,
            marks: false,
            lost: 0,
        };
        Self { network: Arc::new(Mutex::new(network)), mtu }
    }

    /// From now on, posted datagrams stay in their send queues until [`SoftFabric::deliver`].
    pub fn hold(&self) {
        self.lock().is_held = true;
    }

    /// Sends all posted datagrams, and from now on those that are posted.
    pub fn release(&self) {
        self.lock().is_held = false;
        self.deliver(usize::MAX);
    }

    /// Sends up to `count` posted datagrams of each queue pair. Returns how many.
    pub fn deliver(&self, count: usize) -> usize {
        let mut network = self.lock();
        let pairs: Vec<u32> = network.pairs.keys().copied().collect();
        pairs.into_iter().map(|qpn| network.send(qpn, count)).sum()
    }

    /// From now on, switches mark datagrams that may be marked.
    pub fn mark(&self) {
        self.lock().marks = true;
    }

    /// Forces a queue pair into the error state.
    pub fn break_pair(&self, qpn: u32) {
        if let Some(pair) = self.lock().pairs.get_mut(&qpn) {
            pair.fail();
        }
    }

    /// Whether a rebuilt queue pair has another number.
    pub fn replace_pairs(&self, replaces: bool) {
        self.lock().replaces = replaces;
    }

    /// Datagrams that reached no queue pair, or one without a buffer.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lock().lost
    }

    /// Address handles that exist.
    #[must_use]
    pub fn handles(&self) -> usize {
        self.lock().pairs.values().map(|pair| pair.hosts.len()).sum()
    }

    fn lock(&self) -> MutexGuard<'_, Network> {
        self.network.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for SoftFabric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SoftFabric")
    }
}

impl Provider for SoftFabric {
    type Device = SoftDevice;

    /// The GID is the address that the configuration names as its interface; `127.0.0.1` by default.
    fn open(&self, config: &VerbsConfig) -> Result<SoftDevice, VerbsError> {
        let refused = |error: rustix::io::Errno| VerbsError::Device {
            device: config.device.clone(),
            doing: "create an eventfd",
            errno: error.raw_os_error(),
        };
        let gid = match config.gid {
            GidChoice::Ip(ip) => ip.into(),
            GidChoice::Default | GidChoice::Index(_) => {
                Gid::from(std::net::IpAddr::from([127, 0, 0, 1]))
            }
        };
        let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).map_err(refused)?;
        let event = Arc::new(event);
        let mut network = self.lock();
        let qpn = network.new_number();
        let recv_depth = (config.recv_entries() as usize).next_power_of_two();
        network.pairs.insert(
            qpn,
            Pair {
                gid,
                qkey: config.qkey,
                is_broken: false,
                recv: VecDeque::new(),
                recv_depth,
                send: VecDeque::new(),
                send_used: 0,
                send_depth: config.send_depth as usize,
                unsignaled: 0,
                received: VecDeque::new(),
                sent: VecDeque::new(),
                ranges: Vec::new(),
                hosts: HashMap::new(),
                next_handle: 1,
                armed: false,
                event: Arc::clone(&event),
                overflows: 0,
            },
        );
        Ok(SoftDevice {
            fabric: self.clone(),
            qpn: Mutex::new(qpn),
            info: DeviceInfo {
                gid,
                lid: 0,
                is_global: true,
                mtu: self.mtu,
                inline: INLINE,
                send_depth: config.send_depth,
                recv_depth: recv_depth as u32,
                rate: None,
            },
            event,
        })
    }
}

impl Network {
    fn new_number(&mut self) -> u32 {
        self.next_qpn += 1;
        self.next_qpn
    }

    /// Sends up to `count` datagrams of queue pair `qpn`.
    fn send(&mut self, qpn: u32, count: usize) -> usize {
        let mut sent = 0;
        while sent < count {
            let Some(pair) = self.pairs.get_mut(&qpn) else { break };
            let Some(Posted { request, copied }) = pair.send.pop_front() else { break };
            sent += 1;
            let (from, host) = (pair.gid, pair.hosts.get(&request.host.0).copied());
            let is_registered = request.pieces.iter().all(|piece| {
                request.inline || piece.len == 0 || pair.is_registered(piece.start, piece.len)
            });
            let Some((Host::Gid(to), is_ecn_capable)) = host.filter(|_| is_registered) else {
                pair.complete(&request, PROTECTION);
                pair.fail();
                continue;
            };
            let bytes = copied.unwrap_or_else(|| Posted::read(&request));
            pair.complete(&request, 0);
            let class = if !is_ecn_capable { 0 } else { ECN_CAPABLE | u8::from(self.marks) };
            self.arrive(qpn, from, to, class, &request, &bytes);
        }
        sent
    }

    fn arrive(
        &mut self,
        from_qpn: u32,
        from: Gid,
        to: Gid,
        class: u8,
        request: &SendRequest,
        bytes: &[u8],
    ) {
        let pair = self
            .pairs
            .get_mut(&request.qpn)
            .filter(|pair| pair.gid == to && pair.qkey == request.qkey && !pair.is_broken);
        let Some(pair) = pair else {
            self.lost += 1;
            return;
        };
        let Some(RecvRequest { id, buffer }) = pair.recv.pop_front() else {
            pair.overflows += 1;
            self.lost += 1;
            return;
        };
        let failed = if bytes.len() + GRH > buffer.len as usize {
            LENGTH
        } else if !pair.is_registered(buffer.start, buffer.len) {
            PROTECTION
        } else {
            0
        };
        if failed != 0 {
            pair.received.push_back(Completion { id, status: failed, ..Completion::EMPTY });
            return pair.fail();
        }
        let mut header = [0; GRH];
        grh::write(&mut header, from, to, class);
        let start = buffer.start.cast_mut();
        // SAFETY: the poster promises that the buffer is writable, and nothing else uses it.
        unsafe { ptr::copy_nonoverlapping(header.as_ptr(), start, GRH) };
        // SAFETY: as above; the length was checked.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), start.wrapping_add(GRH), bytes.len()) };
        pair.received.push_back(Completion {
            id,
            status: 0,
            len: (GRH + bytes.len()) as u32,
            source_qpn: from_qpn,
            source_lid: 0,
            has_grh: true,
            immediate: request.immediate,
        });
        pair.notify();
    }
}

impl Pair {
    fn is_registered(&self, start: *const u8, len: u32) -> bool {
        let (start, len) = (start.addr(), len as usize);
        self.ranges.iter().any(|(first, size)| start >= *first && start + len <= first + size)
    }

    fn complete(&mut self, request: &SendRequest, status: u32) {
        self.unsignaled += 1;
        if request.signaled || status != 0 {
            let frees = std::mem::take(&mut self.unsignaled);
            let completion = Completion { id: request.id, status, ..Completion::EMPTY };
            self.sent.push_back((completion, frees));
        }
    }

    /// Flushes both queues.
    fn fail(&mut self) {
        self.is_broken = true;
        while let Some(posted) = self.send.pop_front() {
            self.complete(&posted.request, FLUSHED);
        }
        let flushed = self.recv.drain(..).map(|request| Completion {
            id: request.id,
            status: FLUSHED,
            ..Completion::EMPTY
        });
        self.received.extend(flushed);
        self.notify();
    }

    fn notify(&mut self) {
        if std::mem::take(&mut self.armed) {
            // The counter cannot overflow: it is reset after each wait.
            let _ = rustix::io::write(&*self.event, &1u64.to_ne_bytes());
        }
    }
}

/// A device of a [`SoftFabric`].
pub struct SoftDevice {
    fabric: SoftFabric,
    qpn: Mutex<u32>,
    info: DeviceInfo,
    event: Arc<OwnedFd>,
}

impl SoftDevice {
    /// Calls `use_it` with this device's queue pair, which exists as long as the device.
    fn pair<R>(&self, use_it: impl FnOnce(&mut Pair) -> R) -> R {
        let qpn = self.qpn();
        let mut network = self.fabric.lock();
        use_it(network.pairs.get_mut(&qpn).expect("a device has a queue pair"))
    }
}

impl fmt::Debug for SoftDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SoftDevice").field("qpn", &self.qpn()).finish_non_exhaustive()
    }
}

// SAFETY: `rebuild` and `drop` remove all requests of the queue pair, and only requests in a queue
// are accessed. Only buffers of posted requests are written, in `arrive`.
unsafe impl Device for SoftDevice {
    type Provider = SoftFabric;

    fn info(&self) -> DeviceInfo {
        self.info
    }

    fn qpn(&self) -> u32 {
        *self.qpn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    unsafe fn register(&self, start: NonNull<u8>, len: usize) -> io::Result<Registration> {
        self.pair(|pair| {
            pair.ranges.push((start.addr().get(), len));
            Ok(Registration { lkey: pair.ranges.len() as u32 })
        })
    }

    fn create_handle(&self, host: Host, is_ecn_capable: bool) -> io::Result<AddressHandle> {
        self.pair(|pair| {
            let handle = pair.next_handle;
            pair.next_handle += 1;
            pair.hosts.insert(handle, (host, is_ecn_capable));
            Ok(AddressHandle(handle))
        })
    }

    unsafe fn destroy_handle(&self, handle: AddressHandle) {
        self.pair(|pair| {
            let is_used = pair.send.iter().any(|posted| posted.request.host == handle);
            assert!(!is_used, "a handle is destroyed while a request uses it");
            assert!(pair.hosts.remove(&handle.0).is_some(), "a handle is destroyed once");
        });
    }

    unsafe fn post_recv(&self, requests: &[RecvRequest]) -> Result<(), (usize, io::Error)> {
        self.pair(|pair| {
            let room = pair.recv_depth - pair.recv.len();
            pair.recv.extend(requests.iter().take(room));
            if requests.len() > room { Err((room, full())) } else { Ok(()) }
        })
    }

    unsafe fn post_send(&self, requests: &[SendRequest]) -> Result<(), (usize, io::Error)> {
        let qpn = self.qpn();
        let mut network = self.fabric.lock();
        let is_held = network.is_held;
        let pair = network.pairs.get_mut(&qpn).expect("a device has a queue pair");
        if pair.is_broken {
            for request in requests {
                pair.complete(request, FLUSHED);
            }
            return Ok(());
        }
        let room = (pair.send_depth - pair.send_used).min(requests.len());
        pair.send_used += room;
        pair.send.extend(requests.iter().take(room).map(|request| Posted::new(request, is_held)));
        if !is_held {
            network.send(qpn, usize::MAX);
        }
        if requests.len() > room { Err((room, full())) } else { Ok(()) }
    }

    fn poll(&self, queue: Queue, into: &mut [Completion]) -> usize {
        self.pair(|pair| {
            let mut count = 0;
            while count < into.len() {
                let next = match queue {
                    Queue::Receive => pair.received.pop_front(),
                    Queue::Send => pair.sent.pop_front().map(|(completion, frees)| {
                        pair.send_used = pair.send_used.saturating_sub(frees);
                        completion
                    }),
                };
                let Some(next) = next else { break };
                into[count] = next;
                count += 1;
            }
            count
        })
    }

    fn is_ready(&self) -> bool {
        self.pair(|pair| !pair.is_broken)
    }

    fn rebuild(&self) -> io::Result<Rebuilt> {
        let old = self.qpn();
        let mut network = self.fabric.lock();
        let new = if network.replaces { network.new_number() } else { old };
        let mut pair = network.pairs.remove(&old).expect("a device has a queue pair");
        pair.is_broken = false;
        pair.send_used = 0;
        pair.unsignaled = 0;
        pair.recv.clear();
        pair.send.clear();
        pair.received.clear();
        pair.sent.clear();
        network.pairs.insert(new, pair);
        *self.qpn.lock().unwrap_or_else(PoisonError::into_inner) = new;
        Ok(if new == old { Rebuilt::Reset } else { Rebuilt::Replaced })
    }

    fn is_link_up(&self) -> bool {
        true
    }

    fn overflows(&self) -> Option<u64> {
        Some(self.pair(|pair| pair.overflows))
    }

    fn arm(&self) {
        self.pair(|pair| pair.armed = true);
    }

    fn take_events(&self) {
        // Fails if there is no event.
        let _ = rustix::io::read(&*self.event, &mut [0; 8]);
    }

    fn events(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

fn full() -> io::Error {
    io::Error::from_raw_os_error(libc::ENOMEM)
}

impl Drop for SoftDevice {
    fn drop(&mut self) {
        let qpn = self.qpn();
        self.fabric.lock().pairs.remove(&qpn);
    }
}
