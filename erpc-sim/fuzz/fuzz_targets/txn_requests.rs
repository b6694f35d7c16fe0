#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| erpc_sim::fuzz::txn_requests(data));
