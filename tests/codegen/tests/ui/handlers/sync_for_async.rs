use erpc::{Request, Response, Status};
use erpc_codegen_tests::modes::{self, StoreEntry, StoreKey};

struct Store;

impl modes::Store for Store {
    fn get(&self, _: Request<'_, StoreKey>) -> Result<Response<StoreEntry>, Status> {
        todo!()
    }
    fn compact(&self, _: Request<'_, StoreKey>) -> Result<Response<StoreEntry>, Status> {
        todo!()
    }
    fn r#await(&self, _: Request<'_, StoreKey>) -> Result<Response<StoreEntry>, Status> {
        todo!()
    }
    fn fetch(&self, _: Request<'_, StoreKey>) -> Result<Response<StoreEntry>, Status> {
        todo!()
    }
}

fn main() {}
