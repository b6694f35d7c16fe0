//! The queue pair's life: created, made ready, reset, destroyed.

use std::io;
use std::mem;
use std::ptr::{self, NonNull};

use ibverbs_sys as ffi;

use super::open::{CompletionQueue, Domain};

/// Bytes of inline data that are asked for. With them, a request takes two cache lines: 16 bytes of
/// control, 48 of address, 4 of length (thesis section 3.6.2.2). A call of 32 bytes is a packet of
/// 56.
pub(super) const INLINE: u32 = 60;

/// How queue pairs are made.
#[derive(Clone, Copy)]
pub(super) struct Setup {
    pub(super) port: u8,
    pub(super) gid_index: u8,
    pub(super) pkey_index: u16,
    pub(super) qkey: u32,
    pub(super) service_level: u8,
    pub(super) send_depth: u32,
    pub(super) recv_depth: u32,
    pub(super) inline: u32,
}

type Refused = (&'static str, io::Error);

impl Setup {
    /// A queue pair in the reset state, and the bytes that it takes inline.
    pub(super) fn create(
        &self,
        domain: &Domain,
        send: &CompletionQueue,
        recv: &CompletionQueue,
    ) -> Result<(NonNull<ffi::ibv_qp>, usize), Refused> {
        let mut attributes = ffi::ibv_qp_init_attr {
            qp_context: ptr::null_mut(),
            send_cq: send.as_ptr(),
            recv_cq: recv.as_ptr(),
            srq: ptr::null_mut(),
            cap: ffi::ibv_qp_cap {
                max_send_wr: self.send_depth,
                max_recv_wr: self.recv_depth,
                max_send_sge: 2,
                max_recv_sge: 1,
                max_inline_data: self.inline,
            },
            qp_type: ffi::ibv_qp_type::IBV_QPT_UD,
            sq_sig_all: 0,
        };
        // SAFETY: objects of one device that exist, and a struct to read and write.
        let pair = unsafe { ffi::ibv_create_qp(domain.as_ptr(), &raw mut attributes) };
        let refused = || ("make a queue pair", io::Error::last_os_error());
        let pair = NonNull::new(pair).ok_or_else(refused)?;
        // A device may have more room than was asked for. A longer packet would take more cache
        // lines.
        Ok((pair, attributes.cap.max_inline_data.min(self.inline) as usize))
    }

    /// Takes a queue pair from the reset state to the one in which it receives and sends.
    pub(super) fn make_ready(&self, pair: NonNull<ffi::ibv_qp>) -> Result<(), Refused> {
        use ffi::ibv_qp_attr_mask as mask;
        let refused = |error| ("make its queue pair ready", error);
        let mut attributes = ffi::ibv_qp_attr {
            qp_state: ffi::ibv_qp_state::IBV_QPS_INIT,
            pkey_index: self.pkey_index,
            port_num: self.port,
            qkey: self.qkey,
            ..empty()
        };
        let all =
            mask::IBV_QP_STATE | mask::IBV_QP_PKEY_INDEX | mask::IBV_QP_PORT | mask::IBV_QP_QKEY;
        modify(pair, &mut attributes, all).map_err(refused)?;
        attributes.qp_state = ffi::ibv_qp_state::IBV_QPS_RTR;
        modify(pair, &mut attributes, mask::IBV_QP_STATE).map_err(refused)?;
        attributes.qp_state = ffi::ibv_qp_state::IBV_QPS_RTS;
        attributes.sq_psn = 0;
        modify(pair, &mut attributes, mask::IBV_QP_STATE | mask::IBV_QP_SQ_PSN).map_err(refused)
    }
}

fn empty() -> ffi::ibv_qp_attr {
    // SAFETY: the struct consists of numbers and a union of numbers, for which zero is valid.
    unsafe { mem::zeroed() }
}

fn modify(
    pair: NonNull<ffi::ibv_qp>,
    attributes: &mut ffi::ibv_qp_attr,
    mask: ffi::ibv_qp_attr_mask,
) -> io::Result<()> {
    // SAFETY: the queue pair exists; a struct to read.
    let error = unsafe { ffi::ibv_modify_qp(pair.as_ptr(), attributes, mask.0 as i32) };
    if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(error)) }
}

/// Brings the queue pair into the reset or the error state.
pub(super) fn modify_state(
    pair: NonNull<ffi::ibv_qp>,
    state: ffi::ibv_qp_state::Type,
) -> io::Result<()> {
    let mut attributes = ffi::ibv_qp_attr { qp_state: state, ..empty() };
    modify(pair, &mut attributes, ffi::ibv_qp_attr_mask::IBV_QP_STATE)
}

/// Whether the queue pair sends and receives.
pub(super) fn is_ready(pair: NonNull<ffi::ibv_qp>) -> bool {
    let (mut attributes, mut init) = (empty(), ffi::ibv_qp_init_attr::default());
    let mask = ffi::ibv_qp_attr_mask::IBV_QP_STATE.0 as i32;
    // SAFETY: the queue pair exists; two structs to write.
    let error =
        unsafe { ffi::ibv_query_qp(pair.as_ptr(), &raw mut attributes, mask, &raw mut init) };
    // If the device does not say, requests will.
    error != 0 || attributes.qp_state == ffi::ibv_qp_state::IBV_QPS_RTS
}

/// Destroys the queue pair, which must not be used afterwards.
pub(super) fn destroy(pair: NonNull<ffi::ibv_qp>) {
    // SAFETY: the callers have taken it out of `IbvDevice::pair`, or drop that.
    unsafe { ffi::ibv_destroy_qp(pair.as_ptr()) };
}
