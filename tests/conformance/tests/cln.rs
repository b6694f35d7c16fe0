erpc_conformance::system!("cln", files: 2, services: 1, unary: 153, server: 24, client: 0, bidi: 0);
