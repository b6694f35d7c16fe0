//! The messages between members, generated from `proto/txn.proto`.

erpc::include_proto!("txn.v1");
