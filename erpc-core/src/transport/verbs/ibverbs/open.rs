//! The objects that a queue pair needs, each with its end.

use std::ffi::CStr;
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};

use ibverbs_sys as ffi;

use crate::transport::verbs::config::{VerbsConfig, VerbsError, errno};

/// The error of a call that returns null, or -1, and sets `errno`.
fn refused(config: &VerbsConfig, doing: &'static str) -> VerbsError {
    let error = io::Error::last_os_error();
    VerbsError::Device { device: config.device.clone(), doing, errno: errno(&error) }
}

/// An open device.
pub(super) struct Context(NonNull<ffi::ibv_context>);

/// A protection domain.
pub(super) struct Domain(NonNull<ffi::ibv_pd>);

/// Tells of completions.
pub(super) struct Channel(NonNull<ffi::ibv_comp_channel>);

/// A completion queue.
pub(super) struct CompletionQueue(NonNull<ffi::ibv_cq>);

/// Makes a type the owner of an object of libibverbs, which ends with it.
macro_rules! owner {
    ($name:ident, $kind:ident, $end:ident) => {
        // SAFETY: libibverbs is thread-safe, and the object belongs to this value.
        unsafe impl Send for $name {}
        // SAFETY: as above.
        unsafe impl Sync for $name {}

        impl $name {
            pub(super) fn as_ptr(&self) -> *mut ffi::$kind {
                self.0.as_ptr()
            }
        }

        impl Drop for $name {
            fn drop(&mut self) {
                // SAFETY: the object exists, belongs to this value, and what was made of it has
                // ended: fields of `IbvDevice` are dropped in this order.
                unsafe { ffi::$end(self.0.as_ptr()) };
            }
        }
    };
}

owner!(Context, ibv_context, ibv_close_device);
owner!(Domain, ibv_pd, ibv_dealloc_pd);
owner!(Channel, ibv_comp_channel, ibv_destroy_comp_channel);
owner!(CompletionQueue, ibv_cq, ibv_destroy_cq);

/// A port.
pub(super) struct PortAttributes {
    pub(super) is_ethernet: bool,
    pub(super) lid: u16,
    pub(super) mtu: usize,
    pub(super) rate: Option<u64>,
    pub(super) pkeys: u16,
}

impl Context {
    pub(super) fn open(name: &str) -> Result<Self, VerbsError> {
        let mut count = 0;
        // SAFETY: a number to write.
        let list = unsafe { ffi::ibv_get_device_list(&raw mut count) };
        let (mut found, mut opened) = (Vec::new(), None);
        for at in 0..usize::try_from(count).unwrap_or(0) {
            if list.is_null() {
                break;
            }
            // SAFETY: the list has `count` devices.
            let device = unsafe { *list.wrapping_add(at) };
            // SAFETY: a device of the list.
            let text = unsafe { ffi::ibv_get_device_name(device) };
            // SAFETY: names are terminated strings, and live as long as the list.
            let text = unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
            if text == name {
                // SAFETY: a device of the list.
                let context = unsafe { ffi::ibv_open_device(device) };
                let context = NonNull::new(context).ok_or_else(io::Error::last_os_error);
                opened = Some(context.map_err(|error| VerbsError::Device {
                    device: name.to_owned(),
                    doing: "open (may this user read and write /dev/infiniband/uverbs*?)",
                    errno: errno(&error),
                }));
            }
            found.push(text);
        }
        if !list.is_null() {
            // SAFETY: the list is not used any more.
            unsafe { ffi::ibv_free_device_list(list) };
        }
        let absent = || VerbsError::NoDevice { device: name.to_owned(), found };
        opened.ok_or_else(absent)?.map(Self)
    }

    /// Most requests of a queue.
    pub(super) fn limits(&self, config: &VerbsConfig) -> Result<u32, VerbsError> {
        let mut attributes = ffi::ibv_device_attr::default();
        // SAFETY: an open device and a struct to write.
        if unsafe { ffi::ibv_query_device(self.as_ptr(), &raw mut attributes) } != 0 {
            return Err(refused(config, "tell its limits"));
        }
        let most = attributes.max_qp_wr.min(attributes.max_cqe);
        Ok(u32::try_from(most).unwrap_or(0))
    }

    fn query_port(&self, port: u8) -> Option<ffi::ibv_port_attr> {
        let mut attributes = ffi::ibv_port_attr::default();
        // SAFETY: an open device and a struct to write, of which the function writes the part that
        // old versions have.
        let error =
            unsafe { ffi::ibv_query_port(self.as_ptr(), port, (&raw mut attributes).cast()) };
        (error == 0).then_some(attributes)
    }

    pub(super) fn is_active(&self, port: u8) -> bool {
        self.query_port(port).is_some_and(|port| port.state == ffi::ibv_port_state::IBV_PORT_ACTIVE)
    }

    pub(super) fn port(&self, config: &VerbsConfig) -> Result<PortAttributes, VerbsError> {
        let refused = |state: &str| VerbsError::Port {
            device: config.device.clone(),
            port: config.port,
            state: state.to_owned(),
        };
        let found = self.query_port(config.port).ok_or_else(|| refused("absent"))?;
        let state = match found.state {
            ffi::ibv_port_state::IBV_PORT_ACTIVE => None,
            ffi::ibv_port_state::IBV_PORT_DOWN => Some("down"),
            ffi::ibv_port_state::IBV_PORT_INIT => {
                Some("initializing (is a subnet manager running?)")
            }
            ffi::ibv_port_state::IBV_PORT_ARMED => Some("armed"),
            _ => Some("in an unknown state"),
        };
        if let Some(state) = state {
            return Err(refused(state));
        }
        // The numbers 1 to 5 are 256 to 4,096 bytes.
        let mtu = 128 << found.active_mtu.clamp(1, 5);
        Ok(PortAttributes {
            is_ethernet: u32::from(found.link_layer) == ffi::IBV_LINK_LAYER_ETHERNET,
            lid: found.lid,
            mtu,
            rate: rate(found.active_width, found.active_speed),
            pkeys: found.pkey_tbl_len,
        })
    }

    /// The place of the configured P_Key in the port's table.
    pub(super) fn pkey_index(&self, config: &VerbsConfig, count: u16) -> Result<u16, VerbsError> {
        let is_wanted = |index: &u16| {
            let mut pkey = 0;
            // SAFETY: an open device, and a number to write.
            let error = unsafe {
                ffi::ibv_query_pkey(self.as_ptr(), config.port, i32::from(*index), &raw mut pkey)
            };
            error == 0 && u16::from_be(pkey) == config.pkey
        };
        let absent = || VerbsError::Pkey { device: config.device.clone(), pkey: config.pkey };
        (0..count).find(is_wanted).ok_or_else(absent)
    }

    pub(super) fn domain(&self, config: &VerbsConfig) -> Result<Domain, VerbsError> {
        // SAFETY: an open device.
        let domain = unsafe { ffi::ibv_alloc_pd(self.as_ptr()) };
        NonNull::new(domain).map(Domain).ok_or_else(|| refused(config, "make a protection domain"))
    }

    /// A channel that never blocks.
    pub(super) fn channel(&self, config: &VerbsConfig) -> Result<Channel, VerbsError> {
        // SAFETY: an open device.
        let channel = unsafe { ffi::ibv_create_comp_channel(self.as_ptr()) };
        let channel = NonNull::new(channel).map(Channel);
        let channel = channel.ok_or_else(|| refused(config, "make a completion channel"))?;
        rustix::io::ioctl_fionbio(channel.fd(), true)
            .map_err(|_| refused(config, "make a completion channel"))?;
        Ok(channel)
    }

    pub(super) fn completion_queue(
        &self,
        config: &VerbsConfig,
        entries: u32,
        channel: Option<&Channel>,
    ) -> Result<CompletionQueue, VerbsError> {
        let channel = channel.map_or(ptr::null_mut(), Channel::as_ptr);
        // SAFETY: an open device; the channel is one of it, and outlives the queue.
        let queue = unsafe {
            ffi::ibv_create_cq(self.as_ptr(), entries as i32, ptr::null_mut(), channel, 0)
        };
        let queue = NonNull::new(queue).map(CompletionQueue);
        queue.ok_or_else(|| refused(config, "make a completion queue"))
    }
}

impl Channel {
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: libibverbs has filled the struct.
        let fd = unsafe { self.0.as_ref() }.fd;
        // SAFETY: the descriptor is open as long as the channel exists.
        unsafe { BorrowedFd::borrow_raw(fd) }
    }

    /// Takes all events.
    pub(super) fn take_events(&self) {
        let (mut queue, mut context) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: two pointers to write. The channel does not block: without an event, this fails.
        while unsafe { ffi::ibv_get_cq_event(self.as_ptr(), &raw mut queue, &raw mut context) } == 0
        {
            // SAFETY: the queue of this event, which exists: it ends after the device.
            unsafe { ffi::ibv_ack_cq_events(queue, 1) };
        }
    }
}

impl CompletionQueue {
    /// Makes the next completion an event.
    pub(super) fn arm(&self) {
        // SAFETY: the queue exists, and its context has the functions of its driver.
        let context = unsafe { self.0.as_ref() }.context;
        // SAFETY: as above.
        let Some(notify) = (unsafe { (*context).ops.req_notify_cq }) else { return };
        // SAFETY: the function of this queue's driver. If it fails, the sleep ends by its timeout.
        unsafe { notify(self.as_ptr(), 0) };
    }
}

/// Bytes per second of a link, as the port names width and speed; `None` for unknown numbers.
fn rate(width: u8, speed: u8) -> Option<u64> {
    let lanes: u64 = match width {
        1 => 1,
        2 => 4,
        4 => 8,
        8 => 12,
        16 => 2,
        _ => return None,
    };
    // Megabits per second of a lane: SDR, DDR, QDR, FDR10, FDR, EDR, HDR, NDR.
    let lane: u64 = match speed {
        1 => 2_500,
        2 => 5_000,
        4 | 8 => 10_000,
        16 => 14_062,
        32 => 25_781,
        64 => 50_000,
        128 => 100_000,
        _ => return None,
    };
    Some(lanes * lane * 125_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_lanes_times_their_speed() {
        assert_eq!(rate(2, 4), Some(40_000 * 125_000), "4X QDR");
        assert_eq!(rate(1, 1), Some(2_500 * 125_000), "1X SDR");
        assert_eq!((rate(3, 4), rate(2, 3)), (None, None));
    }
}
