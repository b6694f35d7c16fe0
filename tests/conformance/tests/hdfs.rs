//! HDFS, a distributed file system. All of it is proto2.

erpc_conformance::system!("hdfs", files: 10, services: 3, unary: 130, server: 0, client: 0, bidi: 0);
