//! Qdrant, a vector database.

erpc_conformance::system!("qdrant", files: 7, services: 4, unary: 48, server: 0, client: 0, bidi: 0);
