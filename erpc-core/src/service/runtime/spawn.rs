//! The runtime that runs handlers of a server.

use std::pin::Pin;

/// A future that may run on any thread.
pub(crate) type SendFuture<O> = Pin<Box<dyn Future<Output = O> + Send>>;

/// A runtime that polls tasks on its own threads.
pub(crate) trait Runtime: Send + Sync {
    /// Starts a task. If the runtime has ended, drops it.
    fn spawn(&self, task: SendFuture<()>);
}

#[cfg(feature = "tokio")]
impl Runtime for ::tokio::runtime::Handle {
    fn spawn(&self, task: SendFuture<()>) {
        drop(self.spawn(task));
    }
}
