//! The command `erpc-raft`. `cargo run --example raft` is the same program.

fn main() -> std::process::ExitCode {
    erpc_raft::program::main()
}
