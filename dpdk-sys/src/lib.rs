//! Bindings of the system's DPDK, 22.11 or later.
//!
//! DPDK's fast path consists of functions that its headers define inline, and of structs whose
//! layout changes between versions. A C shim (`shim.c`) wraps both: it moves whole bursts, so a
//! call across the language border is made once per burst, and Rust never reads a DPDK struct.
//! bindgen binds the shim and the few functions that are exported as they are.
//!
//! The safe layer is `erpc_core::transport::dpdk`.

#[expect(missing_docs, reason = "generated from C headers")]
mod bindings {
    include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
}

pub use bindings::*;
