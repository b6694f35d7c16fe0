use erpc::{Request, Response, Status};
use erpc_codegen_tests::modes::{self, Entry, Key};

struct Store;

impl modes::Store for Store {
    async fn get(&self, _: Request<'_, Key>) -> Result<Response<Entry>, Status> {
        todo!()
    }
    fn compact(&self, _: Request<'_, Key>) -> Result<Response<Entry>, Status> {
        todo!()
    }
    async fn r#await(&self, _: Request<'_, Key>) -> Result<Response<Entry>, Status> {
        todo!()
    }
    fn fetch(&self, _: Request<'_, Key>) -> Result<Response<Entry>, Status> {
        todo!()
    }
}

fn main() {}
