//! Requests that no coordinator sends: the service refuses them, says why, and changes nothing.
#![cfg(not(loom))]

use std::error::Error;
use std::sync::Arc;

use bytes::Bytes;
use erpc::testing::{VirtualNetwork, VirtualTransport};
use erpc::{Call, Endpoint};
use erpc_txn::cluster::{NodeId, Ring};
use erpc_txn::lists::{Outcomes, pack};
use erpc_txn::log::Coordinator;
use erpc_txn::participant::{Access, Kind, Participant, Place, Seen, Settings, VERSION};
use erpc_txn::proto::{
    AppendRequest, CommitRequest, ExecuteRequest, FinishRequest, Introduction,
    LocalParticipantClient, Reply, UnlockRequest, ValidateRequest, Verdict,
};
use erpc_txn::service::Member;
use erpc_txn::table::{Config, Version};

const TABLE: u16 = 3;
const EPOCH: u32 = 9;
const INCARNATION: u32 = 77;

fn verdict(
    endpoint: &Endpoint<VirtualTransport>,
    call: Call<Reply, VirtualTransport>,
) -> Result<Verdict, Box<dyn Error>> {
    let reply = endpoint.block_on(call)?;
    assert_eq!(reply.epoch, EPOCH);
    assert_eq!(reply.reason.is_empty(), reply.verdict() == Verdict::Done, "{reply:?}");
    Ok(reply.verdict())
}

#[test]
fn wrong_requests_are_refused_and_change_nothing() -> Result<(), Box<dyn Error>> {
    let ring = Arc::new(Ring::new(EPOCH, [NodeId(0)], 0)?);
    let settings = Settings {
        tables: [(TABLE, Config::new(100))].into(),
        threads: 1,
        log_bytes: 1000,
        log_records: 4,
    };
    let participant = Arc::new(Participant::new(NodeId(0), INCARNATION, ring, settings)?);
    let network = VirtualNetwork::new(1);
    let server = network.serve(Member::new(Arc::clone(&participant)));
    let endpoint = network.endpoint();
    let client = LocalParticipantClient::connect(&endpoint, server.route())?;

    let place = Place { table: TABLE, key: 8 };
    let insert = Access { place, kind: Kind::Insert };
    let good = ExecuteRequest {
        epoch: EPOCH,
        incarnation: INCARNATION,
        transaction: 1,
        accesses: pack(&[insert]),
    };
    let no_kind = [&pack(&[insert])[..], &[0], &pack(&[place])].concat().into();
    let no_table = Access { place: Place { table: 4, key: 8 }, ..insert };
    let foreign = Coordinator { node: 5, thread: 0 }.transaction(1).ok_or("in range")?.get();
    let wrong = [
        (ExecuteRequest { epoch: EPOCH + 1, ..good.clone() }, Verdict::Epoch),
        (ExecuteRequest { incarnation: 1, ..good.clone() }, Verdict::Restarted),
        (ExecuteRequest { transaction: 0, ..good.clone() }, Verdict::Refused),
        (ExecuteRequest { transaction: foreign, ..good.clone() }, Verdict::Refused),
        (ExecuteRequest { accesses: pack(&[insert, no_table]), ..good.clone() }, Verdict::Refused),
        (ExecuteRequest { accesses: no_kind, ..good.clone() }, Verdict::Refused),
        (ExecuteRequest { accesses: good.accesses.slice(1..), ..good.clone() }, Verdict::Refused),
    ];
    for (request, expected) in &wrong {
        let reply = endpoint.block_on(client.execute(request))?;
        assert_eq!(reply.verdict(), *expected, "{request:?}");
        assert!(!reply.reason.is_empty() && reply.outcomes.is_empty());
        assert_eq!(participant.locks(), [], "{request:?}");
    }

    // No version is as high.
    let seen = pack(&[Seen { place, version: Version::MAX }]);
    let seen = [&seen[..seen.len() - 8], &[0xff; 8]].concat();
    let (epoch, incarnation, transaction) = (EPOCH, INCARNATION, 1);
    let validate = ValidateRequest { epoch, incarnation, transaction, reads: seen.into() };
    assert_eq!(verdict(&endpoint, client.validate(validate))?, Verdict::Refused);
    let keys = pack(&[place, Place { table: TABLE + 1, key: 0 }]);
    let unlock = UnlockRequest { epoch, incarnation, transaction, keys, bury: true };
    assert_eq!(verdict(&endpoint, client.unlock(unlock))?, Verdict::Refused);
    assert_eq!(participant.buried(), 0);

    for record in [&b""[..], b"no record", &[0; 40]] {
        let record = Bytes::copy_from_slice(record);
        let commit = CommitRequest { incarnation, record: record.clone() };
        assert_eq!(verdict(&endpoint, client.commit_primary(&commit))?, Verdict::Refused);
        assert_eq!(verdict(&endpoint, client.commit_backup(&commit))?, Verdict::Refused);
        let append = AppendRequest { incarnation, record, floor: 1, ended: Bytes::new() };
        assert_eq!(verdict(&endpoint, client.append(append))?, Verdict::Refused);
    }
    let ended = Bytes::from_static(b"seven b");
    let append = AppendRequest { incarnation, record: Bytes::new(), floor: 0, ended };
    assert_eq!(verdict(&endpoint, client.append(append))?, Verdict::Refused);
    let finish = FinishRequest {
        epoch,
        incarnation,
        node: 70_000,
        thread: 0,
        floor: u64::MAX,
        ended: vec![1],
        bury: true,
    };
    assert_eq!(verdict(&endpoint, client.finish(finish))?, Verdict::Refused);

    let version = VERSION;
    let stranger = Introduction { epoch, node: 1, incarnation: 1, configuration: 1, version };
    let wrong = [
        (stranger, Verdict::Refused, "node 1 is not in the configuration"),
        (Introduction { node: 0, ..stranger }, Verdict::Refused, "has another configuration"),
        (Introduction { node: 0, epoch: 1, ..stranger }, Verdict::Epoch, "has epoch"),
        (Introduction { version: 0, ..stranger }, Verdict::Refused, "has version 0"),
    ];
    for (introduction, expected, why) in wrong {
        let reply = endpoint.block_on(client.meet(introduction))?;
        assert_eq!(reply.verdict(), expected);
        assert!(reply.reason.contains(why), "{}", reply.reason);
        assert_eq!(reply.member.map(|member| member.incarnation), Some(INCARNATION));
    }

    // After all this, the right request is done.
    let reply = endpoint.block_on(client.execute(&good))?;
    let outcome = Outcomes::new(reply.outcomes.clone()).next().ok_or("one outcome")??;
    assert_eq!((reply.verdict(), outcome.verdict), (Verdict::Done, Verdict::Done));
    assert_eq!(participant.locks().len(), 1);
    Ok(())
}
