//! The resolvers of simulated channels.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use erpc_core::client::Resolver;
use erpc_core::endpoint::sleep;
use erpc_core::time::Instant;

use super::oracle::{Shared, lock};
use crate::{Random, SimRoute};

/// The addresses that all resolvers know.
pub(super) struct Book {
    pub(super) routes: Vec<SimRoute>,
    /// Whether a server is listed.
    pub(super) listed: Vec<bool>,
    /// The faults have ended: all answers are right.
    pub(super) is_healed: bool,
    pub(super) random: Random,
}

/// The resolver of one channel.
pub(super) struct SimResolver {
    pub(super) channel: usize,
    pub(super) book: Rc<RefCell<Book>>,
    pub(super) oracle: Shared,
    pub(super) latency: Duration,
    pub(super) bad_answers: u32,
    pub(super) good_for: Option<Duration>,
}

impl Resolver<SimRoute> for SimResolver {
    async fn resolve(&mut self) -> io::Result<Vec<SimRoute>> {
        lock(&self.oracle).asked(self.channel);
        if !self.latency.is_zero() {
            sleep(self.latency).await;
        }
        let book = &mut *self.book.borrow_mut();
        let is_bad = !book.is_healed && book.random.percent(self.bad_answers);
        let answer = match is_bad {
            true if book.random.percent(50) => Err(io::ErrorKind::TimedOut.into()),
            true => Ok(Vec::new()),
            false => {
                let all = book.routes.iter().zip(&book.listed);
                Ok(all.filter(|(_, listed)| **listed).map(|(route, _)| *route).collect())
            }
        };
        lock(&self.oracle).resolved(self.channel, answer.is_ok() && !is_bad);
        answer
    }

    fn good_for(&self) -> Option<Duration> {
        self.good_for
    }
}

/// The queries of a channel's resolver.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Queries {
    pub(super) count: u64,
    /// When the last query began.
    pub(super) begun: Instant,
    /// When the last query ended; `None` before that and while a query runs.
    pub(super) ended: Option<Instant>,
    /// When the resolver first told servers.
    pub(super) known: Option<Instant>,
}
