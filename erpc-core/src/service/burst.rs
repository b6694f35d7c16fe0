//! Burst hooks: a service sees all requests of a receive burst before their handlers run.

use std::cell::Cell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::info::MethodInfo;
use super::panics::handler_panicked;
use super::{Codec, DecodeError};

/// Requests for one method that arrived in one receive burst, as the method's burst hook gets them,
/// before their handlers run.
///
/// A burst has at most [`MAX_BURST`](crate::transport::MAX_BURST) packets, and so at most as many
/// requests. A server under light load mostly gets bursts of one request; the more calls wait, the
/// larger the bursts.
///
/// A hook is for work that is cheaper for several requests together: it
/// [prefetches](crate::memory::prefetch) what the handlers will read, so that the cache misses of all
/// requests overlap, or it looks up all keys in one pass and leaves each result as a
/// [note](BurstRequest::set_note) for the handler. It is a function of the service, runs in the
/// event loop whatever the method's mode is, and must not block.
///
/// `V` is the type of message that a plain handler of the method gets: a reference with a fixed
/// layout, a view with a borrowed message, otherwise the message. A message of the last kind is
/// decoded once for the hook, and again for its handler.
///
/// ```
/// use erpc_core::memory::prefetch;
/// use erpc_core::service::{Burst, Method, Mode, Request, Response, Routes};
/// use erpc_core::status::Status;
/// use std::sync::Arc;
///
/// struct Table(Vec<[u64; 8]>);
///
/// impl Table {
///     fn get(&self, request: Request<'_, u32>) -> Result<Response<u64>, Status> {
///         let row = self.0.get(*request.message() as usize);
///         row.map(|row| Response::new(row[0])).ok_or_else(|| Status::not_found("no such row"))
///     }
///
///     fn look_ahead(&self, burst: Burst<'_, u32>) {
///         for request in &burst {
///             self.0.get(*request.message() as usize).map(prefetch);
///         }
///     }
/// }
///
/// const GET: Method<u32, u64> = Method::new("table.v1.Table/Get");
/// let table = Arc::new(Table(vec![[7; 8]; 1_000]));
/// let mut routes = Routes::new();
/// routes.unary(GET, Mode::Dispatch, &table, Table::get)?;
/// routes.on_burst(GET, &table, Table::look_ahead);
/// # Ok::<(), erpc_core::service::MethodCollision>(())
/// ```
pub struct Burst<'a, V> {
    requests: MethodBurst<'a>,
    decode: fn(&'a [u8]) -> Result<V, DecodeError>,
}

/// One request of a [`Burst`].
pub struct BurstRequest<'a, V> {
    message: V,
    note: &'a Cell<Option<u64>>,
}

impl<'a, V> Burst<'a, V> {
    /// The requests, in the order of their arrival.
    ///
    /// The hook has seen each request when its handler runs. The requests of one packet come together.
    /// A request of several packets comes when its last packet arrives: alone, unless no hook has
    /// run in this burst yet. Requests that are too large for the method or cannot be decoded are
    /// left out.
    ///
    /// Not every request that the hook sees reaches its handler. An interceptor may refuse it, or a
    /// server that shuts down. Its deadline may have passed. Its packet may be damaged, may repeat
    /// another one, or may not come from the client: it is not verified yet.
    pub fn iter(&self) -> BurstRequests<'a, V> {
        let Self { requests: MethodBurst { gathered, method, max_request }, decode } = *self;
        BurstRequests { gathered: gathered.iter(), method, max_request, decode }
    }
}

impl<'a, V> IntoIterator for &Burst<'a, V> {
    type Item = BurstRequest<'a, V>;
    type IntoIter = BurstRequests<'a, V>;

    fn into_iter(self) -> BurstRequests<'a, V> {
        self.iter()
    }
}

impl<'a, V> IntoIterator for Burst<'a, V> {
    type Item = BurstRequest<'a, V>;
    type IntoIter = BurstRequests<'a, V>;

    fn into_iter(self) -> BurstRequests<'a, V> {
        self.iter()
    }
}

impl<V> fmt::Debug for Burst<'_, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Burst").finish_non_exhaustive()
    }
}

impl<V> BurstRequest<'_, V> {
    /// The message, decoded or as a view.
    #[must_use]
    #[inline]
    pub fn message(&self) -> &V {
        &self.message
    }

    /// Leaves a number for the request's handler, such as the place of what the handler will read,
    /// which [`Request::note`](super::Request::note) returns.
    ///
    /// Other handlers of the burst run between the hook and this request's handler, also those of
    /// methods without a hook. They may change what the note refers to. So the handler must check
    /// the place before it trusts it.
    ///
    /// Only dispatch handlers get notes: other handlers run later than the burst, when the place may
    /// hold something else.
    #[inline]
    pub fn set_note(&self, note: u64) {
        self.note.set(Some(note));
    }
}

impl<V: fmt::Debug> fmt::Debug for BurstRequest<'_, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BurstRequest")
            .field("message", &self.message)
            .field("note", &self.note.get())
            .finish()
    }
}

/// The requests of a [`Burst`], one after the other. A message is decoded when its turn comes.
pub struct BurstRequests<'a, V> {
    gathered: std::slice::Iter<'a, Gathered<'a>>,
    method: usize,
    max_request: u32,
    decode: fn(&'a [u8]) -> Result<V, DecodeError>,
}

impl<'a, V> Iterator for BurstRequests<'a, V> {
    type Item = BurstRequest<'a, V>;

    #[inline]
    fn next(&mut self) -> Option<BurstRequest<'a, V>> {
        let Self { gathered, method, max_request, decode } = self;
        gathered.find_map(|request| {
            let fits =
                request.method == Some(*method) && request.message.len() <= *max_request as usize;
            let message = fits.then(|| decode(request.message).ok())??;
            Some(BurstRequest { message, note: request.note? })
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.gathered.len()))
    }
}

impl<V> fmt::Debug for BurstRequests<'_, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BurstRequests").finish_non_exhaustive()
    }
}

/// A request of a burst, for hooks of any method.
pub(crate) struct Gathered<'a> {
    /// The message, without an extension.
    pub(crate) message: &'a [u8],
    /// The method's index among the server's methods; `None` if no hook is to see the request.
    pub(crate) method: Option<usize>,
    /// The place of the hook's note for the handler; `None` if `method` is.
    pub(crate) note: Option<&'a Cell<Option<u64>>>,
}

impl Gathered<'_> {
    /// A request that no hook is to see.
    pub(crate) const UNSEEN: Self = Self { message: &[], method: None, note: None };
}

/// The requests of a burst for one method.
#[derive(Clone, Copy)]
pub(super) struct MethodBurst<'a> {
    gathered: &'a [Gathered<'a>],
    method: usize,
    max_request: u32,
}

/// A type-erased burst hook.
pub(super) type ErasedHook = dyn Fn(MethodBurst<'_>) + Send + Sync;

/// Wraps a typed burst hook into an [`ErasedHook`].
pub(super) fn hooking<S, Req, C>(
    service: Arc<S>,
    hook: impl for<'a> Fn(&S, Burst<'a, C::View<'a>>) + Send + Sync + 'static,
) -> Arc<ErasedHook>
where
    S: Send + Sync + 'static,
    C: Codec<Req>,
{
    Arc::new(move |requests: MethodBurst<'_>| {
        hook(&service, Burst { requests, decode: C::view });
    })
}

/// Runs the hook of the method with this index. Does not unwind: a panic goes to the log, and the
/// handlers run as if the hook had returned.
pub(super) fn run_hook(
    hook: &ErasedHook,
    info: &MethodInfo,
    method: usize,
    gathered: &[Gathered<'_>],
) {
    let requests = MethodBurst { gathered, method, max_request: info.max_request() };
    // As with handlers, the user has to keep the service consistent after a panic.
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| hook(requests))) {
        let _ = handler_panicked(info.full_name(), &*panic);
    }
}
