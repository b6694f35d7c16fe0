//! gRPC's own services: health and reflection.

erpc_conformance::system!("grpc", files: 3, services: 3, unary: 1, server: 1, client: 0, bidi: 2);
