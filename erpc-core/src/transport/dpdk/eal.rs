//! DPDK's environment abstraction layer, which starts once per process.

use std::cell::Cell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::sync::{Mutex, PoisonError};

use rustix::thread::{sched_getaffinity, sched_setaffinity};

use super::config::DpdkError;

/// The arguments with which DPDK was started.
static STARTED: Mutex<Option<Vec<String>>> = Mutex::new(None);

/// Starts DPDK with EAL's arguments, for example `["--no-huge", "-m", "256", "--no-pci"]`. A second
/// call with the same arguments does nothing. Takes up to a second.
///
/// # Errors
/// [`DpdkError::Eal`] if DPDK refuses; [`DpdkError::OtherArguments`] if it was started with others.
pub fn init<S: AsRef<str>>(arguments: &[S]) -> Result<(), DpdkError> {
    let arguments: Vec<String> = arguments.iter().map(|arg| arg.as_ref().to_owned()).collect();
    let mut started = STARTED.lock().unwrap_or_else(PoisonError::into_inner);
    match &*started {
        Some(old) if *old == arguments => return Ok(()),
        Some(_) => return Err(DpdkError::OtherArguments),
        None => {}
    }
    let refused = |error: String| DpdkError::Eal { arguments: arguments.join(" "), error };
    let names = std::iter::once("erpc").chain(arguments.iter().map(String::as_str));
    let words: Result<Vec<CString>, _> = names.map(CString::new).collect();
    let words = words.map_err(|_| refused("an argument contains a zero byte".to_owned()))?;
    // EAL keeps pointers to its arguments, so they are never freed.
    let mut pointers: Vec<*mut c_char> = words.into_iter().map(CString::into_raw).collect();
    let count = pointers.len() as c_int;
    pointers.push(std::ptr::null_mut());
    // EAL pins the calling thread to a core, which is not for a library to decide.
    let affinity = sched_getaffinity(None).ok();
    // SAFETY: `pointers` is a vector of `count` valid strings and a null pointer, both leaked. The
    // mutex is held and `started` is empty, so no other start runs or has succeeded.
    let result = unsafe { dpdk_sys::rte_eal_init(count, pointers.leak().as_mut_ptr()) };
    if let Some(affinity) = affinity {
        // A thread that stays pinned is slower, not wrong.
        let _ = sched_setaffinity(None, &affinity);
    }
    if result < 0 {
        return Err(refused(last_error()));
    }
    *started = Some(arguments);
    Ok(())
}

/// Whether DPDK runs.
pub(super) fn is_started() -> bool {
    STARTED.lock().unwrap_or_else(PoisonError::into_inner).is_some()
}

/// The value of the argument `name` of a virtual device, as `--vdev=DEVICE,NAME=VALUE` sets it.
pub(super) fn device_argument(device: &str, name: &str) -> Option<String> {
    let started = STARTED.lock().unwrap_or_else(PoisonError::into_inner);
    started.iter().flatten().find_map(|argument| {
        let mut words = argument.trim_start_matches("--vdev=").split(',');
        (words.next() == Some(device)).then_some(())?;
        words.find_map(|word| Some(word.strip_prefix(name)?.strip_prefix('=')?.to_owned()))
    })
}

/// Whether an argument makes `device` the server of a memif.
pub(super) fn is_memif_server(device: &str) -> bool {
    let role = device_argument(device, "role");
    matches!(role.as_deref(), Some("server" | "master"))
}

/// DPDK's text for its last error in this thread.
pub(super) fn last_error() -> String {
    // SAFETY: reads a thread-local integer.
    text(unsafe { dpdk_sys::erpc_errno() })
}

/// DPDK's text for an error number, of either sign.
pub(super) fn text(error: c_int) -> String {
    // SAFETY: accepts any number. Returns a constant, or a thread's buffer that no call changes
    // before it is copied here.
    let text = unsafe { dpdk_sys::rte_strerror(error.abs()) };
    // SAFETY: a terminated string, as above.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// Ends a thread's registration when the thread ends.
struct Registration;

impl Drop for Registration {
    fn drop(&mut self) {
        // SAFETY: this thread is registered.
        unsafe { dpdk_sys::rte_thread_unregister() };
    }
}

thread_local! {
    static REGISTRATION: Cell<Option<Registration>> = const { Cell::new(None) };
}

/// Gives this thread a number, with which it has a cache in each mempool. Without one, mbufs are
/// taken and returned by atomic operations, which is slower.
#[cold]
pub(super) fn register_thread() {
    // SAFETY: DPDK runs: the caller has a started device. A repeated call is refused or harmless.
    if unsafe { dpdk_sys::rte_thread_register() } == 0 {
        REGISTRATION.set(Some(Registration));
    }
}
