//! A client of the store.
//!
//! It finds the leader, follows its redirects, and repeats what was not answered. A write is repeated
//! under its number, so it applies once.

mod errors;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use erpc::{CallError, CallOptions, Code, Endpoint, RetryPolicy, Transport, Udp};
pub use errors::ClientError;

use crate::machine::{check_key, check_value};
use crate::mutants::mutant;
use crate::proto::{self, Leader, LocalStoreClient, Outcome};

/// How long a client tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// For one attempt at one node.
    pub attempt: Duration,
    /// Between two attempts, if a node has no leader to name.
    pub pause: Duration,
    /// For all attempts of one call.
    pub call: Duration,
}

impl Default for Patience {
    /// 300 ms, 5 ms, 10 s.
    fn default() -> Self {
        let ms = Duration::from_millis;
        Self { attempt: ms(300), pause: ms(5), call: ms(10_000) }
    }
}

/// Makes a client of the node at an address. None if the text is no address. The closure must not keep an
/// endpoint.
pub type Connect<T> = Box<dyn Fn(&Endpoint<T>, &str) -> Option<LocalStoreClient<T>>>;

/// The nodes that a client knows. Its calls run in tasks of the endpoint, or in its `block_on`. Sessions of one endpoint share them: when one has found the leader, all
/// have. Clones are the same nodes.
pub struct Nodes<T: Transport = Udp> {
    inner: Rc<Inner<T>>,
}

struct Inner<T: Transport> {
    connect: Connect<T>,
    clients: RefCell<BTreeMap<String, LocalStoreClient<T>>>,
    first: Vec<String>,
    /// The address to try next.
    current: RefCell<String>,
    patience: Patience,
}

/// A session: makes one write at a time.
pub struct Session<T: Transport = Udp> {
    nodes: Nodes<T>,
    id: u64,
    sequence: Cell<u64>,
}

/// What to do after an attempt.
enum Next<R> {
    Done(R),
    Failed(ClientError),
    /// Try there.
    Redirected(Leader),
    /// Try another node, after a pause.
    Elsewhere(String),
    /// The node refuses. It may be a leader that is cut off and has a successor, so try another node. A
    /// leader that refuses for as long as an attempt may take is right.
    Refused(String),
    /// Try the same node, after a pause.
    Later,
}

impl<T: Transport> Nodes<T> {
    /// Knows nodes by these addresses, of which one is enough if it is up.
    ///
    /// # Errors
    /// [`ClientError::Address`] if there is none, or one is none.
    pub fn new(
        endpoint: &Endpoint<T>,
        addresses: &[String],
        connect: Connect<T>,
        patience: Patience,
    ) -> Result<Self, ClientError> {
        let first = addresses.first().ok_or_else(|| ClientError::Address(String::new()))?.clone();
        let inner = Inner {
            connect,
            clients: RefCell::default(),
            first: addresses.to_vec(),
            current: RefCell::new(first),
            patience,
        };
        for address in addresses {
            inner.client(endpoint, address).ok_or_else(|| ClientError::Address(address.clone()))?;
        }
        Ok(Self { inner: Rc::new(inner) })
    }

    /// Opens a session.
    ///
    /// # Errors
    /// [`ClientError`]
    pub async fn open(&self) -> Result<Session<T>, ClientError> {
        let call = async |client: LocalStoreClient<T>| {
            let reply = client.open(proto::OpenRequest {}).await?;
            let outcome = reply.outcome();
            Ok((outcome, reply.leader, reply.session))
        };
        let id = self.attempts(call).await?;
        Ok(Session { nodes: self.clone(), id, sequence: Cell::new(0) })
    }

    /// Reads a key: its value at a moment between the call and its answer.
    ///
    /// # Errors
    /// [`ClientError`]
    pub async fn get(&self, key: &[u8]) -> Result<Option<Bytes>, ClientError> {
        check_key(key).map_err(ClientError::Invalid)?;
        let request = proto::GetRequest { key: Bytes::copy_from_slice(key) };
        let call = async |client: LocalStoreClient<T>| {
            let reply = client.get(&request).await?;
            let (outcome, value) = (reply.outcome(), reply.present.then_some(reply.value));
            Ok((outcome, reply.leader, value))
        };
        self.attempts(call).await
    }

    /// Changes the members.
    ///
    /// # Errors
    /// [`ClientError`]
    pub async fn change(&self, request: &proto::ChangeRequest) -> Result<(), ClientError> {
        let call = async |client: LocalStoreClient<T>| {
            let reply = client.change(request).await?;
            Ok((reply.outcome(), reply.leader, ()))
        };
        self.attempts(call).await
    }

    /// Asks the leader to hand over to a node; 0: to the one with the longest log.
    ///
    /// # Errors
    /// [`ClientError`]
    pub async fn transfer(&self, to: u64) -> Result<(), ClientError> {
        let call = async |client: LocalStoreClient<T>| {
            let reply = client.transfer(proto::TransferRequest { to }).await?;
            Ok((reply.outcome(), reply.leader, ()))
        };
        self.attempts(call).await
    }

    /// What the node at an address says of itself.
    ///
    /// # Errors
    /// [`ClientError`]
    pub async fn status(&self, address: &str) -> Result<proto::StatusReply, ClientError> {
        let client = self.inner.client(&here::<T>()?, address);
        let client = client.ok_or_else(|| ClientError::Address(address.to_owned()))?;
        let reply = client.get_status(proto::StatusRequest {}).await;
        reply.map_err(|error| ClientError::Unavailable(format!("{address}: {error}")))
    }

    /// Calls nodes until one has an answer.
    async fn attempts<R>(
        &self,
        call: impl AsyncFn(LocalStoreClient<T>) -> Result<(Outcome, Option<Leader>, R), CallError>,
    ) -> Result<R, ClientError> {
        let inner = &self.inner;
        let patience = inner.patience;
        let endpoint = here::<T>()?;
        let end = endpoint.now() + patience.call;
        let mut last = String::from("no node was asked");
        let mut refused = None;
        let mut redirects = 0;
        loop {
            let address = inner.current.borrow().clone();
            let next = match inner.client(&endpoint, &address) {
                Some(client) => next(&address, call(client).await),
                None => Next::Elsewhere(format!("{address} is no address")),
            };
            match next {
                Next::Done(reply) => return Ok(reply),
                Next::Failed(error) => return Err(error),
                // Nodes may name each other as the leader for a moment.
                Next::Redirected(leader) if redirects < 3 && leader.address != address => {
                    redirects += 1;
                    inner.current.replace(leader.address);
                    continue;
                }
                Next::Redirected(_) => inner.leave(&address),
                Next::Elsewhere(why) => {
                    last = why;
                    inner.leave(&address);
                }
                Next::Refused(why) => {
                    let now = endpoint.now();
                    let (by, since) = refused.get_or_insert_with(|| (address.clone(), now));
                    if *by != address {
                        (*by, *since) = (address.clone(), now);
                    } else if now - *since >= patience.attempt {
                        return Err(ClientError::Refused(why));
                    }
                    last = why;
                    inner.leave(&address);
                }
                Next::Later => last = format!("{address} has too much to do"),
            }
            redirects = 0;
            if endpoint.now() >= end {
                return Err(ClientError::Unavailable(last));
            }
            erpc::sleep(patience.pause).await;
        }
    }
}

/// The endpoint whose task this is.
fn here<T: Transport>() -> Result<Endpoint<T>, ClientError> {
    Endpoint::current()
        .ok_or_else(|| ClientError::Unavailable("the call is not in a task of its endpoint".into()))
}

/// What the end of an attempt means.
fn next<R>(address: &str, reply: Result<(Outcome, Option<Leader>, R), CallError>) -> Next<R> {
    match reply {
        Ok((Outcome::Done, _, reply)) => Next::Done(reply),
        Ok((Outcome::NotLeader, Some(leader), _)) if !leader.address.is_empty() => {
            Next::Redirected(leader)
        }
        Ok((Outcome::NotLeader, ..)) => Next::Elsewhere(format!("{address} knows no leader")),
        Ok((Outcome::Busy, ..)) => Next::Later,
        Ok((Outcome::Expired, ..)) => Next::Failed(ClientError::Expired),
        Ok((Outcome::Stale, ..)) => Next::Failed(ClientError::Stale),
        Ok((Outcome::Unspecified, ..)) => Next::Elsewhere(format!("{address} gives no outcome")),
        Err(error) if error.code() == Code::InvalidArgument => {
            Next::Failed(ClientError::Invalid(error.to_string()))
        }
        Err(error) if error.code() == Code::FailedPrecondition => Next::Refused(error.to_string()),
        Err(error) => Next::Elsewhere(format!("{address}: {error}")),
    }
}

impl<T: Transport> Inner<T> {
    fn client(&self, endpoint: &Endpoint<T>, address: &str) -> Option<LocalStoreClient<T>> {
        let mut clients = self.clients.borrow_mut();
        if let Some(client) = clients.get(address) {
            return Some(client.clone());
        }
        let options =
            CallOptions::new().deadline(self.patience.attempt).retry(RetryPolicy::never());
        let client = (self.connect)(endpoint, address)?.with(options);
        clients.insert(address.to_owned(), client.clone());
        Some(client)
    }

    /// An address was of no use. Takes the one after it, unless another task has done so already.
    fn leave(&self, address: &str) {
        let mut current = self.current.borrow_mut();
        if *current == address {
            let at = self.first.iter().position(|first| first == address);
            let next = at.map_or(0, |at| (at + 1) % self.first.len());
            current.clone_from(&self.first[next]);
        }
    }
}

impl<T: Transport> Session<T> {
    /// Its number.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Sets a key.
    ///
    /// # Errors
    /// [`ClientError`]. After `Unavailable` the write may still be made, at any time.
    pub async fn put(&self, key: &[u8], value: &[u8]) -> Result<(), ClientError> {
        check_key(key).and(check_value(value)).map_err(ClientError::Invalid)?;
        let sequence = self.begin();
        let request = proto::PutRequest {
            session: self.id,
            sequence,
            key: Bytes::copy_from_slice(key),
            value: Bytes::copy_from_slice(value),
        };
        let call = async |client: LocalStoreClient<T>| {
            let reply = if mutant!(NewNumberForRepeat) {
                let sequence = self.begin();
                client.put(proto::PutRequest { sequence, ..request.clone() }).await?
            } else {
                client.put(&request).await?
            };
            Ok((reply.outcome(), reply.leader, ()))
        };
        self.nodes.attempts(call).await
    }

    /// Sets a key if it has the expected value; none: if it is absent. Returns whether it was set.
    ///
    /// # Errors
    /// As [`Session::put`].
    pub async fn cas(
        &self,
        key: &[u8],
        expected: Option<&[u8]>,
        value: &[u8],
    ) -> Result<bool, ClientError> {
        let expected_value = expected.unwrap_or_default();
        let checks = check_key(key).and(check_value(value)).and(check_value(expected_value));
        checks.map_err(ClientError::Invalid)?;
        let sequence = self.begin();
        let request = proto::CasRequest {
            session: self.id,
            sequence,
            key: Bytes::copy_from_slice(key),
            absent: expected.is_none(),
            expected: Bytes::copy_from_slice(expected_value),
            value: Bytes::copy_from_slice(value),
        };
        let call = async |client: LocalStoreClient<T>| {
            let reply = client.cas(&request).await?;
            Ok((reply.outcome(), reply.leader, reply.swapped))
        };
        self.nodes.attempts(call).await
    }

    fn begin(&self) -> u64 {
        self.sequence.set(self.sequence.get() + 1);
        self.sequence.get()
    }
}

impl<T: Transport> Clone for Nodes<T> {
    fn clone(&self) -> Self {
        Self { inner: Rc::clone(&self.inner) }
    }
}

impl<T: Transport> std::fmt::Debug for Nodes<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Nodes").field("first", &self.inner.first).finish_non_exhaustive()
    }
}

impl<T: Transport> std::fmt::Debug for Session<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("id", &self.id).finish_non_exhaustive()
    }
}
