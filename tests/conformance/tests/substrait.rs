//! Substrait's query plans, which nest deeply, under a service of ours.

erpc_conformance::system!("substrait", files: 10, services: 1, unary: 2, server: 0, client: 0, bidi: 1);
