//! OpenTelemetry's collector.

erpc_conformance::system!("opentelemetry", files: 10, services: 4, unary: 4, server: 0, client: 0, bidi: 0);
