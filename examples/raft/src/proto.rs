//! The services and their messages, generated from `proto/raft.proto`.

erpc::include_proto!("raft.v1");
