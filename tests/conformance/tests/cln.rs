//! Core Lightning, a node of the Lightning network: one service of 177 methods.

erpc_conformance::system!("cln", files: 2, services: 1, unary: 153, server: 24, client: 0, bidi: 0);
