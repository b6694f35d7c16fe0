//! SPIFFE's workload and broker APIs.

erpc_conformance::system!("spiffe", files: 2, services: 2, unary: 3, server: 6, client: 0, bidi: 0);
