//! Transactions of programs outside of the cluster.
//!
//! A [`Cluster`] ships each step of a transaction to a member, which coordinates it. The program never
//! holds a lock: if it dies, the member aborts. The closure is the same as on a node, where it costs
//! no extra round trip.
#![forbid(unsafe_code)]

mod attempt;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

pub use attempt::Shipped;
use erpc::raw::Instant;
use erpc::{CallError, Channel, Transport, Udp};

use crate::proto::{self, LocalGatewayClient};
use crate::transaction::attempts::{self, Coordinate, now_at};
use crate::transaction::{Abort, Limits, TransactError};

/// A transaction of a program outside of the cluster.
pub type Transaction<T = Udp> = crate::transaction::Transaction<Shipped<T>>;

/// A program's way to a cluster. Clones are the same.
pub struct Cluster<T: Transport = Udp> {
    inner: Rc<Inner<T>>,
}

struct Inner<T: Transport> {
    client: LocalGatewayClient<T>,
    /// The longest value of each table.
    tables: BTreeMap<u16, usize>,
    random: Cell<u64>,
}

impl<T: Transport> Cluster<T> {
    /// Reaches a cluster over a channel to some of its members, all of which may coordinate. Waits
    /// until one of them describes the cluster.
    ///
    /// # Errors
    ///
    /// If no member can be reached.
    pub async fn connect(channel: Channel<T>) -> Result<Self, CallError> {
        let client = LocalGatewayClient::new(channel);
        let description = client.describe(proto::DescribeRequest {}).await?;
        let table = |table: &proto::TableInfo| {
            Some((u16::try_from(table.id).ok()?, usize::try_from(table.max_value).ok()?))
        };
        let tables = description.tables.iter().filter_map(table).collect();
        // Programs that meet the same conflicts must not pause for the same times.
        let random = now_at::<T>().as_nanos() | 1;
        Ok(Self { inner: Rc::new(Inner { client, tables, random: Cell::new(random) }) })
    }

    /// Runs a transaction, with the default [`Limits`]. The closure runs once per attempt, perhaps
    /// with other members.
    ///
    /// # Errors
    ///
    /// [`TransactError`] if the transaction was aborted, or its outcome is unknown.
    ///
    /// # Panics
    ///
    /// Outside of the loop of the channel's endpoint.
    pub async fn transact<R>(
        &self,
        body: impl AsyncFn(Transaction<T>) -> Result<R, Abort>,
    ) -> Result<R, TransactError> {
        self.transact_within(Limits::new(), body).await
    }

    /// Runs a transaction within limits. Otherwise like [`transact`](Self::transact).
    ///
    /// # Errors
    ///
    /// As `transact`.
    ///
    /// # Panics
    ///
    /// As `transact`.
    pub async fn transact_within<R>(
        &self,
        limits: Limits,
        body: impl AsyncFn(Transaction<T>) -> Result<R, Abort>,
    ) -> Result<R, TransactError> {
        attempts::run::<T, _, _>(self, limits, body).await
    }

    /// What a member says of the cluster and of itself.
    ///
    /// # Errors
    ///
    /// If no member can be reached.
    pub async fn describe(&self) -> Result<proto::Description, CallError> {
        self.inner.client.describe(proto::DescribeRequest {}).await
    }
}

impl<T: Transport> Coordinate for Cluster<T> {
    type Backend = Shipped<T>;

    fn begin(&self, now: Instant, deadline: Instant) -> Transaction<T> {
        let attempt = Shipped::new(Rc::clone(&self.inner), now, deadline);
        Transaction { attempt: Rc::new(attempt) }
    }

    async fn commit(&self, attempt: &Shipped<T>) -> Result<(), TransactError> {
        attempt.commit().await
    }

    async fn release(&self, attempt: &Shipped<T>) {
        attempt.give_up();
    }

    fn give_up(&self, attempt: &Shipped<T>) {
        attempt.give_up();
    }

    fn random(&self, bound: u64) -> u64 {
        crate::random::below(&self.inner.random, bound)
    }
}

impl<T: Transport> Clone for Cluster<T> {
    fn clone(&self) -> Self {
        Self { inner: Rc::clone(&self.inner) }
    }
}

impl<T: Transport> fmt::Debug for Cluster<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("tables", &self.inner.tables).finish_non_exhaustive()
    }
}
