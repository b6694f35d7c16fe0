//! The modes of unary methods: about one third each in the event loop, on workers, and as async
//! functions.

use erpc_build::Mode;
use prost_reflect::MethodDescriptor;

use crate::names::full_name;

/// The mode of a method, by its name. `None` for a streaming method, which has no mode.
pub fn mode(method: &MethodDescriptor) -> Option<Mode> {
    if method.is_client_streaming() || method.is_server_streaming() {
        return None;
    }
    Some(match full_name(method).bytes().map(u32::from).sum::<u32>() % 3 {
        0 => Mode::Dispatch,
        1 => Mode::Worker,
        _ => Mode::Async,
    })
}
