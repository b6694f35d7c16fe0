//! The console of tokio.

erpc_conformance::system!("tokio-console", files: 6, services: 2, unary: 2, server: 3, client: 0, bidi: 0);
