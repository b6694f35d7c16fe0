//! The messages of raft-rs, with a service from `proto/raft.proto`.

erpc_conformance::system!("raft", files: 2, services: 1, unary: 1, server: 1, client: 1, bidi: 1);
