//! The complete service, with handlers of several kinds.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use erpc::{Channel, Endpoint, Incoming, Outgoing, Request, Response, Status};

use crate::stock::{
    AuditReply, AuditRequest, Change, CountReply, CountRequest, DeliverReply, LocalStockClient,
    MoveReply, MoveRequest, Parcel, Stock, TakeReply, TakeRequest, WatchRequest,
};

/// Interval at which a watcher looks for changes.
const LOOK: Duration = Duration::from_micros(200);

/// A warehouse, shared by all event loops of a server.
#[derive(Default, erpc::Service)]
#[erpc(service = crate::stock::Stock)]
pub struct Warehouse {
    items: Mutex<HashMap<String, u64>>,
}

impl Warehouse {
    /// A warehouse with `count` pieces of `item`.
    #[must_use]
    pub fn with(item: &str, count: u64) -> Self {
        Self { items: Mutex::new(HashMap::from([(item.to_owned(), count)])) }
    }

    fn items(&self) -> MutexGuard<'_, HashMap<String, u64>> {
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count_of(&self, item: &str) -> Result<u64, Status> {
        self.items().get(item).copied().ok_or(Status::not_found("no such item"))
    }

    fn add(&self, parcel: &Parcel) {
        *self.items().entry(parcel.item.clone()).or_default() += parcel.count;
    }

    fn remove(&self, item: &str, count: u64) -> Result<u64, Status> {
        let mut items = self.items();
        let there = items.get_mut(item).ok_or(Status::not_found("no such item"))?;
        let left =
            there.checked_sub(count).ok_or(Status::failed_precondition("there are fewer"))?;
        *there = left;
        Ok(left)
    }
}

impl Stock for Warehouse {
    fn count(&self, request: Request<'_, CountRequest>) -> Result<Response<CountReply>, Status> {
        let count = self.count_of(&request.message().item)?;
        Ok(Response::new(CountReply { count }))
    }

    fn take(&self, request: Request<'_, TakeRequest>) -> Result<Response<TakeReply>, Status> {
        let TakeRequest { item, count } = request.message();
        let left = self.remove(item, *count)?;
        Ok(Response::new(TakeReply { left }))
    }

    fn audit(&self, _: Request<'_, AuditRequest>) -> Result<Response<AuditReply>, Status> {
        let items = self.items();
        let count = items.values().sum();
        Ok(Response::new(AuditReply { items: items.len() as u64, count }))
    }

    async fn r#move(
        &self,
        request: Request<'_, MoveRequest>,
    ) -> Result<Response<MoveReply>, Status> {
        let MoveRequest { item, count, to } = request.into_message();
        let to: SocketAddr =
            to.parse().map_err(|_| Status::invalid_argument("`to` is no address"))?;
        let other = neighbor(to)?;
        self.remove(&item, count)?;
        let parcel = Parcel { item, count };
        let delivery = other.deliver();
        let delivered = match delivery.send(&parcel).await {
            Ok(()) => delivery.finish().await,
            Err(error) => Err(error),
        };
        if let Err(error) = delivered {
            // The delivery failed here, but the other warehouse may have received the parcel. A
            // strict warehouse would first ask the other warehouse.
            self.add(&parcel);
            return Err(error.into());
        }
        Ok(Response::new(MoveReply {}))
    }

    async fn watch(
        &self,
        request: Request<'_, WatchRequest>,
        out: Outgoing<Change>,
    ) -> Result<(), Status> {
        let item = &request.message().item;
        let mut told = None;
        while !out.is_closed() {
            let count = self.count_of(item)?;
            if told.replace(count) != Some(count) {
                out.send(&Change { count }).await?;
            }
            erpc::sleep(LOOK).await;
        }
        Ok(())
    }

    async fn deliver(
        &self,
        request: Request<'_, Incoming<Parcel>>,
    ) -> Result<Response<DeliverReply>, Status> {
        let (mut incoming, mut parcels) = (request.into_message(), 0);
        while let Some(parcel) = incoming.next().await? {
            self.add(&parcel);
            parcels += 1;
        }
        Ok(Response::new(DeliverReply { parcels }))
    }
}

/// A client of the warehouse at `address`. The event loop keeps one client per address. The channel
/// connects at its first use, and reconnects after the other warehouse was down.
fn neighbor(address: SocketAddr) -> Result<LocalStockClient, Status> {
    type Neighbors = RefCell<HashMap<SocketAddr, LocalStockClient>>;
    let endpoint: Option<Endpoint> = Endpoint::current();
    let endpoint = endpoint.ok_or_else(|| Status::internal("not in an event loop"))?;
    let neighbors = endpoint.local(|_| Neighbors::default());
    let mut neighbors = neighbors.borrow_mut();
    let connect = || LocalStockClient::new(Channel::to(&endpoint, vec![address.into()]).build());
    Ok(neighbors.entry(address).or_insert_with(connect).clone())
}
