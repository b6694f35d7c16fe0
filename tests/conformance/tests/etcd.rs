//! etcd, a replicated store.

erpc_conformance::system!("etcd", files: 5, services: 8, unary: 42, server: 2, client: 0, bidi: 2);
