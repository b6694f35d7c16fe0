#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    erpc_raft::fuzz::peer_messages(data);
});
