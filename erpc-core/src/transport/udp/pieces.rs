//! The memory of staged packets.

use super::run::Run;
use super::tx::RUNS;
use crate::wire::PADDING;

/// The memory of the staged packets: pieces in the staging area or in held msgbufs, and padding.
pub(super) struct Pieces {
    /// In the order of the packets, which is the order of the runs unless `is_mixed`.
    list: Vec<Piece>,
    /// The same in the order of the runs, with the padding.
    pub(super) sorted: Vec<libc::iovec>,
    /// Whether a packet has joined another run than the newest, or a run is padded.
    pub(super) is_mixed: bool,
}

#[derive(Clone, Copy)]
struct Piece {
    vector: libc::iovec,
    run: u32,
    /// The length of the packet that ends with this piece; 0 if none does, or if it has no place for
    /// padding.
    ends: u32,
}

// SAFETY: a piece lies in the staging area, in the static `PADDING`, or in a msgbuf to which the queue
// holds a reference (`UdpTx::held`) as long as the piece is staged. Msgbufs can be read from any thread.
// The kernel reads `sorted` only in `Headers::send`, and `Pieces::sort` sets it before each such call.
unsafe impl Send for Pieces {}

impl Pieces {
    /// Room for this many pieces.
    pub(super) fn with_capacity(pieces: usize) -> Self {
        let (list, sorted) = (Vec::with_capacity(pieces), Vec::with_capacity(pieces));
        Self { list, sorted, is_mixed: false }
    }

    /// Adds memory to a run. Extends the piece before, if that ends where `bytes` begin and is of
    /// the same run. `ends`: the length of the packet if the memory is its end, otherwise 0.
    #[inline]
    pub(super) fn add(&mut self, run: usize, bytes: &[u8], ends: usize, runs: &mut [Run; RUNS]) {
        let base = bytes.as_ptr().cast_mut();
        let is_padded = runs[run].is_padded();
        if let Some(Piece { vector, run: of, ends: last }) = self.list.last_mut()
            && *of as usize == run
            && vector.iov_base.cast::<u8>().wrapping_add(vector.iov_len) == base
            && !is_padded
        {
            vector.iov_len += bytes.len();
            *last = ends as u32;
            return;
        }
        let vector = libc::iovec { iov_base: base.cast(), iov_len: bytes.len() };
        self.list.push(Piece { vector, run: run as u32, ends: ends as u32 });
        runs[run].pieces += 1 + u32::from(is_padded && ends > 0);
    }

    /// The first piece.
    #[inline]
    pub(super) fn first(&self) -> Option<libc::iovec> {
        self.list.first().map(|piece| piece.vector)
    }

    /// Brings the pieces into the order of the runs.
    pub(super) fn sort(&mut self, runs: &mut [Run]) {
        let mut first = 0;
        for run in &mut *runs {
            run.first = first;
            first += run.pieces;
        }
        self.sorted.clear();
        if !self.is_mixed {
            self.sorted.extend(self.list.iter().map(|piece| piece.vector));
            return;
        }
        let nothing = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        self.sorted.resize(first as usize, nothing);
        let mut next: [u32; RUNS] = [0; RUNS];
        next.iter_mut().zip(&*runs).for_each(|(next, run)| *next = run.first);
        for piece in &self.list {
            let (at, run) = (&mut next[piece.run as usize], &runs[piece.run as usize]);
            self.sorted[*at as usize] = piece.vector;
            *at += 1;
            if run.is_padded() && piece.ends > 0 {
                self.sorted[*at as usize] = padding(run.segment - piece.ends);
                *at += 1;
            }
        }
        debug_assert!(next.iter().zip(&*runs).all(|(next, run)| *next == run.first + run.pieces));
        // The last packet of a run may be shorter than the others.
        for run in runs.iter_mut().filter(|run| run.is_padded()) {
            let last = &mut self.sorted[(run.first + run.pieces - 1) as usize];
            run.bytes = run.segment * run.packets - last.iov_len as u32;
            last.iov_len = 0;
        }
    }

    pub(super) fn clear(&mut self) {
        self.list.clear();
        self.is_mixed = false;
    }
}

/// A piece of this many bytes of padding.
fn padding(bytes: u32) -> libc::iovec {
    let bytes = &PADDING[..bytes as usize];
    libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
}
