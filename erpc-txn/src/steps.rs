//! Keys and accesses in the messages between a program and the member that coordinates for it.
#![forbid(unsafe_code)]

use crate::participant::{Access, Kind, Place};
use crate::proto;

/// The kind of access with this number. None if there is none.
pub(crate) fn kind(number: i32) -> Option<Kind> {
    match proto::Kind::try_from(number).ok()? {
        proto::Kind::Unspecified => None,
        proto::Kind::Read => Some(Kind::Read),
        proto::Kind::Update => Some(Kind::Update),
        proto::Kind::Insert => Some(Kind::Insert),
    }
}

/// The key. None if no table has such a number.
pub(crate) fn place(place: &proto::Place) -> Option<Place> {
    Some(Place { table: u16::try_from(place.table).ok()?, key: place.key })
}

/// The access. None if it has no kind, or no table has such a number.
pub(crate) fn access(access: &proto::Access) -> Option<Access> {
    let &proto::Access { table, key, kind: number } = access;
    Some(Access { place: place(&proto::Place { table, key })?, kind: kind(number)? })
}

impl From<Kind> for proto::Kind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Read => Self::Read,
            Kind::Update => Self::Update,
            Kind::Insert => Self::Insert,
        }
    }
}

impl From<&Place> for proto::Place {
    fn from(place: &Place) -> Self {
        Self { table: place.table.into(), key: place.key }
    }
}

impl From<&Access> for proto::Access {
    fn from(access: &Access) -> Self {
        let Place { table, key } = access.place;
        Self { table: table.into(), key, kind: proto::Kind::from(access.kind).into() }
    }
}
