#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    erpc_raft::fuzz::omni_messages(data);
});
