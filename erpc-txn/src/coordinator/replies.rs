//! The replies to messages that were sent together.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use erpc::{Call, CallError, Transport};
use smallvec::SmallVec;

/// Calls, with what their sender keeps of each, until all replies are here.
pub(super) struct Replies<K, M, T: Transport>(SmallVec<[(K, Reply<M, T>); 2]>);

enum Reply<M, T: Transport> {
    Awaited(Call<M, T>),
    Here(Result<M, CallError>),
}

impl<K, M: Unpin + 'static, T: Transport> Replies<K, M, T> {
    pub(super) fn new() -> Self {
        Self(SmallVec::new())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn push(&mut self, kept: K, call: Call<M, T>) {
        self.0.push((kept, Reply::Awaited(call)));
    }

    /// Waits until all replies are here.
    pub(super) async fn arrive(&mut self) {
        poll_fn(|cx| {
            let mut all = Poll::Ready(());
            for (_, reply) in &mut self.0 {
                if let Reply::Awaited(call) = reply {
                    match Pin::new(call).poll(cx) {
                        Poll::Ready(result) => *reply = Reply::Here(result),
                        Poll::Pending => all = Poll::Pending,
                    }
                }
            }
            all
        })
        .await;
    }

    /// The replies, after [`arrive`](Self::arrive), in the order of the calls.
    pub(super) fn take(self) -> impl Iterator<Item = (K, Result<M, CallError>)> {
        self.0.into_iter().filter_map(|(kept, reply)| match reply {
            Reply::Here(result) => Some((kept, result)),
            Reply::Awaited(_) => None,
        })
    }
}
