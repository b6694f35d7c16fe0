//! Pulsar's messages, which are proto2, under a service of ours.

erpc_conformance::system!("pulsar", files: 2, services: 1, unary: 1, server: 0, client: 1, bidi: 1);
