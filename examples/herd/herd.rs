//! HERD's cache and sequencer over erpc. See `examples/herd`.

fn main() -> std::process::ExitCode {
    erpc_herd::program::main()
}
