//! A started port, and the endpoints on it.

use std::collections::HashSet;
use std::ffi::CString;
use std::net::IpAddr;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use dpdk_sys::{erpc_device, erpc_frame, erpc_losses, erpc_setup, rte_mbuf, rte_mempool};

use super::bell::Bell;
use super::config::{DpdkConfig, DpdkError};
use super::eal;
use super::inbox::Inbox;
use crate::clock;
use crate::random::random_key;
use crate::transport::frame::{Interface, Mac, Neighbours, Resolution, Resolve, control};

/// Names of the devices in use.
static IN_USE: Mutex<Option<HashSet<String>>> = Mutex::new(None);

/// Distinguishes the names of mempools.
static POOLS: AtomicU32 = AtomicU32::new(0);

/// Mempools of closed devices, with their sizes. A peer or a driver may still hold some of their
/// mbufs, so they cannot be freed; but they can be used again.
static IDLE_POOLS: Mutex<Vec<(PoolSize, Mempool)>> = Mutex::new(Vec::new());

/// Bytes that a mbuf needs beside the IP packet: DPDK's headroom, Ethernet's header, its VLAN tag
/// and its checksum, rounded up.
const BESIDE_IP: u32 = 192;

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct PoolSize {
    mbufs: u32,
    /// Bytes of each mbuf.
    bytes: u32,
    /// The processor socket near which its memory lies.
    socket: i32,
}

/// A mempool. It is never freed, because a stopped device may still hold its mbufs.
#[derive(Clone, Copy)]
pub(super) struct Mempool(NonNull<rte_mempool>);

// SAFETY: mempools are made for several threads (their ring has several producers and consumers).
unsafe impl Send for Mempool {}
// SAFETY: as for `Send`.
unsafe impl Sync for Mempool {}

impl Mempool {
    fn new(size: PoolSize) -> Result<Self, DpdkError> {
        const CACHE: u32 = 256;
        let PoolSize { mbufs, bytes, socket } = size;
        let mut idle = lock(&IDLE_POOLS);
        if let Some(at) = idle.iter().position(|(idle, _)| *idle == size) {
            return Ok(idle.swap_remove(at).1);
        }
        let no_memory = DpdkError::NoMemory { mbufs, bytes };
        let room = u16::try_from(bytes).map_err(|_| no_memory.clone())?;
        let number = POOLS.fetch_add(1, Ordering::Relaxed);
        let name = CString::new(format!("erpc_{number}")).map_err(|_| no_memory.clone())?;
        // SAFETY: DPDK runs, and the name is a terminated string that it copies.
        let pool = unsafe {
            dpdk_sys::rte_pktmbuf_pool_create(name.as_ptr(), mbufs, CACHE, 0, room, socket)
        };
        NonNull::new(pool).map(Self).ok_or(no_memory)
    }

    pub(super) fn as_ptr(self) -> *mut rte_mempool {
        self.0.as_ptr()
    }

    /// Bytes of a frame that fit a mbuf.
    pub(super) fn room(self) -> usize {
        // SAFETY: mempools are never freed.
        unsafe { dpdk_sys::erpc_room(self.as_ptr()) }.into()
    }
}

/// What siblings need of an endpoint.
#[derive(Default)]
pub(super) struct Member {
    pub(super) inbox: Inbox,
    pub(super) bell: Bell,
}

/// A pair of queues of a device with several endpoints.
#[derive(Default)]
pub(super) struct Queue {
    receive: Mutex<()>,
    send: Mutex<()>,
    /// Counts the polls of the endpoints that have the queue. It stands still while their loops do.
    pub(super) polls: AtomicU32,
}

/// A started port, shared by its endpoints.
pub(super) struct Device {
    name: String,
    port: u16,
    pub(super) pool: Mempool,
    pool_size: PoolSize,
    pub(super) interface: Interface,
    neighbours: Mutex<Neighbours>,
    /// [`Neighbours::version`], for senders that do not lock.
    pub(super) version: AtomicU32,
    /// Frames that waited for a neighbour in vain.
    pub(super) unresolved: AtomicU64,
    /// UDP port of the first endpoint. The others follow.
    udp_port: u16,
    members: Vec<Arc<Member>>,
    /// Endpoints that are not closed.
    open: AtomicUsize,
    pub(super) queues: Vec<Queue>,
    pub(super) descriptors: u16,
    pub(super) verifies: bool,
    /// Whether the link was up at the last housekeeping. The lock also keeps two threads from
    /// driving the link's connection at the same time.
    was_up: Mutex<bool>,
}

/// An endpoint's place at a device, with its queues.
#[derive(Clone)]
pub(super) struct Seat {
    pub(super) device: Arc<Device>,
    pub(super) index: usize,
    pub(super) udp_port: u16,
    pub(super) queue: usize,
    /// Whether other endpoints send on the same queue.
    is_shared: bool,
}

impl Seat {
    pub(super) fn member(&self) -> &Arc<Member> {
        &self.device.members[self.index]
    }

    /// The endpoint that receives at `udp_port`.
    pub(super) fn sibling(&self, udp_port: u16) -> Option<&Member> {
        let index = udp_port.checked_sub(self.device.udp_port)?;
        self.device.members.get(usize::from(index)).map(|member| &**member)
    }

    pub(super) fn has_siblings(&self) -> bool {
        self.device.members.len() > 1
    }

    /// Receives up to `count` frames from `queue` into arrays with room for them.
    ///
    /// # Safety
    /// Both arrays have room for `count` entries. The caller owns the mbufs of the result.
    #[inline]
    pub(super) unsafe fn receive(
        &self,
        queue: usize,
        mbufs: *mut *mut rte_mbuf,
        frames: *mut erpc_frame,
        count: u16,
    ) -> u16 {
        let _turn = match self.has_siblings() {
            false => None,
            // A sibling is polling the queue, and hands over what is ours.
            true => match self.device.queues[queue].receive.try_lock() {
                Ok(turn) => Some(turn),
                Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) => return 0,
            },
        };
        // SAFETY: the port is started, and this thread alone uses the queue: it is the only
        // endpoint's, or locked. The caller provides the arrays.
        unsafe { dpdk_sys::erpc_rx_burst(self.device.port, queue as u16, mbufs, frames, count) }
    }

    /// Offers frames to the device. Returns how many it has taken.
    ///
    /// # Safety
    /// Both arrays have `count` entries; the mbufs are the caller's, with these lengths. Those that
    /// the device takes are its own from then on.
    #[inline]
    pub(super) unsafe fn send(
        &self,
        mbufs: *mut *mut rte_mbuf,
        lengths: *const u16,
        count: u16,
    ) -> u16 {
        let _turn = match self.is_shared {
            false => None,
            true => Some(lock(&self.device.queues[self.queue].send)),
        };
        if self.device.is_closed() {
            return 0;
        }
        // SAFETY: the port is started, and this thread alone uses the queue, as in `receive`. The
        // caller provides the arrays.
        unsafe {
            dpdk_sys::erpc_tx_burst(self.device.port, self.queue as u16, mbufs, lengths, count)
        }
    }

    /// Sends control frames. Those that the device or the mempool refuses are lost; their senders
    /// repeat them.
    pub(super) fn send_control(&self, frames: impl IntoIterator<Item = Vec<u8>>) {
        let pool = self.device.pool;
        for frame in frames.into_iter().filter(|frame| frame.len() <= pool.room()) {
            let (mut mbuf, mut data) = (std::ptr::null_mut(), std::ptr::null_mut());
            // SAFETY: room for one pointer each; the mempool is never freed.
            let taken =
                unsafe { dpdk_sys::erpc_take(pool.as_ptr(), &raw mut mbuf, &raw mut data, 1) };
            if taken != 0 {
                return;
            }
            // SAFETY: a new mbuf has `room` bytes at `data`, and nothing else refers to them.
            unsafe { std::ptr::copy_nonoverlapping(frame.as_ptr(), data, frame.len()) };
            let len = frame.len() as u16;
            // SAFETY: one mbuf of our own with `len` bytes.
            let sent = unsafe { self.send(&raw mut mbuf, &raw const len, 1) };
            if sent == 0 {
                // SAFETY: the device has not taken the mbuf.
                unsafe { dpdk_sys::erpc_give_back(&raw mut mbuf, 1) };
            }
        }
    }

    /// Looks up a neighbour, and asks for it if necessary.
    pub(super) fn resolve(&self, hop: IpAddr, frame: impl FnOnce() -> Vec<u8>) -> Resolution {
        let resolution = lock(&self.device.neighbours).resolve(hop, clock::now(), frame);
        if resolution == Resolution::Ask {
            self.send_control(control::ask(&self.device.interface, hop));
        }
        resolution
    }

    /// Takes note of a neighbour's address, answers its question, and sends the frames that have
    /// waited for it.
    pub(super) fn learn(&self, message: Resolve) {
        let device = &*self.device;
        let (ip, mac, asks) = match message {
            Resolve::Asks { ip, mac } => (ip, mac, true),
            Resolve::Tells { ip, mac } => (ip, mac, false),
        };
        let mut waiting = {
            let mut table = lock(&device.neighbours);
            let waiting = table.learn(ip, mac, asks, clock::now());
            device.version.store(table.version(), Ordering::Relaxed);
            waiting
        };
        for frame in &mut waiting {
            frame[..6].copy_from_slice(&mac.0);
        }
        let answer = asks.then(|| control::tell(&device.interface, ip, mac)).flatten();
        self.send_control(answer.into_iter().chain(waiting));
    }

    /// Announces this host when the link comes up, asks neighbours again, and drives the link's
    /// connection. Called a few times per second, and bounded by the table of neighbours.
    #[cold]
    pub(super) fn housekeeping(&self) {
        let device = &*self.device;
        // A sibling does it now.
        let Ok(mut was_up) = device.was_up.try_lock() else { return };
        let is_up = device.link_state().is_some();
        let comes_up = !std::mem::replace(&mut *was_up, is_up) && is_up;
        drop(was_up);
        if comes_up {
            self.send_control(control::announce(&device.interface));
        }
        let (ask, dropped) = {
            let mut table = lock(&device.neighbours);
            let due = table.tick(clock::now());
            device.version.store(table.version(), Ordering::Relaxed);
            due
        };
        device.unresolved.fetch_add(dropped, Ordering::Relaxed);
        self.send_control(ask.into_iter().filter_map(|ip| control::ask(&device.interface, ip)));
    }
}

impl Device {
    /// Starts a device for `endpoints` endpoints, the first at `udp_port`.
    pub(super) fn open(
        config: &DpdkConfig,
        udp_port: u16,
        endpoints: usize,
    ) -> Result<Vec<Seat>, DpdkError> {
        if !eal::is_started() {
            return Err(DpdkError::NotStarted);
        }
        let name = config.device.clone();
        let absent = || DpdkError::NoDevice { device: name.clone() };
        let c_name = CString::new(&*name).map_err(|_| absent())?;
        let mut found = erpc_device::default();
        // SAFETY: a terminated string and a struct to write; DPDK runs.
        if unsafe { dpdk_sys::erpc_device_find(c_name.as_ptr(), &raw mut found) } != 0 {
            return Err(absent());
        }
        if !lock(&IN_USE).get_or_insert_default().insert(name.clone()) {
            return Err(DpdkError::InUse { device: name });
        }
        let started = Self::start(config, &found, udp_port, endpoints);
        let device = Arc::new(started.inspect_err(|_| release(&name))?);
        let queues = device.queues.len();
        let seat = |index| Seat {
            device: Arc::clone(&device),
            index,
            udp_port: udp_port + index as u16,
            queue: index % queues,
            is_shared: endpoints > queues,
        };
        Ok((0..endpoints).map(seat).collect())
    }

    fn start(
        config: &DpdkConfig,
        found: &erpc_device,
        udp_port: u16,
        endpoints: usize,
    ) -> Result<Self, DpdkError> {
        // Queue `i` of one side is connected to queue `i` of the other.
        let is_pair = ["net_memif", "net_ring"].iter().any(|name| config.device.starts_with(name));
        let default = if is_pair { 1 } else { endpoints as u16 };
        let queues = config.queues.unwrap_or(default).min(endpoints as u16);
        let queues = queues.clamp(1, found.max_queues.max(1));
        let pool_size = PoolSize {
            // The rings; and of each endpoint the burst that is lent, staged packets, the caches of
            // two threads, and the inbox.
            mbufs: u32::from(config.descriptors) * 2 * u32::from(queues)
                + (1_024 + u32::from(config.descriptors)) * endpoints as u32,
            bytes: u32::from(config.mtu) + BESIDE_IP,
            socket: found.socket,
        };
        let pool = Mempool::new(pool_size)?;
        Self::start_with(config, found, udp_port, (endpoints, queues), (pool, pool_size))
            .inspect_err(|_| lock(&IDLE_POOLS).push((pool_size, pool)))
    }

    fn start_with(
        config: &DpdkConfig,
        found: &erpc_device,
        udp_port: u16,
        (endpoints, queues): (usize, u16),
        (pool, pool_size): (Mempool, PoolSize),
    ) -> Result<Self, DpdkError> {
        // Drivers of virtual devices report and accept only Ethernet's MTU, and carry any frame that
        // fits their buffers.
        let is_virtual = config.device.starts_with("net_");
        if !is_virtual && found.max_mtu < config.mtu {
            return Err(DpdkError::Device {
                device: config.device.clone(),
                doing: "use the configured MTU",
                error: format!("{} bytes, and the device carries {}", config.mtu, found.max_mtu),
            });
        }
        let mut setup = erpc_setup {
            // 0 leaves the driver's default, 1,500.
            mtu: if is_virtual || config.mtu == 1_500 { 0 } else { config.mtu },
            queues,
            rx_descriptors: config.descriptors,
            tx_descriptors: config.descriptors,
            rx_checksums: found.rx_checksums,
        };
        let mut step = std::ptr::null();
        // SAFETY: the port exists and is in no other endpoint's use; the mempool is never
        // freed.
        let error = unsafe {
            dpdk_sys::erpc_device_start(found.port, &raw mut setup, pool.as_ptr(), &raw mut step)
        };
        if error != 0 {
            // SAFETY: the shim points `step` to a constant string before each call.
            let doing = unsafe { std::ffi::CStr::from_ptr(step) };
            return Err(DpdkError::Device {
                device: config.device.clone(),
                doing: doing.to_str().unwrap_or("start the device"),
                error: eal::text(error),
            });
        }
        let interface = Interface {
            mac: station(found.mac),
            vlan: config.vlan,
            networks: vec![config.network],
            gateways: config.gateway.into_iter().collect(),
            checksums: config.checksums,
        };
        Ok(Self {
            name: config.device.clone(),
            port: found.port,
            pool,
            pool_size,
            interface,
            neighbours: Mutex::new(Neighbours::new(config.neighbours.iter().copied())),
            version: AtomicU32::new(0),
            unresolved: AtomicU64::new(0),
            udp_port,
            members: (0..endpoints).map(|_| Arc::default()).collect(),
            open: AtomicUsize::new(endpoints),
            queues: (0..queues).map(|_| Queue::default()).collect(),
            descriptors: setup.rx_descriptors,
            verifies: found.rx_checksums != 0,
            was_up: Mutex::new(false),
        })
    }

    /// Packets that may be on their way to one endpoint: its share of the receive queues, which are
    /// also as many as its inbox takes.
    pub(super) fn capacity(&self) -> u32 {
        let sharers = self.members.len().div_ceil(self.queues.len()) as u32;
        (u32::from(self.descriptors) / sharers).max(1)
    }

    /// The link's rate in bytes per second, `None` if it is unknown or the link is down. Drivers
    /// that connect to a peer (memif) try again in this call.
    pub(super) fn link(&self) -> Option<u64> {
        let _one_at_a_time = lock(&self.was_up);
        self.link_state().filter(|rate| *rate != 0)
    }

    /// As [`Device::link`], but 0 for an unknown rate, and `None` only if the link is down.
    fn link_state(&self) -> Option<u64> {
        if self.is_closed() {
            return None;
        }
        let mut mbps = 0;
        // SAFETY: the port is started.
        let up = unsafe { dpdk_sys::erpc_link(self.port, &raw mut mbps) };
        (up == 1).then(|| u64::from(mbps) * 125_000)
    }

    /// Packets that the device dropped for want of descriptors or mbufs.
    pub(super) fn losses(&self) -> u64 {
        let mut losses = erpc_losses::default();
        // SAFETY: the port exists, also after it has stopped.
        unsafe { dpdk_sys::erpc_losses(self.port, &raw mut losses) };
        losses.missed + losses.no_mbuf
    }

    fn is_closed(&self) -> bool {
        self.open.load(Ordering::Acquire) == 0
    }

    /// Closes one endpoint, which uses its queues no more. With the last one, the port stops, and
    /// another endpoint may open it.
    pub(super) fn close_one(&self) {
        if self.open.fetch_sub(1, Ordering::AcqRel) == 1 {
            // SAFETY: the port is started, and no endpoint uses its queues any more.
            unsafe { dpdk_sys::erpc_device_stop(self.port) };
            release(&self.name);
        }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        for member in &self.members {
            let mut waiting = Vec::new();
            member.inbox.take(&mut waiting);
            for mut packet in waiting {
                // SAFETY: the packet's mbuf is ours, and not used after this.
                unsafe { dpdk_sys::erpc_give_back(&raw mut packet.mbuf, 1) };
            }
        }
        lock(&IDLE_POOLS).push((self.pool_size, self.pool));
    }
}

/// The device's address, or a random one, locally administered, for a device that has none.
fn station(mac: [u8; 6]) -> Mac {
    if mac != [0; 6] {
        return Mac(mac);
    }
    let [a, b, c, d, e, ..] = random_key().0.to_ne_bytes();
    Mac([0x02, a, b, c, d, e])
}

fn release(name: &str) {
    lock(&IN_USE).get_or_insert_default().remove(name);
}
