//! Two connected ports in one process.

use std::ffi::CString;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use super::config::DpdkError;
use super::device::lock;
use super::eal;

/// Entries of each ring.
const ENTRIES: u32 = 2_048;

/// Makes two ports, `net_ring_<a>` and `net_ring_<b>`, of which each receives what the other sends,
/// with `queues` pairs of queues each, 1 to 64. For tests within a process: open the ports by these
/// names. They exist until the process ends, and DPDK has 32 ports, so a process has at most 16 pairs.
///
/// ```no_run
/// # use erpc_core::endpoint::Endpoint;
/// # use erpc_core::transport::dpdk::{self, DpdkConfig};
/// dpdk::init(&["--no-huge", "-m", "256", "--no-pci"])?;
/// dpdk::ring_pair("a", "b", 1)?;
/// let server = Endpoint::dpdk(&DpdkConfig::new("net_ring_a", [10, 0, 0, 1].into(), 24))?;
/// let client = Endpoint::dpdk(&DpdkConfig::new("net_ring_b", [10, 0, 0, 2].into(), 24))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`DpdkError::NotStarted`]; [`DpdkError::Device`] if a port of this name exists, a name is longer
/// than 22 bytes, or the number of queues is out of range.
pub fn ring_pair(a: &str, b: &str, queues: u16) -> Result<(), DpdkError> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    /// DPDK's functions that create devices are for one thread at a time.
    static CREATE: Mutex<()> = Mutex::new(());
    if !eal::is_started() {
        return Err(DpdkError::NotStarted);
    }
    let refused = |error: &str| DpdkError::Device {
        device: format!("net_ring_{a}, net_ring_{b}"),
        doing: "create a pair of ports",
        error: error.to_owned(),
    };
    let name = |name: &str| {
        let name = (1..=22).contains(&name.len()).then(|| CString::new(name).ok()).flatten();
        name.ok_or_else(|| refused("a name has 1 to 22 bytes, and none is zero"))
    };
    let (c_a, c_b) = (name(a)?, name(b)?);
    if a == b || !(1..=64).contains(&queues) {
        return Err(refused("the names differ, and there are 1 to 64 queues"));
    }
    let _one_at_a_time = lock(&CREATE);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    // SAFETY: DPDK runs, and both names are terminated strings, which it copies. No other thread
    // creates devices: the lock is held.
    let error =
        unsafe { dpdk_sys::erpc_ring_pair(c_a.as_ptr(), c_b.as_ptr(), queues, ENTRIES, number) };
    if error == 0 { Ok(()) } else { Err(refused(&eal::text(error))) }
}
