//! A started port.

use std::collections::HashSet;
use std::ffi::CString;
use std::iter;
use std::net::IpAddr;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use dpdk_sys::{erpc_device, erpc_losses, erpc_offload, erpc_setup};

use super::arena::DpdkArena;
use super::config::{DpdkConfig, DpdkError};
use super::eal;
use super::group::{Member, QueueLock, Steering};
use super::kernel::{self, KernelDevice};
use super::pool::{Mempool, PoolKey};
use crate::clock;
use crate::random::random_key;
use crate::transport::frame::{Interface, Mac, Neighbours, control};

/// Names of the devices in use.
static IN_USE: Mutex<Option<HashSet<String>>> = Mutex::new(None);

/// Bytes that a mbuf needs beside the IP packet: DPDK's headroom, Ethernet's header, its VLAN tag
/// and its checksum, rounded up.
const BESIDE_IP: u32 = 192;
/// Mbufs of an endpoint beside those in queues: the burst that is lent, staged packets, and caches.
const PER_ENDPOINT: u32 = 1_024;
/// Announcements of the MAC address when the link comes up, because peers may know that of the last
/// process on this port. A driver may lose the first one while it connects.
const ANNOUNCEMENTS: u32 = 3;
/// Rounds of housekeeping between two attempts to reconnect.
const ROUNDS_PER_ATTEMPT: u32 = 5;
/// Bytes of a mbuf whose data lie elsewhere: DPDK's headroom, which it does not use.
const TAIL_BYTES: u32 = 128;
/// Most receive queues of a port.
const MAX_QUEUES: u16 = 64;

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The right to open a device, which one group of endpoints has.
struct Claim(String);

impl Claim {
    fn new(device: &str) -> Result<Self, DpdkError> {
        if lock(&IN_USE).get_or_insert_default().insert(device.to_owned()) {
            Ok(Self(device.to_owned()))
        } else {
            Err(DpdkError::InUse { device: device.to_owned() })
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        lock(&IN_USE).get_or_insert_default().remove(&self.0);
    }
}

/// A started port, shared by its endpoints. It is stopped when the last one is dropped.
pub(super) struct Device {
    pub(super) port: u16,
    pub(super) interface: Interface,
    /// Whether the address is a link-local one of IPv6.
    pub(super) is_link_local: bool,
    /// The number that this process gives the link (the scope of link-local addresses), as peers'
    /// addresses name it. Packets do not contain it.
    pub(super) scope: AtomicU32,
    pub(super) neighbours: Mutex<Neighbours>,
    /// [`Neighbours::version`], for senders that do not lock.
    pub(super) version: AtomicU32,
    /// Datagrams that waited for a neighbour, and then were sent; their number and bytes.
    pub(super) late_packets: AtomicU64,
    pub(super) late_bytes: AtomicU64,
    /// Datagrams that waited for a neighbour in vain, or that the device then refused.
    pub(super) unresolved: AtomicU64,
    /// UDP port of the first endpoint; the others follow.
    pub(super) udp_port: u16,
    /// Largest datagram, in bytes.
    pub(super) max_datagram: usize,
    pub(super) descriptors: u16,
    pub(super) verifies: bool,
    /// What the device completes in sent frames; `None` if it cannot.
    pub(super) offload: Option<erpc_offload>,
    pub(super) steering: Steering,
    pub(super) members: Box<[Member]>,
    pub(super) rx_locks: Box<[QueueLock]>,
    pub(super) tx_locks: Box<[QueueLock]>,
    /// Drivers connect in queries of the link, which are for one thread at a time.
    link: Mutex<()>,
    /// Whether the link was up at the last look.
    was_up: AtomicBool,
    /// Times that the link went down and came up.
    pub(super) link_downs: AtomicU64,
    pub(super) link_ups: AtomicU64,
    /// The kernel's interface below the device, if its driver does not know when that is down.
    interface_below: Option<u32>,
    /// Whether the driver connects only when the port starts: a client of memif.
    reconnects: bool,
    /// Whether the queues may be used. False after a restart in vain.
    is_running: AtomicBool,
    /// Rounds of housekeeping.
    attempts: AtomicU32,
    /// Announcements of the MAC address that are still to be sent.
    announcements: AtomicU32,
    // Dropped in this order, after the port is stopped.
    pub(super) pool: Mempool,
    /// Mbufs for data outside of mbufs. There are some if there is an arena.
    pub(super) tails: Option<Mempool>,
    pub(super) arena: Option<DpdkArena>,
    _claim: Claim,
}

impl Device {
    pub(super) fn open(
        config: &DpdkConfig,
        udp_port: u16,
        endpoints: u16,
    ) -> Result<Self, DpdkError> {
        if !eal::is_started() {
            return Err(DpdkError::NotStarted);
        }
        let absent = || DpdkError::NoDevice { device: config.device.clone() };
        let c_name = CString::new(&*config.device).map_err(|_| absent())?;
        let mut found = erpc_device::default();
        // SAFETY: a terminated string and a struct to write; DPDK runs.
        if unsafe { dpdk_sys::erpc_device_find(c_name.as_ptr(), &raw mut found) } != 0 {
            return Err(absent());
        }
        let claim = Claim::new(&config.device)?;
        check_mtu(config, found.max_mtu)?;
        let kernel = KernelDevice::new(&config.device);
        if let Some(kernel) = kernel {
            let (_, of_interface) = interface_below(found.interface);
            kernel
                .check_mtu(config.mtu, of_interface)
                .map_err(|error| mtu_refused(config, error))?;
            kernel::check_first_start(&config.device)?;
        }
        let descriptors =
            kernel.map_or(config.descriptors, |kernel| kernel.descriptors(config.descriptors));
        let [rx_queues, tx_queues] = queues(config, &found, endpoints);
        let mut setup = erpc_setup {
            // 0 leaves the driver's default, 1,500.
            mtu: if is_virtual(&config.device) || config.mtu == 1_500 { 0 } else { config.mtu },
            rx_queues,
            tx_queues,
            rx_descriptors: descriptors,
            tx_descriptors: descriptors,
            rx_checksums: found.rx_checksums,
            tx_segments: found.tx_segments,
            // Without checksums there is nothing to offload but the sum of 20 bytes.
            tx_checksums: u8::from(found.tx_checksums != 0 && config.checksums),
            rss: 0,
        };
        // Within one process, the peer of `net_ring` would hold the messages.
        let by_default = !config.device.starts_with("net_ring");
        let arena = if found.tx_segments != 0 && config.zero_copy.unwrap_or(by_default) {
            DpdkArena::new(&config.device)
        } else {
            None
        };
        let tails = arena.as_ref().map(|_| {
            Mempool::take(PoolKey {
                device: config.device.clone(),
                mbufs: u32::from(descriptors) * u32::from(tx_queues)
                    + PER_ENDPOINT * u32::from(endpoints),
                bytes: TAIL_BYTES,
                socket: found.socket,
            })
        });
        let tails = tails.transpose()?;
        let pool = Mempool::take(PoolKey {
            device: config.device.clone(),
            mbufs: u32::from(descriptors) * u32::from(rx_queues + tx_queues)
                + PER_ENDPOINT * u32::from(endpoints)
                + kernel.map_or(0, |kernel| kernel.mbufs(rx_queues)),
            bytes: (u32::from(config.mtu) + BESIDE_IP)
                .max(kernel.map_or(0, |kernel| kernel.mbuf_bytes(config.mtu))),
            socket: found.socket,
        })?;
        let mut step = ptr::null();
        // SAFETY: the port exists, and this group alone has it: it holds the claim. The mempool
        // outlives the port's use.
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
        if kernel.is_some() {
            kernel::note_start(&config.device);
        }
        Mempool::free_idle(&config.device);
        let has_own_queues = endpoints > 1 && rx_queues == endpoints;
        let steering = if endpoints == 1 && rx_queues == 1 {
            Steering::Single
        } else if has_own_queues && steer(found.port, udp_port, rx_queues, config) {
            Steering::Rules
        } else if setup.rss != 0 {
            Steering::Hash
        } else {
            Steering::Software
        };
        let interface = Interface {
            mac: station(found.mac, found.port),
            vlan: config.vlan,
            networks: vec![config.network],
            gateways: config.gateway.into_iter().collect(),
            checksums: config.checksums,
        };
        let locks = |queues: u16| (0..queues).map(|_| QueueLock::default()).collect();
        // A single endpoint has no sibling that hands over datagrams.
        let inbox = if endpoints == 1 { 0 } else { setup.rx_descriptors.into() };
        Ok(Self {
            port: found.port,
            interface,
            is_link_local: matches!(config.network.address, IpAddr::V6(v6) if v6.is_unicast_link_local()),
            scope: AtomicU32::new(0),
            neighbours: Mutex::new(Neighbours::new(config.neighbours.iter().copied())),
            version: AtomicU32::new(0),
            late_packets: AtomicU64::new(0),
            late_bytes: AtomicU64::new(0),
            unresolved: AtomicU64::new(0),
            udp_port,
            max_datagram: usize::from(config.mtu)
                - if config.network.address.is_ipv4() { 20 } else { 40 }
                - 8,
            descriptors: setup.rx_descriptors,
            verifies: found.rx_checksums != 0,
            offload: (setup.tx_checksums != 0).then(|| erpc_offload {
                is_v6: config.network.address.is_ipv6().into(),
                l2_len: if config.vlan.is_some() { 18 } else { 14 },
            }),
            steering,
            members: (0..endpoints).map(|_| Member::new(inbox)).collect(),
            rx_locks: locks(rx_queues),
            tx_locks: locks(tx_queues),
            link: Mutex::new(()),
            was_up: AtomicBool::new(false),
            link_downs: AtomicU64::new(0),
            link_ups: AtomicU64::new(0),
            interface_below: kernel.map(|_| found.interface).filter(|&interface| interface != 0),
            reconnects: config.device.starts_with("net_memif")
                && !eal::is_memif_server(&config.device),
            is_running: AtomicBool::new(true),
            attempts: AtomicU32::new(0),
            announcements: AtomicU32::new(0),
            pool,
            tails,
            arena,
            _claim: claim,
        })
    }

    /// The member that receives at this UDP port.
    #[inline]
    pub(super) fn member_at(&self, udp_port: u16) -> Option<usize> {
        let member = usize::from(udp_port.wrapping_sub(self.udp_port));
        (member < self.members.len()).then_some(member)
    }

    pub(super) fn neighbours(&self) -> MutexGuard<'_, Neighbours> {
        lock(&self.neighbours)
    }

    /// Whether the queues may be used. A burst of a stopped port is an error.
    #[inline]
    pub(super) fn is_running(&self) -> bool {
        self.is_running.load(Ordering::Relaxed)
    }

    /// Restarts the port, unless another endpoint uses a queue now. If that fails, because the peer
    /// is not there, the next housekeeping tries again.
    #[cold]
    fn reconnect(&self) {
        let locks = || self.rx_locks.iter().chain(&self.tx_locks);
        let count = locks().take_while(|lock| lock.acquire()).count();
        if count == self.rx_locks.len() + self.tx_locks.len() {
            let _one_at_a_time = lock(&self.link);
            let runs = self.is_running().into();
            // SAFETY: all queues are locked; a single endpoint, which does not lock, is here.
            let error = unsafe { dpdk_sys::erpc_device_restart(self.port, runs) };
            self.is_running.store(error == 0, Ordering::Relaxed);
        }
        locks().take(count).for_each(QueueLock::release);
    }

    /// Whether the link is up.
    pub(super) fn is_up(&self) -> bool {
        self.query_link().is_some()
    }

    /// The link's rate in bytes per second, `None` if it is unknown or the link is down.
    pub(super) fn link(&self) -> Option<u64> {
        self.query_link().filter(|&mbps| mbps != 0).map(|mbps| u64::from(mbps) * 125_000)
    }

    /// The link's rate in Mb/s, 0 if it is unknown; `None` if the link is down. Drivers that connect
    /// to a peer (memif) try again in this call.
    fn query_link(&self) -> Option<u32> {
        let _one_at_a_time = lock(&self.link);
        let mut mbps = 0;
        // SAFETY: the port is started.
        let up = unsafe { dpdk_sys::erpc_link(self.port, &raw mut mbps) };
        let is_up = up == 1 && self.interface_below.is_none_or(|number| interface_below(number).0);
        is_up.then_some(mbps)
    }

    /// Packets that the device dropped for want of descriptors or mbufs.
    pub(super) fn losses(&self) -> u64 {
        let mut losses = erpc_losses::default();
        // SAFETY: the port is started.
        unsafe { dpdk_sys::erpc_losses(self.port, &raw mut losses) };
        losses.missed + losses.no_mbuf
    }

    /// Sends control frames through transmit queue `queue`. Frames that the device or the mempool
    /// refuses are lost; their senders repeat them. The caller is the thread of an endpoint that
    /// has this queue.
    pub(super) fn send_control(&self, queue: u16, frames: impl IntoIterator<Item = Vec<u8>>) {
        for frame in frames {
            let _is_sent = self.send_frame(queue, &frame);
        }
    }

    /// Sends frames that have waited for a neighbour, as [`Device::send_control`] does.
    pub(super) fn send_waiting(&self, queue: u16, frames: Vec<Vec<u8>>) {
        for frame in frames {
            if self.send_frame(queue, &frame) {
                let bytes = frame.len().saturating_sub(self.interface.header_len());
                self.late_packets.fetch_add(1, Ordering::Relaxed);
                self.late_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
            } else {
                self.unresolved.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Whether the device took the frame.
    fn send_frame(&self, queue: u16, frame: &[u8]) -> bool {
        let (mut mbuf, mut data) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: room for one pointer each; the mempool lives as long as `self`.
        let error =
            unsafe { dpdk_sys::erpc_take(self.pool.as_ptr(), &raw mut mbuf, &raw mut data, 1) };
        if error != 0 {
            return false;
        }
        let lock = &self.tx_locks[usize::from(queue)];
        let mut sent = 0;
        if frame.len() <= self.pool.room() && self.is_running() && lock.acquire() {
            // SAFETY: a new mbuf has `room` bytes at `data`, and nothing else refers to them.
            unsafe { ptr::copy_nonoverlapping(frame.as_ptr(), data, frame.len()) };
            let len = frame.len() as u16;
            // SAFETY: one mbuf of our own with `len` bytes. The lock gives the queue to this
            // thread; an endpoint that needs no lock is the only user of its queue.
            sent = unsafe {
                dpdk_sys::erpc_tx_burst(
                    self.port,
                    queue,
                    &raw mut mbuf,
                    &raw const len,
                    ptr::null(),
                    1,
                )
            };
            lock.release();
        }
        if sent == 0 {
            // SAFETY: the device has not taken the mbuf.
            unsafe { dpdk_sys::erpc_give_back(&raw mut mbuf, 1) };
        }
        sent != 0
    }

    /// Acts on changes of the link.
    fn watch_link(&self, queue: u16) {
        let is_up = self.is_up();
        let was_up = self.was_up.swap(is_up, Ordering::Relaxed);
        if is_up != was_up {
            let count = if is_up { &self.link_ups } else { &self.link_downs };
            count.fetch_add(1, Ordering::Relaxed);
        }
        if is_up && !was_up {
            self.announcements.store(ANNOUNCEMENTS, Ordering::Relaxed);
            self.neighbours().doubt(clock::now());
        }
        let take = |left: u32| left.checked_sub(1);
        let left = &self.announcements;
        if is_up && left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok() {
            self.send_control(queue, control::announce(&self.interface));
        }
        let attempt = self.attempts.fetch_add(1, Ordering::Relaxed);
        let is_lost = was_up || !self.is_running() && attempt.is_multiple_of(ROUNDS_PER_ATTEMPT);
        if self.reconnects && !is_up && is_lost {
            self.reconnect();
        }
    }

    /// Asks neighbours again, and drives the link's connection. Called a few times per second, and
    /// bounded by the table of neighbours.
    #[cold]
    pub(super) fn housekeeping(&self, queue: u16) {
        self.watch_link(queue);
        let (ask, dropped) = {
            let mut table = self.neighbours();
            let due = table.tick(clock::now());
            self.version.store(table.version(), Ordering::Relaxed);
            due
        };
        self.unresolved.fetch_add(dropped, Ordering::Relaxed);
        let ask = ask.into_iter();
        self.send_control(queue, ask.filter_map(|ip| control::ask(&self.interface, ip)));
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        for handed in self.members.iter().flat_map(|member| iter::from_fn(|| member.inbox.pop())) {
            let mut mbuf = handed.mbuf;
            // SAFETY: the inbox has owned the mbuf, and all endpoints are gone.
            unsafe { dpdk_sys::erpc_give_back(&raw mut mbuf, 1) };
        }
        // SAFETY: the port is started, and all endpoints are gone.
        unsafe { dpdk_sys::erpc_device_stop(self.port) };
    }
}

/// Whether the device is a program's: EAL names these after their drivers, and others after their
/// place on a bus. Drivers of virtual devices report and accept only Ethernet's MTU, and carry any
/// frame that fits their buffers.
fn is_virtual(device: &str) -> bool {
    device.starts_with("net_")
}

/// Refuses an MTU above the largest one of the device, `most`.
fn check_mtu(config: &DpdkConfig, most: u16) -> Result<(), DpdkError> {
    if is_virtual(&config.device) || config.mtu <= most {
        return Ok(());
    }
    Err(mtu_refused(config, format!("{} bytes, and the device carries {most}", config.mtu)))
}

fn mtu_refused(config: &DpdkConfig, error: String) -> DpdkError {
    DpdkError::Device { device: config.device.clone(), doing: "use the configured MTU", error }
}

/// Whether the kernel's interface `number` and its link are up, and its MTU; 0 if that is unknown.
/// An interface that the kernel cannot tell about counts as up.
fn interface_below(number: u32) -> (bool, u32) {
    let mut mtu = 0;
    // SAFETY: a number to write. The call does not depend on DPDK.
    let state = unsafe { dpdk_sys::erpc_interface(number, &raw mut mtu) };
    (state != 0, mtu)
}

/// The numbers of receive and transmit queues.
fn queues(config: &DpdkConfig, found: &erpc_device, endpoints: u16) -> [u16; 2] {
    let device = &config.device;
    let wanted = match config.queues {
        // Both ends of memif need the same number of queues.
        0 if device.starts_with("net_memif") => 1,
        0 => endpoints,
        queues => queues,
    };
    let limit = |queues: u16, most: u16| queues.min(most).clamp(1, MAX_QUEUES);
    // The peer of `net_ring` may send into any ring, so all are polled.
    let rx = if device.starts_with("net_ring") { found.max_rx_queues } else { wanted };
    [limit(rx, found.max_rx_queues), limit(wanted.min(endpoints), found.max_tx_queues)]
}

/// Asks the device to steer; false if it refuses.
fn steer(port: u16, udp_port: u16, queues: u16, config: &DpdkConfig) -> bool {
    let is_v6 = config.network.address.is_ipv6().into();
    // SAFETY: the port is started and ours.
    unsafe {
        dpdk_sys::erpc_steer(port, udp_port, queues, is_v6, config.vlan.is_some().into()) == 0
    }
}

/// The device's address, or a locally administered one for a device that has none: random for the
/// process, with the port's number.
fn station(mac: [u8; 6], port: u16) -> Mac {
    if mac != [0; 6] {
        return Mac(mac);
    }
    static PROCESS: OnceLock<[u8; 8]> = OnceLock::new();
    let [a, b, c, ..] = *PROCESS.get_or_init(|| random_key().0.to_ne_bytes());
    let [high, low] = port.to_be_bytes();
    Mac([0x02, a, b, c, high, low])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_mtu_above_that_of_a_device_is_refused_unless_it_is_virtual() {
        let check = |device: &str, mtu, most| {
            check_mtu(&DpdkConfig::new(device, [10, 9, 0, 1].into(), 24).mtu(mtu), most)
        };
        for (mtu, most) in [(1_500, 1_500), (1_500, 9_000), (9_000, 9_000), (9_000, u16::MAX)] {
            assert_eq!(check("0000:03:00.0", mtu, most), Ok(()), "{mtu} of {most}");
        }
        for (mtu, most) in [(1_501, 1_500), (9_000, 8_999), (1_500, 0)] {
            let error = check("0000:03:00.0", mtu, most).expect_err("too long").to_string();
            let named = [&*format!("{mtu} bytes"), &format!("carries {most}"), "0000:03:00.0"];
            assert!(named.iter().all(|part| error.contains(part)), "{error}");
            assert_eq!(check("net_memif0", mtu, most), Ok(()), "virtual: {mtu} of {most}");
        }
    }
}
