//! Transactions from other threads.

use std::fmt;

use erpc::{Handle, Transport, Udp};
use futures_channel::oneshot;

use super::{Node, Transaction};
use crate::transaction::{Abort, Limits, Reason, TransactError};

/// Runs transactions on a node from any thread, for example in tasks of tokio. Cheap to clone.
pub struct NodeHandle<T: Transport = Udp> {
    handle: Handle<T>,
}

impl<T: Transport> Node<T> {
    /// A handle for other threads. It is of the node that was opened last on the endpoint.
    #[must_use]
    pub fn handle(&self) -> NodeHandle<T> {
        NodeHandle { handle: self.inner.handle.clone() }
    }
}

impl<T: Transport> NodeHandle<T> {
    /// Runs a transaction on the node's thread: the closure and its futures run there. Works in each
    /// runtime. If the future is dropped, the transaction goes on.
    ///
    /// # Errors
    ///
    /// As [`Node::transact`]; also [`Reason::Disconnected`] if the node's endpoint has ended or has
    /// too many jobs, and `Unknown` if it ends meanwhile.
    pub async fn transact<R: Send + 'static>(
        &self,
        body: impl AsyncFn(Transaction<T>) -> Result<R, Abort> + Send + 'static,
    ) -> Result<R, TransactError> {
        self.transact_within(Limits::new(), body).await
    }

    /// Runs a transaction within limits. Otherwise like [`transact`](Self::transact).
    ///
    /// # Errors
    ///
    /// As `transact`.
    pub async fn transact_within<R: Send + 'static>(
        &self,
        limits: Limits,
        body: impl AsyncFn(Transaction<T>) -> Result<R, Abort> + Send + 'static,
    ) -> Result<R, TransactError> {
        let (tell, told) = oneshot::channel();
        let submitted = self.handle.submit(move |endpoint| {
            let node = Node::on(endpoint);
            endpoint.spawn(async move {
                let result = match node {
                    Some(node) => node.transact_within(limits, body).await,
                    None => Err(disconnected("the node is gone")),
                };
                // Without a receiver, the caller does not want to know.
                let _unwanted = tell.send(result);
            });
        });
        submitted.map_err(|error| disconnected(&error.to_string()))?;
        told.await.unwrap_or(Err(TransactError::Unknown { transaction: None, node: None }))
    }
}

fn disconnected(why: &str) -> TransactError {
    TransactError::Aborted(Reason::Disconnected(why.to_owned()))
}

impl<T: Transport> Clone for NodeHandle<T> {
    fn clone(&self) -> Self {
        Self { handle: self.handle.clone() }
    }
}

impl<T: Transport> fmt::Debug for NodeHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NodeHandle")
    }
}
