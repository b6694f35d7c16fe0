//! The server: an index that all event loops and worker threads share.

use erpc::{Burst, Request, Response, Status};
use erpc_masstree::{BATCH, KeyTooLong, MAX_KEY, Masstree, pin};

use crate::proto::{
    Entry, GetReply, GetRequestView, Index, PutReply, PutRequestView, RemoveReply,
    RemoveRequestView, ScanReply, ScanRequestView,
};

/// Most keys of a scan. Bounds the time of a worker, and the size of the reply, to 10 MB.
const MAX_SCAN: u32 = 10_000;

/// The index. Scans run in worker threads, where they delay no other call. All other calls run in
/// the event loops.
#[derive(Debug, Default, erpc::Service)]
#[erpc(service = crate::proto::Index, worker(Scan), burst(Get = look_ahead))]
pub(crate) struct Store {
    index: Masstree<u64>,
}

impl Store {
    /// An index with these keys and values.
    pub(crate) fn filled(entries: impl Iterator<Item = ([u8; 8], u64)>) -> Self {
        let store = Self::default();
        for (key, value) in entries {
            // A key of 8 bytes is not too long.
            let _ = store.index.put(&key, value, &pin());
        }
        store
    }

    /// Reads the keys of all requests of a burst together, so that their cache misses overlap, and
    /// leaves the values for the handlers.
    fn look_ahead(&self, burst: Burst<'_, GetRequestView<'_>>) {
        let guard = pin();
        let mut requests = burst.iter();
        loop {
            let mut keys: [&[u8]; BATCH] = [&[]; BATCH];
            let mut batch = [const { None }; BATCH];
            let mut count = 0;
            for request in requests.by_ref().take(BATCH) {
                keys[count] = request.message().key;
                batch[count] = Some(request);
                count += 1;
            }
            if count == 0 {
                return;
            }
            self.index.get_many(&keys[..count], &guard, |at, value| {
                if let (Some(request), Some(value)) = (&batch[at], value) {
                    request.set_note(value);
                }
            });
        }
    }
}

impl Index for Store {
    fn get(&self, request: Request<'_, GetRequestView<'_>>) -> Result<Response<GetReply>, Status> {
        let key = request.message().key;
        // A request without a note has a key that was absent when the hook looked.
        let value = match request.note() {
            Some(value) => Some(value),
            None => self.index.get(check(key)?, &pin()),
        };
        let value = value.ok_or_else(|| Status::not_found("there is no such key"))?;
        Ok(Response::new(GetReply { value }))
    }

    fn put(&self, request: Request<'_, PutRequestView<'_>>) -> Result<Response<PutReply>, Status> {
        let message = request.message();
        let old = self.index.put(check(message.key)?, message.value, &pin());
        let replaced = old.map_err(too_long)?.is_some();
        Ok(Response::new(PutReply { replaced }))
    }

    fn remove(
        &self,
        request: Request<'_, RemoveRequestView<'_>>,
    ) -> Result<Response<RemoveReply>, Status> {
        let removed = self.index.remove(check(request.message().key)?, &pin());
        Ok(Response::new(RemoveReply { existed: removed.is_some() }))
    }

    fn scan(
        &self,
        request: Request<'_, ScanRequestView<'_>>,
    ) -> Result<Response<ScanReply>, Status> {
        let message = request.message();
        let (from, count) = (check(message.from)?, message.count);
        if !(1..=MAX_SCAN).contains(&count) {
            return Err(Status::invalid_argument(format!(
                "a scan of {count} keys: the number must be 1 to {MAX_SCAN}"
            )));
        }
        let guard = pin();
        let mut scan = if message.backward {
            self.index.scan_back(..=from, &guard)
        } else {
            self.index.scan(from.., &guard)
        };
        let mut reply = ScanReply::default();
        while reply.count < count
            && let Some((key, value)) = scan.next()
        {
            reply.count += 1;
            reply.sum = reply.sum.wrapping_add(value);
            if message.entries {
                reply.entries.push(Entry { key: key.to_vec(), value });
            }
        }
        Ok(Response::new(reply))
    }
}

/// The key, if it is not too long.
fn check(key: &[u8]) -> Result<&[u8], Status> {
    if key.len() > MAX_KEY { Err(too_long(KeyTooLong { length: key.len() })) } else { Ok(key) }
}

fn too_long(error: KeyTooLong) -> Status {
    Status::invalid_argument(error.to_string())
}

/// The same index with scans in the event loops, to compare.
#[derive(erpc::Service)]
#[erpc(service = crate::proto::Index, burst(Get = look_ahead))]
pub(crate) struct Undivided(pub(crate) Store);

impl Undivided {
    fn look_ahead(&self, burst: Burst<'_, GetRequestView<'_>>) {
        self.0.look_ahead(burst);
    }
}

impl Index for Undivided {
    fn get(&self, request: Request<'_, GetRequestView<'_>>) -> Result<Response<GetReply>, Status> {
        self.0.get(request)
    }

    fn put(&self, request: Request<'_, PutRequestView<'_>>) -> Result<Response<PutReply>, Status> {
        self.0.put(request)
    }

    fn remove(
        &self,
        request: Request<'_, RemoveRequestView<'_>>,
    ) -> Result<Response<RemoveReply>, Status> {
        self.0.remove(request)
    }

    fn scan(
        &self,
        request: Request<'_, ScanRequestView<'_>>,
    ) -> Result<Response<ScanReply>, Status> {
        self.0.scan(request)
    }
}

#[cfg(test)]
mod tests {
    use erpc::Code;

    use super::*;

    fn store() -> Store {
        Store::filled((0..100_u64).map(|number| (number.to_be_bytes(), number)))
    }

    fn scan(message: ScanRequestView<'_>) -> Result<ScanReply, Status> {
        let reply = store().scan(Request::new(message))?;
        Ok(reply.into_message().expect("a scan is not deferred"))
    }

    #[test]
    fn a_scan_returns_as_many_keys_as_there_are() {
        let from = 90_u64.to_be_bytes();
        let view = |count, entries, backward| {
            let mut view = ScanRequestView::default();
            (view.from, view.count, view.entries, view.backward) =
                (&from, count, entries, backward);
            view
        };
        let reply = scan(view(3, true, false)).unwrap();
        assert_eq!((reply.count, reply.sum), (3, 90 + 91 + 92));
        assert_eq!(reply.entries[2], Entry { key: 92_u64.to_be_bytes().to_vec(), value: 92 });
        let reply = scan(view(128, false, false)).unwrap();
        assert_eq!((reply.count, reply.entries.len()), (10, 0));
        let reply = scan(view(2, true, true)).unwrap();
        assert_eq!(reply.entries.iter().map(|entry| entry.value).collect::<Vec<_>>(), [90, 89]);
    }

    #[test]
    fn scans_of_no_keys_and_of_too_many_are_refused() {
        for count in [0, MAX_SCAN + 1, 1_000_000_000] {
            let status = scan(ScanRequestView { count, ..Default::default() })
                .expect_err("the number is not allowed");
            assert_eq!(status.code(), Code::InvalidArgument);
            assert!(status.message().contains(&count.to_string()), "{status:?}");
        }
    }

    #[test]
    fn a_key_that_is_too_long_is_refused() {
        let key = vec![1; MAX_KEY + 1];
        let store = store();
        let key = key.as_slice();
        let scan = ScanRequestView { from: key, count: 1, ..Default::default() };
        let refused = [
            store.get(Request::new(GetRequestView { key })).err(),
            store.put(Request::new(PutRequestView { key, value: 1 })).err(),
            store.remove(Request::new(RemoveRequestView { key })).err(),
            store.scan(Request::new(scan)).err(),
        ];
        for status in refused {
            let status = status.expect("the key is too long");
            assert_eq!(status.code(), Code::InvalidArgument);
            assert!(status.message().contains("1025 bytes"), "{status:?}");
        }
    }
}
