//! A replicated key-value store: Raft over erpc. See `examples/raft`.

fn main() -> std::process::ExitCode {
    erpc_raft::program::main()
}
