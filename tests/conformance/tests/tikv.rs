//! TiKV and its placement driver, with gogoproto's options.

erpc_conformance::system!("tikv", files: 23, services: 14, unary: 112, server: 8, client: 10, bidi: 7);
