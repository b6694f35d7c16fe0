//! Requests for methods with a burst hook, which wait for the end of their burst.
//!
//! The packets of a burst are handled one after the other. A request for a method without a hook
//! runs at once. A request for a method with a hook is held until the last packet of the burst has
//! been handled; then the hooks run, each once, and after them the handlers, in the order of
//! arrival. A held request borrows from its packet in the end, as every dispatched request does: it
//! is copied no more than others.
//!
//! A held request counts as executing for the protocol, like one whose handler is a task. If its
//! caller cancels it in the same burst, it does not reach its handler. If its session ends in the
//! same burst, the notice of that follows after the burst, and ends what the handler has begun.

use std::cell::{Cell, RefCell};

use super::methods::Methods;
use super::requests::Requests;
use crate::event_loop::{BurstEnd, Context, HeldRequest};
use crate::protocol::{Request, RequestHandle};
use crate::service::Gathered;
use crate::transport::{MAX_BURST, Transport};
use crate::wire::extension::Extension;

/// The held requests of the current burst. Empty between two bursts.
pub(super) struct HeldRequests<R> {
    /// In the order of arrival. Keeps its capacity, so that holding does not allocate.
    waiting: RefCell<Vec<Waiting<R>>>,
    /// Whether there are any.
    any: Cell<bool>,
}

/// A held request.
struct Waiting<R> {
    /// The method's index among the server's methods.
    method: usize,
    request: HeldRequest<R>,
    /// The hook's note for the handler.
    note: Cell<Option<u64>>,
}

impl<R> Default for HeldRequests<R> {
    fn default() -> Self {
        Self { waiting: RefCell::default(), any: Cell::new(false) }
    }
}

impl<R> HeldRequests<R> {
    /// Holds a request for the method with this index.
    #[inline(never)]
    pub(super) fn hold(&self, method: usize, request: Request<'_, R>) {
        self.any.set(true);
        let mut waiting = self.waiting.borrow_mut();
        if waiting.len() == waiting.capacity() {
            waiting.reserve(MAX_BURST);
        }
        // Tells the compiler that `push` cannot panic, so the fields go to their places one by one.
        // Else it builds the value on the stack, and copies it with loads that are wider than the
        // stores just before them, for which the core must wait.
        assert!(waiting.len() < waiting.capacity(), "room was reserved");
        let request = HeldRequest::new(request);
        waiting.push(Waiting { method, request, note: Cell::new(None) });
    }

    /// Takes out the held request of this call, if there is one.
    pub(super) fn take_out(&self, call: RequestHandle) -> Option<HeldRequest<R>> {
        let mut waiting = self.waiting.borrow_mut();
        let at = waiting.iter().position(|waiting| waiting.request.handle() == call)?;
        Some(waiting.remove(at).request)
    }
}

impl<T: Transport> Requests<T> {
    /// Whether requests wait for the end of the burst.
    #[inline(always)]
    pub(crate) fn holds(&self) -> bool {
        self.held.any.get()
    }

    /// Runs the hooks of the methods of which requests are held, then the handlers. `after` runs
    /// after the hooks and after each handler.
    pub(crate) fn release_held(
        &self,
        burst: &mut BurstEnd<'_, '_, T>,
        after: impl Fn(&mut Context<'_, T>),
    ) {
        self.held.any.set(false);
        let Some(methods) = self.methods.get() else { return };
        let mut waiting = self.held.waiting.take();
        // Most bursts are small, and the list of a large one takes long to clear.
        match waiting.len() {
            0..=FEW => run_hooks::<T, FEW>(methods, burst, &waiting),
            _ => run_hooks::<T, MAX_BURST>(methods, burst, &waiting),
        }
        after(&mut burst.context());
        for Waiting { method, request, note } in waiting.drain(..) {
            let Some(entry) = methods.routes.entry(method) else { continue };
            burst.release(request, |cx, request| {
                self.noted_request(cx, (methods, entry), request, note.get());
                after(cx);
            });
        }
        self.held.waiting.replace(waiting);
    }
}

/// Requests of a small burst.
const FEW: usize = 8;

/// Runs the hook of each method once, with all waiting requests for this method, which are at most
/// `N`. A packet completes at most one request, so they are at most [`MAX_BURST`].
fn run_hooks<T: Transport, const N: usize>(
    methods: &Methods,
    burst: &mut BurstEnd<'_, '_, T>,
    waiting: &[Waiting<T::Route>],
) {
    let mut gathered = [Gathered::UNSEEN; N];
    for (gathered, waiting) in gathered.iter_mut().zip(waiting) {
        *gathered = gather(waiting, burst.message(&waiting.request));
    }
    let gathered = &gathered[..waiting.len()];
    for (index, request) in gathered.iter().enumerate() {
        let is_first = gathered[..index].iter().all(|other| other.method != request.method);
        if is_first && let Some(entry) = request.method.and_then(|at| methods.routes.entry(at)) {
            entry.run_hook(gathered);
        }
    }
}

/// The request as hooks see it: without its extension. A request whose extension is malformed, or
/// belongs to a stream, does not reach its handler, so no hook sees it.
#[inline]
fn gather<'m, R>(waiting: &'m Waiting<R>, message: &'m [u8]) -> Gathered<'m> {
    let (method, note) = (Some(waiting.method), Some(&waiting.note));
    if !waiting.request.is_extended() {
        return Gathered { message, method, note };
    }
    match Extension::split(message) {
        Ok((extension, message)) if extension.op() == 0 => Gathered { message, method, note },
        _ => Gathered::UNSEEN,
    }
}
