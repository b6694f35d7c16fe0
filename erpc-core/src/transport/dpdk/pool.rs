//! Mempools: the memory of packets.

use std::ffi::CString;
use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use dpdk_sys::rte_mempool;

use super::config::DpdkError;
use super::device::lock;

/// Mempools whose device is closed.
static IDLE: Mutex<Vec<Idle>> = Mutex::new(Vec::new());

struct Idle {
    pool: NonNull<rte_mempool>,
    key: PoolKey,
}

// SAFETY: mempools are made for several threads (their ring has several producers and consumers).
unsafe impl Send for Idle {}

/// What a mempool is for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct PoolKey {
    pub(super) device: String,
    pub(super) mbufs: u32,
    /// Bytes of each mbuf, DPDK's headroom included.
    pub(super) bytes: u32,
    pub(super) socket: i32,
}

/// A mempool. When it is dropped, it waits for the next use of its device: the device's stopped
/// queues refer to it, and its mbufs may be on their way back from other ports and threads.
pub(super) struct Mempool {
    pool: NonNull<rte_mempool>,
    key: PoolKey,
}

// SAFETY: as for `Idle`.
unsafe impl Send for Mempool {}
// SAFETY: as for `Idle`.
unsafe impl Sync for Mempool {}

impl Mempool {
    /// The device's idle mempool, or a new one.
    pub(super) fn take(key: PoolKey) -> Result<Self, DpdkError> {
        let mut idle = lock(&IDLE);
        if let Some(at) = idle.iter().position(|pool| pool.key == key) {
            let Idle { pool, key } = idle.swap_remove(at);
            return Ok(Self { pool, key });
        }
        drop(idle);
        Self::new(key.clone()).or_else(|_| {
            free_if(|_| true);
            Self::new(key)
        })
    }

    fn new(key: PoolKey) -> Result<Self, DpdkError> {
        const CACHE: u32 = 256;
        /// Distinguishes the names of mempools.
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let no_memory = || DpdkError::NoMemory { mbufs: key.mbufs, bytes: key.bytes };
        let room = u16::try_from(key.bytes).map_err(|_| no_memory())?;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = CString::new(format!("erpc_{number}")).map_err(|_| no_memory())?;
        // SAFETY: DPDK runs, and the name is a terminated string that it copies.
        let pool = unsafe {
            dpdk_sys::rte_pktmbuf_pool_create(name.as_ptr(), key.mbufs, CACHE, 0, room, key.socket)
        };
        let pool = NonNull::new(pool).ok_or_else(no_memory)?;
        Ok(Self { pool, key })
    }

    /// Frees the device's idle mempools, which have other sizes than that in use.
    pub(super) fn free_idle(device: &str) {
        free_if(|key| key.device == device);
    }

    pub(super) fn as_ptr(&self) -> *mut rte_mempool {
        self.pool.as_ptr()
    }

    /// Bytes of a frame that fit a mbuf.
    pub(super) fn room(&self) -> usize {
        // SAFETY: the mempool is freed only while it is idle.
        unsafe { dpdk_sys::erpc_room(self.as_ptr()) }.into()
    }
}

/// Frees idle mempools that match and whose mbufs are all back.
fn free_if(matches: impl Fn(&PoolKey) -> bool) {
    lock(&IDLE).retain(|idle| {
        // SAFETY: the mempool exists. Nobody takes mbufs of an idle mempool, so a full one stays full.
        let is_full = || unsafe { dpdk_sys::erpc_pool_is_full(idle.pool.as_ptr()) } != 0;
        if !matches(&idle.key) || !is_full() {
            return true;
        }
        // SAFETY: all mbufs are back, so no queue or endpoint refers to one. A stopped queue may
        // still know the mempool, and takes from it only after a new setup with another one.
        unsafe { dpdk_sys::rte_mempool_free(idle.pool.as_ptr()) };
        false
    });
}

impl Drop for Mempool {
    fn drop(&mut self) {
        lock(&IDLE).push(Idle { pool: self.pool, key: self.key.clone() });
    }
}
