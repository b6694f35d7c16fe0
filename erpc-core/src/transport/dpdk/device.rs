//! A started port.

use std::collections::HashSet;
use std::ffi::CString;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use dpdk_sys::{erpc_device, erpc_losses, erpc_setup, rte_mempool};

use super::config::{DpdkConfig, DpdkError};
use super::eal;
use crate::clock;
use crate::random::random_key;
use crate::transport::frame::{Interface, Mac, Neighbours, control};

/// Names of the devices in use.
static IN_USE: Mutex<Option<HashSet<String>>> = Mutex::new(None);

/// Distinguishes the names of mempools.
static POOLS: AtomicU32 = AtomicU32::new(0);

/// Bytes that a mbuf needs beside the IP packet: DPDK's headroom, Ethernet's header, its VLAN tag
/// and its checksum, rounded up.
const BESIDE_IP: u32 = 192;

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A mempool. It is never freed, because a stopped device may still hold its mbufs.
#[derive(Clone, Copy)]
pub(super) struct Mempool(NonNull<rte_mempool>);

// SAFETY: mempools are made for several threads (their ring has several producers and consumers).
unsafe impl Send for Mempool {}
// SAFETY: as for `Send`.
unsafe impl Sync for Mempool {}

impl Mempool {
    fn new(mbufs: u32, bytes: u32, socket: i32) -> Result<Self, DpdkError> {
        const CACHE: u32 = 256;
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

/// A started port, shared by the halves of its endpoint.
pub(super) struct Device {
    name: String,
    pub(super) port: u16,
    pub(super) pool: Mempool,
    pub(super) interface: Interface,
    pub(super) neighbours: Mutex<Neighbours>,
    /// [`Neighbours::version`], for senders that do not lock.
    pub(super) version: AtomicU32,
    /// Frames that waited for a neighbour in vain.
    pub(super) unresolved: AtomicU64,
    pub(super) udp_port: u16,
    pub(super) descriptors: u16,
    pub(super) verifies: bool,
    /// Whether the link was up at the last housekeeping.
    was_up: AtomicBool,
}

impl Device {
    pub(super) fn open(config: &DpdkConfig, udp_port: u16) -> Result<Self, DpdkError> {
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
        Self::start(config, &found, udp_port).inspect_err(|_| release(&name))
    }

    fn start(config: &DpdkConfig, found: &erpc_device, udp_port: u16) -> Result<Self, DpdkError> {
        // Both rings, the burst that is lent, staged packets, and the caches of two threads.
        let mbufs = u32::from(config.descriptors) * 2 + 1_024;
        let pool = Mempool::new(mbufs, u32::from(config.mtu) + BESIDE_IP, found.socket)?;
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
            interface,
            neighbours: Mutex::new(Neighbours::new(config.neighbours.iter().copied())),
            version: AtomicU32::new(0),
            unresolved: AtomicU64::new(0),
            udp_port,
            descriptors: setup.rx_descriptors,
            verifies: found.rx_checksums != 0,
            was_up: AtomicBool::new(false),
        })
    }

    pub(super) fn neighbours(&self) -> MutexGuard<'_, Neighbours> {
        lock(&self.neighbours)
    }

    /// The link's rate in bytes per second, `None` if it is unknown or the link is down. Drivers
    /// that connect to a peer (memif) try again in this call.
    pub(super) fn link(&self) -> Option<u64> {
        self.link_state().filter(|rate| *rate != 0)
    }

    /// As [`Device::link`], but 0 for an unknown rate, and `None` only if the link is down.
    fn link_state(&self) -> Option<u64> {
        let mut mbps = 0;
        // SAFETY: the port is started.
        let up = unsafe { dpdk_sys::erpc_link(self.port, &raw mut mbps) };
        (up == 1).then(|| u64::from(mbps) * 125_000)
    }

    /// Packets that the device dropped for want of descriptors or mbufs.
    pub(super) fn losses(&self) -> u64 {
        let mut losses = erpc_losses::default();
        // SAFETY: the port is started.
        unsafe { dpdk_sys::erpc_losses(self.port, &raw mut losses) };
        losses.missed + losses.no_mbuf
    }

    /// Sends control frames. Those that the device or the mempool refuses are lost; their senders
    /// repeat them. The caller is the thread that owns the port's queue.
    pub(super) fn send_control(&self, frames: impl IntoIterator<Item = Vec<u8>>) {
        for frame in frames.into_iter().filter(|frame| frame.len() <= self.pool.room()) {
            let (mut mbuf, mut data) = (std::ptr::null_mut(), std::ptr::null_mut());
            // SAFETY: room for one pointer each; the mempool is never freed.
            let taken =
                unsafe { dpdk_sys::erpc_take(self.pool.as_ptr(), &raw mut mbuf, &raw mut data, 1) };
            if taken != 0 {
                return;
            }
            // SAFETY: a new mbuf has `room` bytes at `data`, and nothing else refers to them.
            unsafe { std::ptr::copy_nonoverlapping(frame.as_ptr(), data, frame.len()) };
            let len = frame.len() as u16;
            // SAFETY: one mbuf of our own with `len` bytes. One thread uses the queue: the halves
            // of a transport are used by the thread that has the transport.
            let sent =
                unsafe { dpdk_sys::erpc_tx_burst(self.port, 0, &raw mut mbuf, &raw const len, 1) };
            if sent == 0 {
                // SAFETY: the device has not taken the mbuf.
                unsafe { dpdk_sys::erpc_give_back(&raw mut mbuf, 1) };
            }
        }
    }

    /// Announces this host when the link comes up, asks neighbours again, and drives the link's
    /// connection. Called a few times per second, and
    /// bounded by the table of neighbours.
    #[cold]
    pub(super) fn housekeeping(&self) {
        let is_up = self.link_state().is_some();
        if !self.was_up.swap(is_up, Ordering::Relaxed) && is_up {
            self.send_control(control::announce(&self.interface));
        }
        let (ask, dropped) = {
            let mut table = self.neighbours();
            let due = table.tick(clock::now());
            self.version.store(table.version(), Ordering::Relaxed);
            due
        };
        self.unresolved.fetch_add(dropped, Ordering::Relaxed);
        let ask = ask.into_iter();
        self.send_control(ask.filter_map(|ip| control::ask(&self.interface, ip)));
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: the port is started, and both halves are gone.
        unsafe { dpdk_sys::erpc_device_stop(self.port) };
        release(&self.name);
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
