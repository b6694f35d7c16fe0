//! Envoy and xDS, which configures proxies; mostly bidirectional streams.

erpc_conformance::system!("envoy", files: 25, services: 24, unary: 13, server: 0, client: 3, bidi: 27);
