//! Burst hooks, which see requests before their handlers run.
//!
//! The first request of a burst for a method with a hook looks ahead at the packets that follow in
//! the burst. The hooks get the requests that these will bring together with the first one, each
//! hook once. Then each request runs its handler when its packet is received, as without a hook,
//! with the note that the hook has left for it.
//!
//! The look ahead foresees nearly every request of one packet: those that are the next of their
//! slots. The hook of any other request runs for it alone, just before its handler. So each hook
//! sees every request before its handler does, and methods without a hook pay nothing.

use std::cell::Cell;

use super::methods::Methods;
use super::requests::Requests;
use crate::event_loop::Context;
use crate::mutants::mutant;
use crate::service::{Gathered, RouteEntry};
use crate::transport::{MAX_BURST, Transport};
use crate::wire::extension::Extension;

/// What the hooks have left for the handlers of the current burst.
pub(super) struct Notes {
    /// Bit `n` is set if a hook has seen the request in packet `n` of the burst.
    seen: Cell<u64>,
    /// The notes of the packets that hooks have seen.
    notes: [Cell<Option<u64>>; MAX_BURST],
}

const _: () = assert!(MAX_BURST <= u64::BITS as usize);

impl Default for Notes {
    fn default() -> Self {
        Self { seen: Cell::new(0), notes: [const { Cell::new(None) }; MAX_BURST] }
    }
}

impl Notes {
    #[inline(always)]
    pub(super) fn clear(&self) {
        if !mutant!(NotesKept) {
            self.seen.set(0);
        }
    }

    /// Whether no request of the burst has been seen.
    #[inline]
    fn is_empty(&self) -> bool {
        self.seen.get() == 0
    }

    #[inline]
    fn is_seen(&self, packet: usize) -> bool {
        self.seen.get() >> packet & 1 != 0
    }

    /// A hook will see the request in this packet. Returns the place of its note.
    #[inline]
    fn see(&self, packet: usize) -> &Cell<Option<u64>> {
        self.seen.set(self.seen.get() | 1 << packet);
        self.notes[packet].set(None);
        &self.notes[packet]
    }
}

/// Packets of a small burst.
const FEW: usize = 8;

impl<T: Transport> Requests<T> {
    /// The hook's note for the request with this body, for whose method `entry` there is a hook. If
    /// the hook has not seen the request, it runs now; if it is the first of the burst, all hooks
    /// look ahead.
    #[inline]
    pub(super) fn note(
        &self,
        cx: &Context<'_, T>,
        (methods, entry): (&Methods, &RouteEntry),
        body: &[u8],
        extended: bool,
    ) -> Option<u64> {
        let packet = cx.packet();
        if !self.notes.is_seen(packet) {
            // A second look would find nothing new.
            let end = if self.notes.is_empty() { cx.packets() } else { packet + 1 };
            // Most bursts are small, and the list of a large one takes long to clear.
            match end - packet {
                0..=FEW => self.look_ahead::<FEW>(cx, end, (methods, entry), body, extended),
                _ => self.look_ahead::<MAX_BURST>(cx, end, (methods, entry), body, extended),
            }
        }
        self.notes.notes[packet].get()
    }

    /// Runs the hooks on this request and on those of the packets that follow in the burst, up to
    /// `end`: at most `N` in all.
    #[inline(never)]
    fn look_ahead<const N: usize>(
        &self,
        cx: &Context<'_, T>,
        end: usize,
        (methods, entry): (&Methods, &RouteEntry),
        body: &[u8],
        extended: bool,
    ) {
        let packet = cx.packet();
        let mut gathered = [Gathered::UNSEEN; N];
        let note = self.notes.see(packet);
        gathered[0] = gather(entry, body, extended, note);
        let (first, mut len) = (entry.index(), 1);
        // Most bursts have requests for one method: it is looked up once, and only its hook runs.
        let mut latest = (0, None);
        let mut is_mixed = gathered[0].method.is_none();
        for packet in packet + 1..end {
            let Some(request) = cx.upcoming(packet) else { continue };
            if request.method != latest.0 {
                let entry = methods.routes.get(request.method).filter(|entry| entry.has_hook());
                latest = (request.method, entry);
            }
            let Some(entry) = latest.1 else { continue };
            is_mixed |= entry.index() != first;
            let note = self.notes.see(packet);
            gathered[len] = gather(entry, request.body, request.extended, note);
            len += 1;
        }
        let gathered = &gathered[..len];
        let runs = if is_mixed { len } else { 1 };
        for (index, request) in gathered[..runs].iter().enumerate() {
            let is_first = gathered[..index].iter().all(|other| other.method != request.method);
            if is_first && let Some(entry) = request.method.and_then(|at| methods.routes.entry(at))
            {
                entry.run_hook(gathered);
            }
        }
    }
}

/// The request as hooks see it: without its extension. A request whose extension is malformed, or
/// belongs to a stream, does not reach its handler, so no hook sees it.
#[inline]
fn gather<'m>(
    entry: &RouteEntry,
    body: &'m [u8],
    extended: bool,
    note: &'m Cell<Option<u64>>,
) -> Gathered<'m> {
    let (method, note) = (Some(entry.index()), Some(note));
    if !extended {
        return Gathered { message: body, method, note };
    }
    match Extension::split(body) {
        Ok((extension, message)) if extension.op() == 0 => Gathered { message, method, note },
        _ => Gathered::UNSEEN,
    }
}
