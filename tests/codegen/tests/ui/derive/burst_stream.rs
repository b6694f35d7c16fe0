use erpc::{Burst, Incoming, Outgoing, Request, Response, Status};
use erpc_codegen_tests::streams::{self, FeedEntry, FeedKey};

#[derive(erpc::Service)]
#[erpc(service = streams::Feed, burst(Get = look_ahead, Watch = look_ahead))]
struct Feed;

impl Feed {
    fn look_ahead(&self, _: Burst<'_, FeedKey>) {}
}

impl streams::Feed for Feed {
    fn get(&self, _: Request<'_, FeedKey>) -> Result<Response<FeedEntry>, Status> {
        todo!()
    }
    async fn watch(&self, _: Request<'_, FeedKey>, _: Outgoing<FeedEntry>) -> Result<(), Status> {
        todo!()
    }
    async fn upload(&self, _: Request<'_, Incoming<FeedEntry>>) -> Result<Response<FeedKey>, Status> {
        todo!()
    }
    async fn sync(
        &self,
        _: Request<'_, Incoming<FeedEntry>>,
        _: Outgoing<FeedEntry>,
    ) -> Result<(), Status> {
        todo!()
    }
}

fn main() {}
