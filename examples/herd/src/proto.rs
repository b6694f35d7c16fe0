//! The services and their messages, generated from `proto/herd.proto`.

erpc::include_proto!("herd.v1");
