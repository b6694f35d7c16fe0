//! The server: a sorted map in memory.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use bytes::Bytes;
use erpc::{Request, Response, Status};

use crate::proto::{
    DeleteRequest, DeleteResponse, GetRequest, GetResponse, Kv, PutRequest, PutResponse, ScanEntry,
    ScanRequest, ScanResponse,
};

/// Most entries of a page. Bounds the time that a scan blocks writers.
const PAGE_ENTRIES: usize = 1_000;
/// A page ends with the entry that brings its keys to this number of bytes.
const PAGE_BYTES: usize = 256 * 1_024;

/// Values by key. All event loops of the server share this store.
///
/// One lock around one map is enough here. A lookup takes well under a microsecond. Values are
/// counted references, and their bytes are copied after the lock is released. A scan releases the
/// lock after each page. A store for many cores would shard the keys, with a lock per shard.
#[derive(Default, erpc::Service)]
#[erpc(service = crate::proto::Kv, worker(Scan))]
pub(crate) struct Store {
    values: RwLock<BTreeMap<String, Bytes>>,
}

impl Store {
    /// Ignores poisoning: no code here panics while it holds the lock, so the map is consistent.
    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<String, Bytes>> {
        self.values.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, BTreeMap<String, Bytes>> {
        self.values.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kv for Store {
    fn get(&self, request: Request<'_, GetRequest>) -> Result<Response<GetResponse>, Status> {
        let found = self.read().get(&request.message().key).cloned();
        let value = found.ok_or_else(|| Status::not_found("there is no such key"))?;
        Ok(Response::new(GetResponse { value }))
    }

    fn put(&self, request: Request<'_, PutRequest>) -> Result<Response<PutResponse>, Status> {
        let PutRequest { key, value } = request.into_message();
        if key.is_empty() {
            return Err(Status::invalid_argument("the key is empty"));
        }
        let replaced = self.write().insert(key, value);
        Ok(Response::new(PutResponse { replaced: replaced.is_some() }))
    }

    fn delete(
        &self,
        request: Request<'_, DeleteRequest>,
    ) -> Result<Response<DeleteResponse>, Status> {
        let removed = self.write().remove(&request.message().key);
        Ok(Response::new(DeleteResponse { existed: removed.is_some() }))
    }

    fn scan(&self, request: Request<'_, ScanRequest>) -> Result<Response<ScanResponse>, Status> {
        let ScanRequest { prefix, start_after, limit } = request.message();
        let limit = match *limit as usize {
            0 => PAGE_ENTRIES,
            limit => limit.min(PAGE_ENTRIES),
        };
        // The store never has the empty key, so "after the empty key" means "from the start".
        let begin = match start_after < prefix {
            true => Bound::Included(prefix.as_str()),
            false => Bound::Excluded(start_after.as_str()),
        };
        let values = self.read();
        let mut rest = values
            .range::<str, _>((begin, Bound::Unbounded))
            .take_while(|(key, _)| key.starts_with(prefix))
            .peekable();
        let (mut entries, mut bytes) = (Vec::new(), 0);
        while entries.len() < limit
            && bytes < PAGE_BYTES
            && let Some((key, value)) = rest.next()
        {
            bytes += key.len();
            entries.push(ScanEntry { key: key.clone(), size: value.len() as u64 });
        }
        Ok(Response::new(ScanResponse { more: rest.peek().is_some(), entries }))
    }
}

#[cfg(test)]
mod tests {
    use erpc::Code;

    use super::*;

    fn store(keys: &[&str]) -> Store {
        let store = Store::default();
        for key in keys {
            let put = PutRequest { key: (*key).to_owned(), value: Bytes::from(key.repeat(2)) };
            drop(store.put(Request::new(put)).expect("the key is not empty"));
        }
        store
    }

    /// The keys of a page, and whether more keys follow.
    fn page(store: &Store, prefix: &str, start_after: &str, limit: u32) -> (Vec<String>, bool) {
        let scan =
            ScanRequest { prefix: prefix.to_owned(), start_after: start_after.to_owned(), limit };
        let page = store.scan(Request::new(scan)).expect("a scan cannot fail").into_message();
        let page = page.expect("a scan is not deferred");
        (page.entries.into_iter().map(|entry| entry.key).collect(), page.more)
    }

    fn keys(keys: &[&str]) -> Vec<String> {
        keys.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_scan_is_bounded_by_prefix_start_and_limit() {
        let store = store(&["a", "b/1", "b/2", "b/3", "c"]);
        assert_eq!(page(&store, "", "", 0), (keys(&["a", "b/1", "b/2", "b/3", "c"]), false));
        assert_eq!(page(&store, "b/", "", 2), (keys(&["b/1", "b/2"]), true));
        assert_eq!(page(&store, "b/", "b/2", 2), (keys(&["b/3"]), false));
        assert_eq!(
            page(&store, "b/", "a", 1),
            (keys(&["b/1"]), true),
            "start_after sorts before the prefix"
        );
        assert_eq!(
            page(&store, "b/", "c", 1),
            (vec![], false),
            "start_after sorts after the prefix"
        );
    }

    #[test]
    fn pages_together_contain_every_key() {
        let names: Vec<_> = (0..2_500).map(|n| format!("key{n:04}")).collect();
        let store = store(&names.iter().map(String::as_str).collect::<Vec<_>>());
        let (mut all, mut more) = (Vec::<String>::new(), true);
        while more {
            let last = all.last().cloned().unwrap_or_default();
            let (entries, rest) = page(&store, "", &last, 0);
            assert!(entries.len() <= PAGE_ENTRIES);
            all.extend(entries);
            more = rest;
        }
        assert_eq!(all, names);
    }

    #[test]
    fn an_empty_key_is_refused() {
        let put = PutRequest { key: String::new(), value: Bytes::new() };
        let refused = Store::default().put(Request::new(put)).expect_err("the key is empty");
        assert_eq!(refused.code(), Code::InvalidArgument);
    }
}
