//! The functions of the data path: chains of requests, and completions.

use std::io;
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};

use ibverbs_sys as ffi;

use super::open::CompletionQueue;
use crate::transport::verbs::device::{Completion, Piece, RecvRequest, SendRequest};

/// Requests that are posted with one call. The sending half posts at most as many.
const CHAIN: usize = 64;

fn piece(piece: &Piece) -> ffi::ibv_sge {
    ffi::ibv_sge {
        addr: piece.start.expose_provenance() as u64,
        length: piece.len,
        lkey: piece.lkey,
    }
}

fn gone() -> io::Error {
    io::Error::from_raw_os_error(libc::ENODEV)
}

/// The request after place `index` of a chain; null at its end.
fn next<T>(first: *mut T, index: usize, len: usize) -> *mut T {
    if index + 1 < len { first.wrapping_add(index + 1) } else { ptr::null_mut() }
}

/// How many requests of a chain were posted before `bad`.
fn posted<T>(chain: *const T, bad: *const T, len: usize) -> usize {
    let bytes = bad.addr().wrapping_sub(chain.addr());
    (bytes / size_of::<T>()).min(len)
}

/// Posts buffers.
///
/// # Safety
/// As [`Device::post_recv`](crate::transport::verbs::Device::post_recv).
pub(super) unsafe fn recv(
    pair: Option<NonNull<ffi::ibv_qp>>,
    requests: &[RecvRequest],
) -> Result<(), (usize, io::Error)> {
    let pair = pair.ok_or_else(|| (0, gone()))?;
    // SAFETY: the queue pair exists, and its context too.
    let context = unsafe { pair.as_ref() }.context;
    // SAFETY: as above.
    let post = unsafe { (*context).ops.post_recv }.ok_or_else(|| (0, gone()))?;
    for (at, part) in requests.chunks(CHAIN).enumerate() {
        let mut pieces = [const { MaybeUninit::<ffi::ibv_sge>::uninit() }; CHAIN];
        let mut chain = [const { MaybeUninit::<ffi::ibv_recv_wr>::uninit() }; CHAIN];
        let lists = pieces.as_mut_ptr().cast::<ffi::ibv_sge>();
        let first = chain.as_mut_ptr().cast::<ffi::ibv_recv_wr>();
        for (index, request) in part.iter().enumerate() {
            let list = lists.wrapping_add(index);
            // SAFETY: place `index` of `pieces`; a part has at most `CHAIN` requests.
            unsafe { list.write(piece(&request.buffer)) };
            let next = next(first, index, part.len());
            let request = ffi::ibv_recv_wr { wr_id: request.id, next, sg_list: list, num_sge: 1 };
            // SAFETY: place `index` of `chain`.
            unsafe { first.wrapping_add(index).write(request) };
        }
        let mut bad = ptr::null_mut();
        // SAFETY: a chain of `part.len()` requests, each with one piece, which the function reads
        // before it returns. The caller promises that the buffers may be written.
        let error = unsafe { post(pair.as_ptr(), first, &raw mut bad) };
        if error != 0 {
            let done = at * CHAIN + posted(first, bad, part.len());
            return Err((done, io::Error::from_raw_os_error(error)));
        }
    }
    Ok(())
}

/// Posts datagrams.
///
/// # Safety
/// As [`Device::post_send`](crate::transport::verbs::Device::post_send).
pub(super) unsafe fn send(
    pair: Option<NonNull<ffi::ibv_qp>>,
    requests: &[SendRequest],
) -> Result<(), (usize, io::Error)> {
    let pair = pair.ok_or_else(|| (0, gone()))?;
    // SAFETY: the queue pair exists, and its context too.
    let context = unsafe { pair.as_ref() }.context;
    // SAFETY: as above.
    let post = unsafe { (*context).ops.post_send }.ok_or_else(|| (0, gone()))?;
    for (at, part) in requests.chunks(CHAIN).enumerate() {
        let mut pieces = [const { MaybeUninit::<[ffi::ibv_sge; 2]>::uninit() }; CHAIN];
        let mut chain = [const { MaybeUninit::<ffi::ibv_send_wr>::uninit() }; CHAIN];
        let lists = pieces.as_mut_ptr().cast::<[ffi::ibv_sge; 2]>();
        let first = chain.as_mut_ptr().cast::<ffi::ibv_send_wr>();
        for (index, request) in part.iter().enumerate() {
            let list = lists.wrapping_add(index);
            // SAFETY: place `index` of `pieces`; a part has at most `CHAIN` requests.
            unsafe { list.write(request.pieces.each_ref().map(piece)) };
            let request = work_request(request, list.cast(), next(first, index, part.len()));
            // SAFETY: place `index` of `chain`.
            unsafe { first.wrapping_add(index).write(request) };
        }
        let mut bad = ptr::null_mut();
        // SAFETY: a chain of `part.len()` requests with their pieces, which the function reads before
        // it returns. The caller promises that the pieces' memory is readable, and that handles
        // exist.
        let error = unsafe { post(pair.as_ptr(), first, &raw mut bad) };
        if error != 0 {
            let done = at * CHAIN + posted(first, bad, part.len());
            return Err((done, io::Error::from_raw_os_error(error)));
        }
    }
    Ok(())
}

fn work_request(
    request: &SendRequest,
    pieces: *mut ffi::ibv_sge,
    next: *mut ffi::ibv_send_wr,
) -> ffi::ibv_send_wr {
    use ffi::ibv_send_flags as flags;
    let flag = |is_set, flag: flags| if is_set { flag.0 } else { 0 };
    let opcode = match request.immediate {
        Some(_) => ffi::ibv_wr_opcode::IBV_WR_SEND_WITH_IMM,
        None => ffi::ibv_wr_opcode::IBV_WR_SEND,
    };
    ffi::ibv_send_wr {
        wr_id: request.id,
        next,
        sg_list: pieces,
        num_sge: 1 + i32::from(request.pieces[1].len > 0),
        opcode,
        send_flags: flag(request.inline, flags::IBV_SEND_INLINE)
            | flag(request.signaled, flags::IBV_SEND_SIGNALED),
        __bindgen_anon_1: ffi::ibv_send_wr__bindgen_ty_1 {
            imm_data: request.immediate.unwrap_or(0).to_be(),
        },
        wr: ffi::ibv_send_wr__bindgen_ty_2 {
            ud: ffi::ibv_send_wr__bindgen_ty_2__bindgen_ty_3 {
                ah: ptr::with_exposed_provenance_mut(request.host.0 as usize),
                remote_qpn: request.qpn,
                remote_qkey: request.qkey,
            },
        },
        ..ffi::ibv_send_wr::default()
    }
}

/// Takes completions.
pub(super) fn poll(queue: &CompletionQueue, into: &mut [Completion]) -> usize {
    let mut taken = [const { MaybeUninit::<ffi::ibv_wc>::uninit() }; CHAIN];
    let most = into.len().min(CHAIN);
    // SAFETY: the queue exists, and its context too.
    let context = unsafe { (*queue.as_ptr()).context };
    // SAFETY: as above.
    let Some(poll) = (unsafe { (*context).ops.poll_cq }) else { return 0 };
    // SAFETY: room for `most` completions.
    let count = unsafe { poll(queue.as_ptr(), most as i32, taken.as_mut_ptr().cast()) };
    // A negative number is an error of the queue, after which it has no completions.
    let count = usize::try_from(count).unwrap_or(0).min(most);
    for (completion, taken) in into.iter_mut().zip(&taken[..count]) {
        // SAFETY: the driver has written the first `count`.
        *completion = read(unsafe { taken.assume_init_ref() });
    }
    count
}

#[inline]
fn read(completion: &ffi::ibv_wc) -> Completion {
    let has = |flag: ffi::ibv_wc_flags| completion.wc_flags.0 & flag.0 != 0;
    let status = completion.error().map_or(0, |(status, _)| status);
    Completion {
        id: completion.wr_id(),
        status,
        len: completion.len() as u32,
        source_qpn: completion.src_qp,
        source_lid: completion.slid,
        has_grh: has(ffi::ibv_wc_flags::IBV_WC_GRH),
        immediate: has(ffi::ibv_wc_flags::IBV_WC_WITH_IMM)
            .then(|| u32::from_be(completion.imm_data)),
    }
}
