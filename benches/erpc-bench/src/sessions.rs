//! `sessions`: the memory and the CPU time of idle sessions.

use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use erpc::raw::{
    Acceptor, App, Context, ListenGroup, MsgBuf, NewCall, Reply, Request, Rpc, SessionEvent,
    SessionId,
};
use erpc::transport::mem::{MemConfig, MemHub, MemRoute, MemTransport};
use erpc::{CallError, EndpointConfig};
use erpc_core::protocol::DEFAULT_SLOTS;
use erpc_test_tools::counting::Account;

use crate::failure::Failure;
use crate::machine;
use crate::methods;
use crate::report::Line;

#[derive(Args)]
pub(crate) struct SessionsArgs {
    /// Sessions between two endpoints
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=32_768))]
    sessions: u32,
    /// Calls that each session makes at the same time before it is idle, each in a slot of its own.
    /// The server keeps a buffer for each slot that was used
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=DEFAULT_SLOTS as i64))]
    calls: u32,
    /// Duration of the measurement of CPU time, in seconds, after two ping intervals
    #[arg(long, default_value_t = 6.0, value_parser = machine::seconds)]
    secs: f64,
    /// Core to run on
    #[arg(long, default_value_t = 0)]
    core: usize,
}

/// Longest sleep between two turns, if no timer is due earlier.
const NAP: Duration = Duration::from_millis(100);
/// Bytes of requests and responses.
const SIZE: usize = 32;
/// Time before the measurements: two ping intervals of the default configuration. Then the pings of
/// the sessions are spread as they will stay, and clients have confirmed all responses.
const SETTLE: Duration = Duration::from_secs(6);

/// An endpoint, the sessions that it has opened, and what it has allocated.
struct End {
    rpc: Rpc<MemTransport>,
    app: Opened,
    account: Account,
}

#[derive(Default)]
struct Opened {
    sessions: u32,
    /// Number of answered calls.
    answered: u32,
    failure: Option<Failure>,
}

impl App<MemTransport> for Opened {
    fn on_request(&mut self, cx: &mut Context<'_, MemTransport>, request: Request<'_, MemRoute>) {
        match cx.response_buffer(request.buffer, SIZE) {
            Ok(mut response) => {
                response.resize(SIZE);
                cx.respond(request.handle, response, false);
            }
            Err(error) => self.failure = Some(Failure::of("no response")(error)),
        }
    }

    fn on_reply(
        &mut self,
        cx: &mut Context<'_, MemTransport>,
        _: u64,
        reply: Result<Reply<'_>, CallError>,
        request: MsgBuf,
    ) {
        self.answered += 1;
        cx.recycle(request);
        if let Err(error) = reply {
            self.failure = Some(Failure::of("a call failed")(error));
        }
    }

    fn on_session(&mut self, _: &mut Context<'_, MemTransport>, _: SessionId, event: SessionEvent) {
        match event {
            SessionEvent::Opened => self.sessions += 1,
            SessionEvent::Draining => {}
            SessionEvent::Closed(cause) => {
                self.failure = Some(Failure::new(format!("a session closed: {cause}")));
            }
        }
    }
}

impl End {
    fn new(port: MemTransport, account: usize) -> Result<Self, Failure> {
        let account = Account::new(account);
        let rpc = account.charge(|| Rpc::new(port, EndpointConfig::new()));
        let rpc = rpc.map_err(Failure::of("no endpoint"))?;
        Ok(Self { rpc, app: Opened::default(), account })
    }

    /// The time to the endpoint's next timer.
    fn until_timer(&mut self) -> Duration {
        let now = self.rpc.context().now();
        self.rpc.next_deadline().map_or(Duration::MAX, |deadline| deadline - now)
    }

    /// Runs a turn. Returns the amount of work.
    fn turn(&mut self) -> usize {
        let Self { rpc, app, account } = self;
        account.charge(|| rpc.run_once(app))
    }
}

/// Opens `count` sessions.
fn open(client: &mut End, server: &mut End, count: u32) -> Result<Vec<SessionId>, Failure> {
    let (peer, all) = (server.rpc.local_route(), client.app.sessions + count);
    let mut sessions = Vec::new();
    for _ in 0..count {
        let End { rpc, account, .. } = client;
        let opened = account.charge(|| rpc.context().connect(peer));
        sessions.push(opened.map_err(Failure::of("cannot connect"))?);
    }
    until(client, server, |client| client.sessions == all)?;
    Ok(sessions)
}

/// Makes `calls` calls on each session. One session after the other, so that the buffers of the
/// requests take no memory that counts.
fn call(
    client: &mut End,
    server: &mut End,
    sessions: &[SessionId],
    calls: u32,
) -> Result<(), Failure> {
    for session in sessions {
        let all = client.app.answered + calls;
        let End { rpc, account, .. } = client;
        account.charge(|| {
            let mut cx = rpc.context();
            for _ in 0..calls {
                let mut request = cx.alloc(SIZE).map_err(Failure::of("no request"))?;
                request.resize(SIZE);
                let made = cx.call(*session, NewCall::new(methods::MIRROR, request, 0));
                made.map_err(|rejected| Failure::of("no call")(rejected.reason))?;
            }
            Ok(())
        })?;
        until(client, server, |client| client.answered == all)?;
    }
    Ok(())
}

/// Runs turns until `is_done`.
fn until(
    client: &mut End,
    server: &mut End,
    is_done: impl Fn(&Opened) -> bool,
) -> Result<(), Failure> {
    while !is_done(&client.app) {
        client.turn();
        server.turn();
        client.app.failure.take().or(server.app.failure.take()).map_or(Ok(()), Err)?;
    }
    Ok(())
}

/// Runs turns for `time` as a loop that sleeps while it has no work. Returns the CPU time.
fn rest(client: &mut End, server: &mut End, time: Duration) -> Duration {
    let (start, before) = (Instant::now(), machine::cpu_time());
    while start.elapsed() < time {
        if client.turn() + server.turn() == 0 {
            // The client's wait ends at its next timer, or when the server has sent something. The
            // server has no packet to receive, because its turn came last.
            client.rpc.wait(Some(NAP.min(server.until_timer())));
            server.rpc.rested();
        }
    }
    machine::cpu_time() - before
}

/// Measures and prints one line.
pub(crate) fn run(args: &SessionsArgs) -> Result<(), Failure> {
    machine::pin(args.core)?;
    let hub = MemHub::new();
    let port = || hub.port(MemConfig::default());
    let (mut client, mut server) = (End::new(port(), 0)?, End::new(port(), 1)?);
    server.rpc.listen(Acceptor::new(Arc::new(ListenGroup::new([7; 16], vec![0])), 0));

    // The first session creates the rings between the endpoints, which all sessions share.
    open(&mut client, &mut server, 1)?;
    let live = |end: &End| end.account.live_bytes();
    let before = [live(&client), live(&server)];
    let sessions = open(&mut client, &mut server, args.sessions)?;
    call(&mut client, &mut server, &sessions, args.calls)?;
    rest(&mut client, &mut server, SETTLE);
    let per_session =
        |end: &End, before: i64| (live(end) - before) as f64 / f64::from(args.sessions);
    let bytes = [per_session(&client, before[0]), per_session(&server, before[1])];

    let time = Duration::from_secs_f64(args.secs);
    let cpu = rest(&mut client, &mut server, time);
    let percent = (!time.is_zero()).then(|| cpu.as_secs_f64() / time.as_secs_f64() * 100.0);
    eprintln!(
        "{} idle sessions: {:.0} bytes each at the client, {:.0} at the server; {:.2} % of a core for both",
        args.sessions,
        bytes[0],
        bytes[1],
        percent.unwrap_or(f64::NAN)
    );
    Line::new()
        .int("sessions", args.sessions.into())
        .int("calls", args.calls.into())
        .number("client_bytes_per_session", Some(bytes[0]))
        .number("server_bytes_per_session", Some(bytes[1]))
        .number("cpu_percent", percent)
        .print();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_takes_memory_at_both_ends() {
        let hub = MemHub::new();
        let port = || hub.port(MemConfig::default());
        let (mut client, mut server) = (End::new(port(), 0).unwrap(), End::new(port(), 1).unwrap());
        server.rpc.listen(Acceptor::new(Arc::new(ListenGroup::new([7; 16], vec![0])), 0));
        open(&mut client, &mut server, 1).unwrap();
        let live = |ends: [&End; 2]| ends.map(|end| end.account.live_bytes());
        let before = live([&client, &server]);
        let sessions = open(&mut client, &mut server, 100).unwrap();
        let after = live([&client, &server]);
        for (before, after) in before.into_iter().zip(after) {
            assert!(after - before > 100 * 100, "{before} and {after} bytes");
        }
        call(&mut client, &mut server, &sessions, 8).unwrap();
        let used = live([&client, &server]);
        assert!(used[1] - after[1] > 100 * 8 * SIZE as i64, "the server keeps buffers: {used:?}");
    }
}
