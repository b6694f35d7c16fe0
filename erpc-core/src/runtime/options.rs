//! What a call is to be like.

use std::time::Duration;

use super::retry::RetryPolicy;

/// Settings of calls: how long they may take, and what is done when they fail. What is not set is the
/// method's or the channel's own default.
///
/// ```
/// use std::time::Duration;
/// use erpc_core::runtime::CallOptions;
///
/// let options = CallOptions::new().deadline(Duration::from_millis(5));
/// ```
#[derive(Clone, Default, Debug)]
pub struct CallOptions {
    time: TimeLimit,
    retry: Option<RetryPolicy>,
    wait: bool,
}

/// How long a call may take.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum TimeLimit {
    /// What the method says.
    #[default]
    OfMethod,
    None,
    Within(Duration),
}

impl CallOptions {
    /// Options that leave everything at its default.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends a call that takes longer, from the moment it is made; instead of the method's own limit. The
    /// server is told how much of the time is left.
    #[must_use]
    pub const fn deadline(mut self, within: Duration) -> Self {
        self.time = TimeLimit::Within(within);
        self
    }

    /// Lets a call take as long as it likes, whatever the method says.
    #[must_use]
    pub const fn no_deadline(mut self) -> Self {
        self.time = TimeLimit::None;
        self
    }

    /// What to do about calls that fail. Default: the channel's policy, which is by default to retry
    /// nothing. Of no effect on calls of a [`Session`](super::Session) without a channel.
    #[must_use]
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.retry = Some(policy);
        self
    }

    /// Lets a call wait, until its deadline, for a server that can be reached. Default: a call fails
    /// at once if the channel has tried all servers and reached none.
    #[must_use]
    pub const fn wait_for_ready(mut self) -> Self {
        self.wait = true;
        self
    }
}
