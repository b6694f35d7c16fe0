//! The advice on stderr for a handler that needs a tokio runtime and has none, in a process
//! whose log nobody reads. The test runs itself in processes of its own.

use std::env;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use erpc_core::endpoint::Endpoint;
use erpc_core::server::Server;
use erpc_core::service::{Method, MethodCollision, Request, Response, Routes, Service};
use erpc_core::status::{Code, Status};

const NAP: Method<u32, u32> = Method::new("test.Advice/Nap");

/// Set in such a process: `log` if it uses the crate `log`.
const CHILD: &str = "ERPC_TEST_ADVICE_CHILD";

/// Prints the records of the crate `log` to stdout.
struct Printer;

impl log::Log for Printer {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        println!("{} {}: {}", record.level(), record.target(), record.args());
    }

    fn flush(&self) {}
}

struct Naive;

impl Naive {
    async fn nap(&self, _: Request<'_, u32>) -> Result<Response<u32>, Status> {
        tokio::time::sleep(Duration::ZERO).await;
        Ok(Response::new(0))
    }
}

impl Service for Naive {
    const NAME: &'static str = "test.Advice";

    fn register(self: Arc<Self>, routes: &mut Routes) -> Result<(), MethodCollision> {
        routes.unary_async(NAP, &self, async |naive: &Self, request| naive.nap(request).await)
    }
}

/// Calls the handler twice.
fn panic_twice() {
    let server = Server::builder().add_service(Naive).spawn("127.0.0.1:0").unwrap();
    let endpoint = Endpoint::udp().unwrap();
    let session = endpoint.connect(server.local_addr()).unwrap();
    for _ in 0..2 {
        let error = endpoint.block_on(session.call(&NAP, &0)).unwrap_err();
        assert_eq!(error.code(), Code::Internal);
    }
}

/// The lines of advice on stderr, and the records on stdout, of a process of its own.
fn output(child: &str) -> [Vec<String>; 2] {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", TEST, "--nocapture"]).env(CHILD, child).stdin(Stdio::null());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let lines = |text: Vec<u8>, prefix| {
        let text = String::from_utf8(text).unwrap();
        text.lines().filter(|line| line.starts_with(prefix)).map(str::to_owned).collect()
    };
    [lines(output.stderr, "erpc: "), lines(output.stdout, "ERROR erpc::handler: ")]
}

const TEST: &str = "a_handler_that_lacks_a_runtime_prints_advice_once_if_nothing_takes_the_log";

#[test]
fn a_handler_that_lacks_a_runtime_prints_advice_once_if_nothing_takes_the_log() {
    if let Some(child) = env::var_os(CHILD) {
        if child == "log" {
            log::set_logger(&Printer).unwrap();
            log::set_max_level(log::LevelFilter::Warn);
        }
        return panic_twice();
    }
    let [advice, records] = output("");
    assert_eq!((advice.len(), records.len()), (1, 0), "{advice:?} {records:?}");
    for part in ["test.Advice/Nap", "mode: TOKIO", "Mode::Tokio", ".tokio("] {
        assert!(advice[0].contains(part), "{part} is missing: {advice:?}");
    }
    let [advice, records] = output("log");
    assert_eq!((advice.len(), records.len()), (0, 2), "{advice:?} {records:?}");
    assert!(records[0].contains("handler panicked") && records[0].contains("mode: TOKIO"));
}
