use std::sync::Mutex;
use std::time::Duration;

use erpc::{
    Incoming, Outgoing, Request, Response, SharedIncoming, SharedOutgoing, SharedRequest, Status,
};
use erpc_codegen_tests::library::{Book, Library, Shelf};

struct Reading {
    readers: Mutex<u64>,
}

impl Library for Reading {
    async fn find(&self, _: SharedRequest<Shelf>) -> Result<Response<Book>, Status> {
        let mut readers = self.readers.lock().unwrap();
        tokio::time::sleep(Duration::from_millis(1)).await;
        *readers += 1;
        Ok(Response::new(Book::default()))
    }
    fn peek(&self, _: Request<'_, Shelf>) -> Result<Response<Book>, Status> {
        todo!()
    }
    async fn wait(&self, _: Request<'_, Shelf>) -> Result<Response<Book>, Status> {
        todo!()
    }
    async fn list(&self, _: SharedRequest<Shelf>, _: SharedOutgoing<Book>) -> Result<(), Status> {
        todo!()
    }
    async fn r#return(
        &self,
        _: SharedRequest<SharedIncoming<Book>>,
    ) -> Result<Response<Shelf>, Status> {
        todo!()
    }
    async fn swap(
        &self,
        _: SharedRequest<SharedIncoming<Book>>,
        _: SharedOutgoing<Book>,
    ) -> Result<(), Status> {
        todo!()
    }
    async fn offer(
        &self,
        _: Request<'_, Incoming<Book>>,
        _: Outgoing<Book>,
    ) -> Result<(), Status> {
        todo!()
    }
}

fn main() {}
