//! A partition of the cache, and the sequencer, as services.

use std::cell::RefCell;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use erpc::transport::MAX_BURST;
use erpc::{Burst, Request, Response, Status};

use crate::cache::{Hash, KEY, Key, Partition};
use crate::proto::{
    Cache, DeleteReply, DeleteRequest, GetReply, GetReplyView, GetRequest, NextReply, NextRequest,
    PutReply, PutRequestView, Sequencer, StatsReply, StatsRequest,
};
use crate::sequencer::{self, TakeError};

/// The most numbers of a call of `Next`.
pub const MAX_COUNT: u32 = 1 << 16;

thread_local! {
    /// Its address tells threads apart.
    static HERE: u8 = const { 0 };
    /// The value of the current `Get`, between the log and the response.
    static VALUE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// One partition of a cache as a service. Serve it with one event loop: the thread that calls it
/// first is its owner, and calls on other threads are refused.
#[derive(Debug, erpc::Service)]
#[erpc(service = crate::proto::Cache, burst(Get = look_ahead, Put = look_ahead_of_puts))]
pub struct Partitioned {
    partition: Partition,
    number: u16,
    of: u16,
    /// Times of expiry count from here.
    born: Instant,
    /// 0 before the first call.
    owner: AtomicUsize,
}

impl Partitioned {
    /// Partition `number` of `of` partitions.
    #[must_use]
    pub fn new(partition: Partition, number: u16, of: u16) -> Self {
        Self { partition, number, of, born: Instant::now(), owner: AtomicUsize::new(0) }
    }

    /// In ms. Only read for values that expire.
    fn now(&self) -> u64 {
        self.born.elapsed().as_millis() as u64
    }

    /// Loads the buckets of all requests of a burst together, then their values, so that the cache
    /// misses overlap. Leaves the places of the values for the handlers.
    fn look_ahead(&self, burst: Burst<'_, &GetRequest>) {
        for request in &burst {
            self.partition.prefetch(Hash::of(request.message().key()));
        }
        for request in &burst {
            if let Some(hint) = self.partition.locate(Hash::of(request.message().key())) {
                request.set_note(hint);
            }
        }
    }

    /// As `look_ahead`, for writes, which look at the old value.
    fn look_ahead_of_puts(&self, burst: Burst<'_, PutRequestView<'_>>) {
        // The hashes are kept, so that the hook decodes each message only once.
        let mut hashes = [None; MAX_BURST];
        let keys = burst.iter().filter_map(|request| request.message().key.try_into().ok());
        for (place, key) in hashes.iter_mut().zip(keys) {
            *place = Some(Hash::of(key));
        }
        let hashes = || hashes.iter().map_while(|&hash| hash);
        hashes().for_each(|hash| self.partition.prefetch(hash));
        hashes().for_each(|hash| {
            self.partition.locate(hash);
        });
    }

    /// Fails if the key belongs to another partition, or the partition to another thread.
    fn check(&self, key: &Key) -> Result<(), Status> {
        let partition = Hash::of(key).partition(self.of);
        if partition != self.number {
            let (number, of) = (self.number, self.of);
            return Err(Status::failed_precondition(format!(
                "the key belongs to partition {partition} of {of}, and this is partition {number}"
            )));
        }
        self.claim()
    }

    /// Fails if the partition belongs to another thread.
    fn claim(&self) -> Result<(), Status> {
        let here = HERE.with(|here| ptr::from_ref(here).addr());
        if self.owner.load(Relaxed) == here {
            return Ok(());
        }
        match self.owner.compare_exchange(0, here, Relaxed, Relaxed) {
            Ok(_) => Ok(()),
            Err(_) => Err(Status::internal("several threads serve the partition; use one")),
        }
    }
}

impl Cache for Partitioned {
    fn get(&self, request: Request<'_, &GetRequest>) -> Result<Response<GetReply>, Status> {
        let key = request.message().key();
        self.check(key)?;
        VALUE.with_borrow_mut(|value| {
            value.clear();
            let found = match request.note() {
                Some(hint) => self.partition.get_at(hint, key, || self.now(), value),
                None => self.partition.get(key, || self.now(), value),
            };
            request.answer(&GetReplyView { value: found.then_some(value) })
        })
    }

    fn put(&self, request: Request<'_, PutRequestView<'_>>) -> Result<Response<PutReply>, Status> {
        let PutRequestView { key, value, ttl_ms, .. } = *request.message();
        let key: &Key = key.try_into().map_err(|_| {
            Status::invalid_argument(format!("a key of {} bytes; keys have {KEY}", key.len()))
        })?;
        self.check(key)?;
        let expiry = (ttl_ms != 0).then(|| self.now() + u64::from(ttl_ms));
        let forgotten = self.partition.put(key, value, expiry);
        let forgotten = forgotten.map_err(|error| Status::invalid_argument(error.to_string()))?;
        Ok(Response::new(PutReply::new().with_forgotten(forgotten)))
    }

    fn delete(
        &self,
        request: Request<'_, &DeleteRequest>,
    ) -> Result<Response<DeleteReply>, Status> {
        let key = request.message().key();
        self.check(key)?;
        let existed = self.partition.delete(key, || self.now());
        Ok(Response::new(DeleteReply::new().with_existed(existed.into())))
    }

    fn stats(&self, _: Request<'_, StatsRequest>) -> Result<Response<StatsReply>, Status> {
        let counts = self.partition.counts();
        Ok(Response::new(StatsReply {
            partition: self.number.into(),
            partitions: self.of.into(),
            values: counts.values,
            hits: counts.hits,
            misses: counts.misses,
            puts: counts.puts,
            overwritten: counts.overwritten,
            displaced: counts.displaced,
            expired: counts.expired,
        }))
    }
}

/// A sequencer as a service, for any number of threads.
///
/// A burst hook could take the numbers of a whole burst at once, as the thesis does (section 4.3). It
/// would cost each call more than 20 ns, and the addition costs less than 10 ns, so it has none. A client
/// that needs many numbers takes them with one call.
#[derive(Debug, erpc::Service)]
#[erpc(service = crate::proto::Sequencer)]
pub struct Numbers(
    /// The sequencer.
    pub Arc<sequencer::Sequencer>,
);

impl Sequencer for Numbers {
    fn next(&self, request: Request<'_, &NextRequest>) -> Result<Response<NextReply>, Status> {
        let count = request.message().count();
        if !(1..=MAX_COUNT).contains(&count) {
            return Err(Status::invalid_argument(format!(
                "{count} numbers; a call takes 1 to {MAX_COUNT}"
            )));
        }
        let first = self.0.take(count.into()).map_err(|error| match error {
            TakeError::TooMany => Status::resource_exhausted(error.to_string()),
            _ => Status::unavailable(error.to_string()),
        })?;
        Ok(Response::new(NextReply::new().with_first(first)))
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use erpc::Code;

    use super::*;
    use crate::cache::{Config, MAX_VALUE, MIN_LOG};

    fn partitioned(number: u16, of: u16) -> Partitioned {
        Partitioned::new(Partition::new(Config::new(MIN_LOG)).expect("valid sizes"), number, of)
    }

    fn get(cache: &Partitioned, key: Key) -> Result<Option<Vec<u8>>, Status> {
        let reply = cache.get(Request::new(&GetRequest::new().with_key(key)))?;
        Ok(reply.into_message().expect("it is not deferred").value)
    }

    fn put(cache: &Partitioned, key: &[u8], value: &[u8]) -> Result<u32, Status> {
        let mut view = PutRequestView::default();
        (view.key, view.value) = (key, value);
        let reply = cache.put(Request::new(view))?;
        Ok(reply.into_message().expect("it is not deferred").forgotten())
    }

    #[test]
    fn each_key_is_served_by_one_partition() {
        let both = [partitioned(0, 2), partitioned(1, 2)];
        for number in 0..100_u128 {
            let key = number.to_le_bytes();
            let of = Hash::of(&key).partition(2);
            for (cache, partition) in both.iter().zip(0..) {
                let (put, got) = (put(cache, &key, b"value"), get(cache, key));
                let delete = DeleteRequest::new().with_key(key);
                let deleted = cache.delete(Request::new(&delete)).err();
                if partition == of {
                    assert_eq!((put, got), (Ok(0), Ok(Some(b"value".to_vec()))));
                    assert_eq!(deleted, None);
                    continue;
                }
                for status in [put.err(), got.err(), deleted] {
                    let status = status.expect("the key belongs elsewhere");
                    assert_eq!(status.code(), Code::FailedPrecondition);
                    assert!(
                        status.message().contains(&format!("partition {of} of 2")),
                        "{status:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn keys_and_values_of_wrong_lengths_are_refused() {
        let cache = partitioned(0, 1);
        for (key, value, wrong) in [
            (&[0; 15][..], 0, "a key of 15 bytes"),
            (&[0; 17], 0, "a key of 17 bytes"),
            (&[], 0, "a key of 0 bytes"),
            (&[0; 16], MAX_VALUE + 1, "a value of 1001 bytes"),
        ] {
            let status = put(&cache, key, &vec![1; value]).expect_err("a length is wrong");
            assert_eq!(status.code(), Code::InvalidArgument);
            assert!(status.message().starts_with(wrong), "{status:?}");
        }
        assert_eq!(put(&cache, &[0; 16], &[1; MAX_VALUE]), Ok(0));
    }

    #[test]
    fn another_thread_is_refused() {
        let cache = partitioned(0, 1);
        assert_eq!(put(&cache, &[7; 16], b"value"), Ok(0));
        let other = std::thread::scope(|scope| scope.spawn(|| get(&cache, [7; 16])).join());
        let status = other.expect("no panic").expect_err("it is not the owner");
        assert_eq!(status.code(), Code::Internal);
        assert_eq!(get(&cache, [7; 16]), Ok(Some(b"value".to_vec())));
    }

    #[test]
    fn numbers_are_taken_in_allowed_amounts_only() {
        let file = std::env::temp_dir().join(format!("erpc-herd-service-{}", std::process::id()));
        // Half a block is less than a call may take.
        let block = NonZeroU64::new(1000).expect("it is not 0");
        let sequencer = sequencer::Sequencer::with_block(&file, block).expect("it opens");
        let numbers = Numbers(Arc::new(sequencer));
        let next = |count| {
            let reply = numbers.next(Request::new(&NextRequest::new().with_count(count)))?;
            Ok::<_, Status>(reply.into_message().expect("it is not deferred").first())
        };
        assert_eq!((next(3), next(1), next(500)), (Ok(0), Ok(3), Ok(4)));
        for (count, code) in [
            (0, Code::InvalidArgument),
            (MAX_COUNT + 1, Code::InvalidArgument),
            (u32::MAX, Code::InvalidArgument),
            (MAX_COUNT, Code::ResourceExhausted),
        ] {
            assert_eq!(next(count).map_err(|status| status.code()), Err(code), "{count}");
        }
        drop(numbers);
        for ending in ["", ".lock"] {
            let file = format!("{}{ending}", file.display());
            std::fs::remove_file(file).expect("the sequencer has made it");
        }
    }
}
