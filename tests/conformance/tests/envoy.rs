//! Envoy and xDS, which is how proxies are told what to do; mostly streams both ways.

erpc_conformance::system!("envoy", files: 25, services: 24, unary: 13, server: 0, client: 3, bidi: 27);
