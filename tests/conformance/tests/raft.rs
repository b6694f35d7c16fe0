//! raft-rs' messages under a service of ours.

erpc_conformance::system!("raft", files: 2, services: 1, unary: 1, server: 1, client: 1, bidi: 1);
