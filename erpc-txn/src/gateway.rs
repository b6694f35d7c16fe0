//! The service that coordinates transactions of programs outside of the cluster.
//!
//! A program's attempt is a stream. Its handler holds the [`Transaction`]: if the program dies or
//! gives up, the stream ends, the handler is dropped, and with it the transaction, which frees its
//! locks. So a program never holds a lock or a record itself.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use erpc::{Endpoint, Incoming, Outgoing, Request, Response, Status, Transport, Udp};

use crate::coordinator::{Abort, Node, Reason, TransactError, Transaction};
use crate::participant::{Access, Kind, Place};
use crate::proto::{self, Why};
use crate::steps;
use crate::transaction::Wanted;
use crate::transaction::attempts::{Coordinate, now_at};
use crate::transaction::sealed::Backend;

/// Serves outside programs at endpoints on which a [`Node`] was opened.
#[derive(Debug, erpc::Service)]
#[erpc(service = proto::Gateway)]
pub struct Gateway<T: Transport = Udp> {
    limits: GatewayLimits,
    running: Mutex<Running>,
    transport: PhantomData<fn(T)>,
}

/// The attempts that run now.
#[derive(Debug, Default)]
struct Running {
    /// Of each client that has one.
    by_client: HashMap<Option<SocketAddr>, usize>,
    all: usize,
}

/// What a member does at most for programs outside of the cluster, so that a faulty one does not hold
/// its locks and memory.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct GatewayLimits {
    /// The longest time of an attempt. A program that wants more gets this. Default: 1 minute, as people
    /// at a shell need.
    pub time: Duration,
    /// The most keys of an attempt. Default: 10,000.
    pub keys: usize,
    /// The most attempts of one client, an address and port, at the same time. Over a transport without
    /// such addresses, all clients are one. Default: 1,000.
    pub attempts: usize,
    /// The most attempts of all clients at the same time. Default: 10,000.
    pub all_attempts: usize,
    /// The most bytes of the values in the answer to one step. Default: 4 MiB, half of the longest
    /// message.
    pub bytes: usize,
}

impl Default for GatewayLimits {
    fn default() -> Self {
        Self {
            time: Duration::from_secs(60),
            keys: 10_000,
            attempts: 1000,
            all_attempts: 10_000,
            bytes: 4 << 20,
        }
    }
}

impl GatewayLimits {
    /// The default limits.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// With attempts of at most this time.
    #[must_use]
    pub fn time(mut self, time: Duration) -> Self {
        self.time = time;
        self
    }

    /// With at most this many keys of an attempt.
    #[must_use]
    pub fn keys(mut self, keys: usize) -> Self {
        self.keys = keys;
        self
    }

    /// With at most this many attempts of one client at the same time.
    #[must_use]
    pub fn attempts(mut self, attempts: usize) -> Self {
        self.attempts = attempts;
        self
    }

    /// With at most this many attempts of all clients at the same time.
    #[must_use]
    pub fn all_attempts(mut self, attempts: usize) -> Self {
        self.all_attempts = attempts;
        self
    }

    /// With at most this many bytes of values in the answer to one step.
    #[must_use]
    pub fn bytes(mut self, bytes: usize) -> Self {
        self.bytes = bytes;
        self
    }
}

/// An attempt of a client, which is counted.
struct Counted<'a, T: Transport> {
    gateway: &'a Gateway<T>,
    client: Option<SocketAddr>,
}

impl<T: Transport> Drop for Counted<'_, T> {
    fn drop(&mut self) {
        let mut running = self.gateway.running();
        running.all -= 1;
        if let Some(count) = running.by_client.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                running.by_client.remove(&self.client);
            }
        }
    }
}

impl<T: Transport> Gateway<T> {
    /// The service, with the default limits. All endpoints of a server may share it.
    #[must_use]
    pub fn new() -> Self {
        Self::with_limits(GatewayLimits::new())
    }

    /// The service with these limits.
    #[must_use]
    pub fn with_limits(limits: GatewayLimits) -> Self {
        Self { limits, running: Mutex::default(), transport: PhantomData }
    }

    /// Counts an attempt, unless the client has too many.
    fn count(&self, client: Option<SocketAddr>) -> Result<Counted<'_, T>, Status> {
        let mut running = self.running();
        let own = running.by_client.get(&client).copied().unwrap_or(0);
        if own >= self.limits.attempts {
            let why = format!("the client has {own} transactions at this member; run fewer");
            return Err(Status::resource_exhausted(why));
        }
        if running.all >= self.limits.all_attempts {
            let why =
                format!("clients have {} transactions at this member; try another", running.all);
            return Err(Status::resource_exhausted(why));
        }
        running.all += 1;
        running.by_client.insert(client, own + 1);
        Ok(Counted { gateway: self, client })
    }

    fn running(&self) -> MutexGuard<'_, Running> {
        // The counts have no invariant that a panic could break.
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn node(&self) -> Result<Node<T>, Status> {
        let found = Endpoint::<T>::current().and_then(|endpoint| Node::on(&endpoint));
        found.ok_or_else(|| Status::failed_precondition("no node was opened on this endpoint"))
    }
}

impl<T: Transport> Default for Gateway<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Transport> proto::Gateway for Gateway<T> {
    async fn run(
        &self,
        request: Request<'_, Incoming<proto::Step>>,
        outgoing: Outgoing<proto::StepReply>,
    ) -> Result<(), Status> {
        let _counted = self.count(request.peer())?;
        let mut incoming = request.into_message();
        let node = self.node()?;
        let Some(mut step) = incoming.next().await? else { return Ok(()) };
        if let Some(reason) = node.stopping() {
            let ending = Some(ending(&TransactError::Aborted(reason)));
            return Ok(outgoing.send(&proto::StepReply { ending, ..Default::default() }).await?);
        }
        let now = now_at::<T>();
        let deadline = now + Duration::from_micros(step.time_us).min(self.limits.time);
        let transaction = node.begin(now, deadline);
        let id = transaction.attempt.id().map_or(0, |id| id.get());
        loop {
            let is_last = step.commit;
            let done = take(&node, &transaction, step, &self.limits).await;
            let mut reply = proto::StepReply { transaction: id, ..Default::default() };
            match done {
                Ok(found) if !is_last => reply.found = found,
                Ok(_) => reply.ending = Some(committed()),
                Err(error) => reply.ending = Some(ending(&error)),
            }
            if reply.ending.is_some() {
                return Ok(outgoing.send(&reply).await?);
            }
            // The program may read no replies, or send no steps, until its time is over.
            let next = async {
                outgoing.send(&reply).await?;
                incoming.next().await
            };
            step = match erpc::timeout(deadline - now_at::<T>(), next).await {
                Ok(Ok(Some(step))) => step,
                // The program gives up.
                Ok(Ok(None)) => {
                    node.release(&transaction.attempt).await;
                    return Ok(());
                }
                Ok(Err(error)) => return Err(error.into()),
                Err(_) => {
                    node.release(&transaction.attempt).await;
                    let ending = Some(ending(&TransactError::Aborted(Reason::Deadline)));
                    let last = proto::StepReply { transaction: id, ending, ..Default::default() };
                    return Ok(outgoing.send(&last).await?);
                }
            };
        }
    }

    fn describe(
        &self,
        _request: Request<'_, proto::DescribeRequest>,
    ) -> Result<Response<proto::Description>, Status> {
        let node = self.node()?;
        let participant = node.participant();
        let placement = participant.placement();
        let numbers = |nodes: &[crate::cluster::NodeId]| -> Vec<u32> {
            nodes.iter().map(|node| node.0.into()).collect()
        };
        let replicas =
            |partition| proto::Replicas { nodes: numbers(placement.replicas(partition)) };
        let table = |(&id, config): (&u16, &crate::table::Config)| proto::TableInfo {
            id: id.into(),
            max_value: config.longest() as u64,
        };
        let counts = node.counts();
        Ok(Response::new(proto::Description {
            member: Some(participant.introduction().into()),
            active: participant.is_active(),
            nodes: numbers(placement.nodes()),
            partitions: (0..placement.partitions()).map(replicas).collect(),
            tables: participant.settings().tables.iter().map(table).collect(),
            unreachable: numbers(&node.unreachable()),
            attempts: counts.attempts,
            commits: counts.commits,
            running: node.active() as u64,
        }))
    }
}

/// Takes a step. After an error, or if it was the last step, the attempt has ended.
async fn take<T: Transport>(
    node: &Node<T>,
    transaction: &Transaction<T>,
    step: proto::Step,
    limits: &GatewayLimits,
) -> Result<Vec<proto::Found>, TransactError> {
    let found = match access(transaction, &step, limits).await {
        Ok(found) => found,
        Err(abort) => {
            node.release(&transaction.attempt).await;
            return Err(TransactError::Aborted(abort.into_reason()));
        }
    };
    if step.commit {
        node.commit(&transaction.attempt).await?;
    }
    Ok(found)
}

async fn access<T: Transport>(
    transaction: &Transaction<T>,
    step: &proto::Step,
    limits: &GatewayLimits,
) -> Result<Vec<proto::Found>, Abort> {
    let keys = transaction.attempt.keys();
    let known = keys.with(<[_]>::len);
    if known + step.accesses.len() > limits.keys {
        return Err(Abort::new(Reason::TooManyKeys(limits.keys)));
    }
    let wanted = |access: &proto::Access| {
        let access = steps::access(access);
        let Access { place, kind } =
            access.ok_or_else(|| transaction.abort("an access has no kind, or no such table"))?;
        // The value of an insert comes with the commit.
        let value = (kind == Kind::Insert).then(Vec::new);
        Ok::<_, Abort>(Wanted { place, kind, value })
    };
    let wanted: Vec<_> = step.accesses.iter().map(wanted).collect::<Result<_, _>>()?;
    let places: Vec<_> = wanted.iter().map(|wanted| wanted.place).collect();
    transaction.access(wanted).await?;
    for change in &step.changes {
        let place = change.place.as_ref().and_then(steps::place);
        let place = place.ok_or_else(|| transaction.abort("a change has no key"))?;
        if change.delete {
            keys.delete(place)?;
        } else {
            transaction.check_len(place, change.value.len())?;
            keys.write(place, change.value.to_vec())?;
        }
    }
    // Before anything is copied: a step may name the same long value many times.
    let len = |&place: &Place| keys.current(place, |value| value.map_or(0, <[u8]>::len));
    let bytes = places.iter().map(len).sum();
    if bytes > limits.bytes {
        return Err(Abort::new(Reason::AnswerTooLong(bytes)));
    }
    Ok(places.into_iter().map(|place| found(transaction, place)).collect())
}

fn found<T: Transport>(transaction: &Transaction<T>, place: Place) -> proto::Found {
    let keys = transaction.attempt.keys();
    let value = keys.current(place, |value| value.map(Bytes::copy_from_slice));
    proto::Found {
        present: value.is_some(),
        locked: keys.is_locked(place),
        value: value.unwrap_or_default(),
    }
}

fn committed() -> proto::Ending {
    proto::Ending { outcome: proto::Outcome::Committed.into(), ..Default::default() }
}

/// How an attempt ended that did not commit.
fn ending(error: &TransactError) -> proto::Ending {
    let mut ending = proto::Ending { text: error.to_string(), ..Default::default() };
    let reason = match error {
        TransactError::Aborted(reason) => reason,
        TransactError::Unknown { node, .. } => {
            ending.outcome = proto::Outcome::Unknown.into();
            ending.node = node.map_or(0, |node| u32::from(node.0) + 1);
            return ending;
        }
    };
    ending.outcome = proto::Outcome::Aborted.into();
    ending.text = reason.to_string();
    let (why, place, node, len) = match *reason {
        Reason::Conflict(place) => (Why::Conflict, Some(place), None, 0),
        Reason::Changed(place) => (Why::Changed, Some(place), None, 0),
        Reason::Present(place) => (Why::Present, Some(place), None, 0),
        Reason::Full(place) => (Why::Full, Some(place), None, 0),
        Reason::Unavailable(node) => (Why::Unavailable, None, Some(node), 0),
        Reason::NotReady(node) => (Why::NotReady, None, Some(node), 0),
        Reason::Deadline => (Why::Deadline, None, None, 0),
        Reason::NotLocked(place) => (Why::NotLocked, Some(place), None, 0),
        Reason::NoTable(table) => (Why::NoTable, Some(Place { table, key: 0 }), None, 0),
        Reason::ValueTooLong { place, len } => (Why::ValueTooLong, Some(place), None, len),
        Reason::TooLong(len) => (Why::TooLong, None, None, len),
        Reason::TooManyKeys(most) => (Why::TooManyKeys, None, None, most),
        Reason::Stopping(node) => (Why::Stopping, None, Some(node), 0),
        Reason::AnswerTooLong(len) => (Why::AnswerTooLong, None, None, len),
        Reason::Refused { node, .. } => (Why::Refused, None, Some(node), 0),
        Reason::Explicit(_)
        | Reason::Value { .. }
        | Reason::Ended
        | Reason::Unfinished
        | Reason::Disconnected(_) => (Why::Unspecified, None, None, 0),
    };
    ending.why = why.into();
    ending.place = place.as_ref().map(proto::Place::from);
    ending.node = node.map_or(0, |node| u32::from(node.0) + 1);
    ending.len = len as u64;
    ending
}
