//! Yellowstone, which streams the events of the Solana blockchain.

erpc_conformance::system!("yellowstone", files: 2, services: 1, unary: 7, server: 0, client: 0, bidi: 1);
