//! HERD's cache and sequencer over erpc, as a program.

fn main() -> std::process::ExitCode {
    erpc_herd::program::main()
}
