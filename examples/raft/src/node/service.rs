//! The services of a node. Handlers check what does not depend on the node's state, and put the rest into
//! its inbox.

use std::marker::PhantomData;
use std::rc::Rc;

use bytes::Bytes;
use erpc::{Endpoint, Request, Responder, Response, Status, Transport, Udp};

use super::Inbox;
use super::inbox::{Envelope, Mail, Parcel, Rare, Read};
use crate::machine::{Command, check_key, check_value};
use crate::proto;

/// Serves clients and other nodes on an endpoint on which a node was [started](super::start).
#[derive(Debug)]
pub struct Front<T: Transport = Udp> {
    transport: PhantomData<fn(T)>,
}

/// The part for clients.
#[derive(Debug, erpc::Service)]
#[erpc(service = proto::Store)]
struct ForClients<T: Transport>(PhantomData<fn(T)>);

/// The part for other nodes.
#[derive(Debug, erpc::Service)]
#[erpc(service = proto::Peer)]
struct ForNodes<T: Transport>(PhantomData<fn(T)>);

impl<T: Transport> Front<T> {
    /// The routes of both services.
    #[must_use]
    pub fn routes() -> erpc::service::Routes {
        use erpc::Service;
        use std::sync::Arc;
        let mut routes = erpc::service::Routes::new();
        let clients = Arc::new(ForClients::<T>(PhantomData)).register(&mut routes);
        let nodes = Arc::new(ForNodes::<T>(PhantomData)).register(&mut routes);
        clients.and(nodes).expect("the build script refuses a service whose methods collide");
        routes
    }
}

fn inbox<T: Transport>() -> Result<Rc<Inbox>, Status> {
    let endpoint =
        Endpoint::<T>::current().ok_or_else(|| Status::internal("not in an event loop"))?;
    Ok(Inbox::of(&endpoint))
}

fn put<R>(inbox: &Inbox, responder: Responder<R>, put: impl FnOnce(&mut Mail, Responder<R>)) {
    let mut responder = Some(responder);
    let result = inbox.put(|mail| {
        if let Some(responder) = responder.take() {
            put(mail, responder);
        }
    });
    if let (Err(status), Some(responder)) = (result, responder) {
        responder.fail(status);
    }
}

fn wrong(text: String) -> Status {
    Status::invalid_argument(text)
}

impl<T: Transport> proto::Store for ForClients<T> {
    fn open(
        &self,
        request: Request<'_, proto::OpenRequest>,
    ) -> Result<Response<proto::OpenReply>, Status> {
        let inbox = inbox::<T>()?;
        Ok(request.defer(|_, responder| {
            put(&inbox, responder, |mail, responder| mail.rare.push(Rare::Open(responder)));
        }))
    }

    fn put(
        &self,
        request: Request<'_, proto::PutRequestView<'_>>,
    ) -> Result<Response<proto::WriteReply>, Status> {
        let &proto::PutRequestView { session, sequence, key, value, .. } = request.message();
        check_key(key).and(check_value(value)).map_err(wrong)?;
        let command = Command::Put { session, sequence, key, value }.encode();
        write::<T, _>(request, command)
    }

    fn cas(
        &self,
        request: Request<'_, proto::CasRequestView<'_>>,
    ) -> Result<Response<proto::WriteReply>, Status> {
        let &proto::CasRequestView { session, sequence, key, absent, expected, value, .. } =
            request.message();
        check_key(key).and(check_value(value)).and(check_value(expected)).map_err(wrong)?;
        let expected = (!absent).then_some(expected);
        let command = Command::Cas { session, sequence, key, expected, value }.encode();
        write::<T, _>(request, command)
    }

    fn get(
        &self,
        request: Request<'_, proto::GetRequestView<'_>>,
    ) -> Result<Response<proto::GetReply>, Status> {
        check_key(request.message().key).map_err(wrong)?;
        let inbox = inbox::<T>()?;
        Ok(request.defer(|message, responder| {
            let key = Bytes::copy_from_slice(message.key);
            put(&inbox, responder, |mail, responder| mail.reads.push(Read { key, responder }));
        }))
    }

    fn get_status(
        &self,
        request: Request<'_, proto::StatusRequest>,
    ) -> Result<Response<proto::StatusReply>, Status> {
        let inbox = inbox::<T>()?;
        Ok(request.defer(|_, responder| {
            put(&inbox, responder, |mail, responder| mail.rare.push(Rare::Status(responder)));
        }))
    }

    fn change(
        &self,
        request: Request<'_, proto::ChangeRequest>,
    ) -> Result<Response<proto::ChangeReply>, Status> {
        let inbox = inbox::<T>()?;
        let message = request.message();
        let ids = message.add.iter().map(|member| member.id).chain(message.remove.iter().copied());
        if ids.clone().any(|id| id == 0) || ids.clone().count() == 0 || ids.count() > 32 {
            return Err(wrong("a change names 1 to 32 nodes, none of them 0".into()));
        }
        if message.add.iter().any(|member| !(1..=100).contains(&member.address.len())) {
            return Err(wrong(
                "each node that is added needs an address, at most 100 bytes".into(),
            ));
        }
        Ok(request.defer(|message, responder| {
            put(&inbox, responder, |mail, responder| {
                mail.rare.push(Rare::Change(message, responder))
            });
        }))
    }

    fn transfer(
        &self,
        request: Request<'_, proto::TransferRequest>,
    ) -> Result<Response<proto::TransferReply>, Status> {
        let inbox = inbox::<T>()?;
        Ok(request.defer(|message, responder| {
            put(&inbox, responder, |mail, responder| {
                mail.rare.push(Rare::Transfer(message.to, responder));
            });
        }))
    }
}

fn write<T: Transport, M>(
    request: Request<'_, M>,
    command: Vec<u8>,
) -> Result<Response<proto::WriteReply>, Status> {
    let inbox = inbox::<T>()?;
    Ok(request.defer(|_, responder| {
        put(&inbox, responder, |mail, responder| mail.writes.push((command.into(), responder)));
    }))
}

impl<T: Transport> proto::Peer for ForNodes<T> {
    fn deliver(
        &self,
        request: Request<'_, proto::ParcelView<'_>>,
    ) -> Result<Response<proto::Letters>, Status> {
        let inbox = inbox::<T>()?;
        Ok(request.defer(|message, responder| {
            let proto::ParcelView { cluster, from, to, incarnation, letters, .. } = message;
            let letters = Bytes::copy_from_slice(letters);
            put(&inbox, responder, |mail, responder| {
                let request = Some(Envelope { cluster, to, responder });
                mail.parcels.push(Parcel { from, letters, incarnation, request });
            });
        }))
    }

    fn install(
        &self,
        request: Request<'_, proto::PieceView<'_>>,
    ) -> Result<Response<proto::PieceReply>, Status> {
        let inbox = inbox::<T>()?;
        Ok(request.defer(|message, responder| {
            let proto::PieceView { cluster, from, to, incarnation, transfer, .. } = message;
            let proto::PieceView { offset, total, data, letter, .. } = message;
            let data = Bytes::copy_from_slice(data);
            let letter = Bytes::copy_from_slice(letter);
            let piece = proto::Piece {
                cluster,
                from,
                to,
                incarnation,
                transfer,
                offset,
                total,
                data,
                letter,
            };
            put(&inbox, responder, |mail, responder| mail.rare.push(Rare::Piece(piece, responder)));
        }))
    }
}
