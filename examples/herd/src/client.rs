//! The partitions of a server, as one cache.

use std::error::Error;
use std::fmt;

use erpc::{CallError, Transport, Udp};

use crate::cache::{Hash, Key};
use crate::proto::{LocalCacheClient, StatsRequest};

/// One client per partition. The key of a call chooses among them.
#[derive(Debug)]
pub struct Partitions<T: Transport = Udp> {
    clients: Vec<LocalCacheClient<T>>,
}

/// The clients are not those of the partitions of one cache.
#[derive(Debug)]
#[non_exhaustive]
pub enum PartitionsError {
    /// No partition, or more than 65,535.
    Count(usize),
    /// A server was asked for its partition, and the call failed.
    Call(usize, CallError),
    /// The server at this place of the list has another partition.
    Other {
        /// The place in the list.
        place: usize,
        /// The number of the server's partition, and of all partitions.
        found: (u32, u32),
    },
}

impl<T: Transport> Partitions<T> {
    /// The cache whose partitions these clients call, in the order of their numbers. Asks each server
    /// for its partition.
    ///
    /// # Errors
    ///
    /// [`PartitionsError`] if a server does not answer, or has another partition.
    pub async fn new(clients: Vec<LocalCacheClient<T>>) -> Result<Self, PartitionsError> {
        let count = clients.len();
        if count == 0 || u16::try_from(count).is_err() {
            return Err(PartitionsError::Count(count));
        }
        for (place, client) in clients.iter().enumerate() {
            let stats = client.stats(StatsRequest {}).await;
            let stats = stats.map_err(|error| PartitionsError::Call(place, error))?;
            let found = (stats.partition, stats.partitions);
            if found != (place as u32, count as u32) {
                return Err(PartitionsError::Other { place, found });
            }
        }
        Ok(Self { clients })
    }

    /// The client of a key's partition.
    #[inline]
    #[must_use]
    pub fn of(&self, key: &Key) -> &LocalCacheClient<T> {
        &self.clients[usize::from(Hash::of(key).partition(self.clients.len() as u16))]
    }

    /// All clients, by partition.
    #[must_use]
    pub fn all(&self) -> &[LocalCacheClient<T>] {
        &self.clients
    }
}

impl fmt::Display for PartitionsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => write!(f, "{count} partitions; use 1 to 65,535"),
            Self::Call(place, error) => write!(f, "the server of partition {place}: {error}"),
            Self::Other { place, found: (partition, of) } => write!(
                f,
                "the server of partition {place} has partition {partition} of {of}; connect to all \
                 servers, in their order"
            ),
        }
    }
}

impl Error for PartitionsError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Call(_, error) => Some(error),
            Self::Count(_) | Self::Other { .. } => None,
        }
    }
}
