//! The Kubernetes CRI, in two versions.

erpc_conformance::system!("kubernetes", files: 2, services: 4, unary: 59, server: 1, client: 0, bidi: 0);
