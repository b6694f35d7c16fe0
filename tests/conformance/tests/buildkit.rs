//! BuildKit, which builds container images.

erpc_conformance::system!("buildkit", files: 15, services: 8, unary: 13, server: 4, client: 0, bidi: 6);
