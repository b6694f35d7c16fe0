//! containerd, a container runtime. Its well-known types are generated, too.

erpc_conformance::system!("containerd", files: 38, services: 16, unary: 77, server: 5, client: 0, bidi: 2);
