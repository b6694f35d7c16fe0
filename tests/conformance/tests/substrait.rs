//! Substrait's query plans, which are deeply nested, with a service from `proto/substrait.proto`.

erpc_conformance::system!("substrait", files: 10, services: 1, unary: 2, server: 0, client: 0, bidi: 1);
