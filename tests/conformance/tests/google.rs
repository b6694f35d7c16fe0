//! A part of Google's APIs: Bigtable, Datastore, Firestore, Logging, Pub/Sub, Spanner, Speech,
//! Storage.

erpc_conformance::system!("google", files: 41, services: 17, unary: 169, server: 15, client: 2, bidi: 8);
