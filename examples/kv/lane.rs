//! A lane: a sequence of calls, each checked. Many lanes together are the load.

use std::time::Instant;

use bytes::Bytes;
use erpc::{CallError, Code, Transport};

use crate::client::Shared;
use crate::data::File;
use crate::failure::Failure;
use crate::proto::{
    DeleteRequest, GetRequest, GetResponse, LocalKvClient, PutRequest, ScanRequest,
};
use crate::report::Operation;

/// Prefix of the keys that lanes write. These keys sort after usual file names, so that listings of
/// files do not include them.
const SCRATCH: &str = "~kv-load";

/// A sequence of calls, one at a time. In the first phase, the lanes store the files. In the second
/// phase, a lane reads and lists the files, which do not change any more, and writes only its own
/// key. So it knows the right answer to each call.
pub(crate) struct Lane<T: Transport> {
    kv: LocalKvClient<T>,
    shared: Shared,
    random: Random,
    /// The lane's own key, and the value that the server has for it.
    key: String,
    value: Option<Bytes>,
}

impl<T: Transport> Lane<T> {
    /// Lane `number` of client `client`. No other lane at the server has this pair of numbers.
    pub(crate) fn new(kv: LocalKvClient<T>, shared: Shared, client: u64, number: u64) -> Self {
        let random = Random(client ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        Self { kv, shared, random, key: format!("{SCRATCH}/{client:016x}/{number}"), value: None }
    }

    /// Stores files until there are no more.
    pub(crate) async fn store_files(self) -> Result<(), Failure> {
        while let Some(file) = self.shared.next_file() {
            let begin = Instant::now();
            let put = PutRequest { key: file.key.clone(), value: file.value.clone() };
            self.kv.put(put).await.map_err(|error| failed("put", &file.key, error))?;
            self.done(Operation::Put, begin, file.value.len(), 0);
        }
        Ok(())
    }

    /// Makes random calls until the phase is over, then deletes the lane's key.
    pub(crate) async fn mix(mut self) -> Result<(), Failure> {
        while !self.shared.is_over() {
            match self.random.below(100) {
                0..70 => self.get_file().await?,
                70..80 => self.put().await?,
                80..87 => self.get().await?,
                87..95 => self.delete().await?,
                _ => self.scan().await?,
            }
        }
        self.delete().await
    }

    async fn get_file(&mut self) -> Result<(), Failure> {
        let shared = self.shared.clone();
        let file = self.random.pick(shared.data().files());
        let begin = Instant::now();
        let got = self.kv.get(GetRequest { key: file.key.clone() }).await;
        let GetResponse { value } = got.map_err(|error| failed("get", &file.key, error))?;
        self.done(Operation::Get, begin, 0, value.len());
        check(value == file.value, || {
            format!("get {}: {} bytes differ from the stored file", file.key, value.len())
        })
    }

    async fn put(&mut self) -> Result<(), Failure> {
        let value = self.random.pick(self.shared.data().files()).value.clone();
        let begin = Instant::now();
        let put = PutRequest { key: self.key.clone(), value: value.clone() };
        let response = self.kv.put(put).await.map_err(|error| failed("put", &self.key, error))?;
        self.done(Operation::Put, begin, value.len(), 0);
        let before = self.value.replace(value);
        check(response.replaced == before.is_some(), || {
            format!("put {}: replaced {}", self.key, response.replaced)
        })
    }

    async fn get(&mut self) -> Result<(), Failure> {
        let begin = Instant::now();
        let found = match self.kv.get(GetRequest { key: self.key.clone() }).await {
            Ok(GetResponse { value }) => Some(value),
            Err(CallError::Status(status)) if status.code() == Code::NotFound => None,
            Err(error) => return Err(failed("get", &self.key, error)),
        };
        self.done(Operation::Get, begin, 0, found.as_ref().map_or(0, Bytes::len));
        check(found == self.value, || format!("get {}: not the value of the last put", self.key))
    }

    async fn delete(&mut self) -> Result<(), Failure> {
        let begin = Instant::now();
        let response = self.kv.delete(DeleteRequest { key: self.key.clone() }).await;
        let response = response.map_err(|error| failed("delete", &self.key, error))?;
        self.done(Operation::Delete, begin, 0, 0);
        let before = self.value.take();
        check(response.existed == before.is_some(), || {
            format!("delete {}: existed {}", self.key, response.existed)
        })
    }

    /// Lists a page of the keys that start with the folder of a random file, or with the file's
    /// name if it has no folder. The page begins at the first such key, or after that file.
    async fn scan(&mut self) -> Result<(), Failure> {
        let shared = self.shared.clone();
        let from = &self.random.pick(shared.data().files()).key;
        let prefix = from.rsplit_once('/').map_or(from.as_str(), |(folder, _)| folder);
        let start_after = if self.random.below(2) == 0 { "" } else { from };
        let limit = 1 + self.random.below(100);
        let begin = Instant::now();
        let request = ScanRequest {
            prefix: prefix.to_owned(),
            start_after: start_after.to_owned(),
            limit: u32::try_from(limit).unwrap_or(u32::MAX),
        };
        let page = self.kv.scan(request).await.map_err(|error| failed("scan", prefix, error))?;
        self.done(
            Operation::Scan,
            begin,
            0,
            page.entries.iter().map(|entry| entry.key.len() + 8).sum(),
        );
        let mut files = shared.data().range(prefix, start_after);
        let expected = files.by_ref().take(limit);
        let as_expected = page
            .entries
            .iter()
            .map(|entry| (entry.key.as_str(), entry.size))
            .eq(expected.map(size_of));
        let more = files.next().is_some();
        check(as_expected && page.more == more, || {
            format!("scan {prefix} after {start_after:?}: not the files of the folder")
        })
    }

    fn done(&self, operation: Operation, begin: Instant, sent: usize, received: usize) {
        let elapsed = begin.elapsed();
        self.shared.count(|tally| tally.record(operation, elapsed, sent, received));
    }
}

fn size_of(file: &File) -> (&str, u64) {
    (&file.key, file.value.len() as u64)
}

fn failed(verb: &str, key: &str, error: CallError) -> Failure {
    Failure::Call { what: format!("{verb} {key}"), error }
}

fn check(right: bool, what: impl FnOnce() -> String) -> Result<(), Failure> {
    if right { Ok(()) } else { Err(Failure::WrongAnswer(what())) }
}

/// xorshift64*: small, and random enough to spread a load.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % bound
    }

    fn pick<'a, V>(&mut self, from: &'a [V]) -> &'a V {
        &from[self.below(from.len())]
    }
}
