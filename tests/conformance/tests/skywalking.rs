//! SkyWalking, which collects traces; mostly streams of requests. Some files have no package.

erpc_conformance::system!("skywalking", files: 22, services: 21, unary: 20, server: 0, client: 14, bidi: 0);
