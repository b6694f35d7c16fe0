//! Pulsar's messages, which are proto2, with a service from `proto/pulsar.proto`.

erpc_conformance::system!("pulsar", files: 2, services: 1, unary: 1, server: 0, client: 1, bidi: 1);
