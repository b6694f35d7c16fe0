//! The log: all `tracing` events of this crate. The documentation of the facade, section "The log",
//! lists them; a test compares the list with this file.
//!
//! One function per event, so that targets, levels and fields are in one place. The functions are
//! called by the layers that own threads and sockets, when something rare has happened, never per
//! packet or call. What peers can cause often, such as refused calls, is counted per endpoint and
//! reported from there (`endpoint/watch.rs`), because all threads share the limit of an event.
//!
//! `now` is the time of the caller's clock, for the [limit](limit::Limit) of the event's kind.
//! Functions whose event has a count return whether the event was emitted.

#![forbid(unsafe_code)]

use std::any::Any;
use std::fmt::Display;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tracing::dispatcher::get_default;
use tracing::subscriber::NoSubscriber;

use self::limit::Limit;
use crate::clock;
use crate::protocol::{Cause, CongestionControl, Retransmissions};
use crate::time::Instant;

mod limit;

/// Emits an event if a subscriber or the crate `log` wants it, and its limit admits it. Each use of
/// the macro has its own limit. The value is whether the event was emitted.
macro_rules! event {
    ($target:literal, $level:ident, $now:expr, $message:literal, $($fields:tt)*) => {{
        static LIMIT: Limit = Limit::new();
        // Without a subscriber, the event becomes a record of the crate `log` if `tracing` has its
        // feature `log`. `enabled!` does not know that.
        let is_wanted =
            tracing::enabled!(target: $target, tracing::Level::$level) || !has_subscriber();
        let mut is_emitted = false;
        if is_wanted && let Some(suppressed) = LIMIT.admit($now) {
            tracing::event!(
                target: $target, tracing::Level::$level, $($fields)*,
                suppressed = {
                    // Fields are evaluated only if the event is emitted.
                    is_emitted = true;
                    // A field without a value is left out.
                    (suppressed > 0).then_some(suppressed)
                },
                $message
            );
        }
        is_emitted
    }};
}

/// Whether this thread has a subscriber, which may want all events or none.
fn has_subscriber() -> bool {
    get_default(|subscriber| !subscriber.is::<NoSubscriber>())
}

/// This endpoint has opened a session.
#[cold]
pub(crate) fn session_opened(now: Instant, peer: &dyn Display) {
    event!("erpc::session", INFO, now, "session opened", %peer);
}

/// A session that this endpoint has opened, or tried to open, has ended.
#[cold]
pub(crate) fn session_ended(now: Instant, peer: &dyn Display, cause: Cause) {
    match cause {
        Cause::Connect(_) => {
            event!("erpc::session", WARN, now, "session not opened", %peer, %cause);
        }
        // The ends that this endpoint or a drain has begun: no call is lost.
        Cause::Disconnected | Cause::Shutdown | Cause::PeerDraining => {
            event!("erpc::session", DEBUG, now, "session closed", %peer, %cause);
        }
        _ => {
            event!("erpc::session", WARN, now, "session lost", %peer, %cause);
        }
    }
}

/// The server of a session drains.
#[cold]
pub(crate) fn session_draining(now: Instant, peer: &dyn Display) {
    event!("erpc::session", INFO, now, "server shuts down", %peer);
}

/// A client has opened a session to this endpoint.
#[cold]
pub(crate) fn client_came(now: Instant, peer: &dyn Display) {
    event!("erpc::session", INFO, now, "client session opened", %peer);
}

/// The session of a client has ended.
#[cold]
pub(crate) fn client_gone(now: Instant, peer: &dyn Display, cause: Cause) {
    match cause {
        Cause::PeerClosed | Cause::Shutdown => {
            event!("erpc::session", DEBUG, now, "client session closed", %peer, %cause);
        }
        _ => {
            event!("erpc::session", WARN, now, "client session lost", %peer, %cause);
        }
    }
}

/// A session of a channel has opened in place of one that ended, `after` the end and after
/// `failures` attempts that failed.
#[cold]
pub(crate) fn reconnected(now: Instant, peer: &dyn Display, after: Duration, failures: u32) {
    let after_ms = millis(after);
    event!("erpc::channel", INFO, now, "reconnected", %peer, after_ms, failures);
}

/// The names of a channel's servers were not resolved.
#[cold]
pub(crate) fn unresolved(now: Instant, error: &dyn Display) {
    event!("erpc::channel", WARN, now, "names not resolved", %error);
}

/// Why handshakes or calls were refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refused {
    Draining,
    Sessions,
    Host,
    OpenRate,
    Parameters,
}

impl Refused {
    const fn reason(self) -> &'static str {
        match self {
            Self::Draining => "the server shuts down",
            Self::Sessions => "max_sessions are open",
            Self::Host => "the limit of sessions or sockets per host is reached",
            Self::OpenRate => "the host opens more than opens_per_host sessions per second",
            Self::Parameters => "the client's version or parameters are not supported",
        }
    }
}

/// `count` handshakes of clients were refused.
#[cold]
pub(crate) fn handshakes_refused(
    now: Instant,
    endpoint: &dyn Display,
    refused: Refused,
    count: u64,
) -> bool {
    let reason = refused.reason();
    match refused {
        Refused::Draining => {
            event!("erpc::server", INFO, now, "handshakes refused", %endpoint, reason, count)
        }
        _ => event!("erpc::server", WARN, now, "handshakes refused", %endpoint, reason, count),
    }
}

/// `count` calls were refused because the server drains: they are executed elsewhere.
#[cold]
pub(crate) fn calls_refused_by_drain(now: Instant, endpoint: &dyn Display, count: u64) -> bool {
    let reason = Refused::Draining.reason();
    event!("erpc::server", INFO, now, "calls refused", %endpoint, reason, count)
}

/// `count` calls were refused because there was no memory for their requests.
#[cold]
pub(crate) fn calls_refused_for_memory(now: Instant, endpoint: &dyn Display, count: u64) -> bool {
    let reason = "memory_limit or session_memory_limit is reached";
    event!("erpc::server", WARN, now, "calls refused", %endpoint, reason, count)
}

/// `count` calls were refused because `limit` calls run as tasks. `method` is that of the last one.
#[cold]
pub(crate) fn task_limit_reached(
    now: Instant,
    endpoint: &dyn Display,
    method: &str,
    limit: usize,
    count: u64,
) -> bool {
    let reason = "task_limit calls run";
    event!("erpc::server", WARN, now, "calls refused", %endpoint, method, reason, limit, count)
}

/// `count` calls were refused because `limit` requests wait for a worker. `method` is that of the
/// last one.
#[cold]
pub(crate) fn worker_queue_full(
    now: Instant,
    endpoint: &dyn Display,
    method: &str,
    limit: usize,
    count: u64,
) -> bool {
    let hint = "use more workers, or a longer worker_queue for bursts";
    event!("erpc::server", WARN, now, "worker queue full", %endpoint, method, limit, count, hint)
}

/// A handler, or an interceptor or codec of its call, has panicked.
#[cold]
pub(crate) fn handler_panicked(method: &str, panic: &(dyn Any + Send), hint: Option<&str>) {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let panic = text.or_else(|| panic.downcast_ref::<&str>().copied());
    let panic = panic.unwrap_or("a value that is no text");
    let is_emitted =
        event!("erpc::handler", ERROR, clock::now(), "handler panicked", method, panic, hint);
    // A program with a subscriber has decided about its log.
    if let Some(hint) = hint
        && !is_emitted
        && !has_subscriber()
    {
        print_hint(method, hint);
    }
}

/// Prints the first hint of the process to stderr. There, the text of the panic stands alone, and
/// it does not name the remedy.
fn print_hint(method: &str, hint: &str) {
    static IS_PRINTED: AtomicBool = AtomicBool::new(false);
    if !IS_PRINTED.swap(true, Ordering::Relaxed) {
        // A closed stderr takes no advice.
        writeln!(io::stderr(), "erpc: the handler of {method} panicked: {hint}").unwrap_or(());
    }
}

/// The loop of an endpoint that serves stood still. `method` is the last one that the loop has
/// dispatched before.
#[cold]
pub(crate) fn loop_held(
    now: Instant,
    endpoint: &dyn Display,
    held: Duration,
    method: Option<&str>,
) {
    let held_ms = millis(held);
    let hint = "run handlers that compute for long or block on workers; a thread that lost its core looks the same";
    event!("erpc::handler", WARN, now, "event loop held", %endpoint, held_ms, method, hint);
}

/// A loop of the server at `endpoint` has stood still for `time`. `thread` is the name of the loop's
/// thread.
#[cold]
pub(crate) fn loop_stuck(
    now: Instant,
    endpoint: &dyn Display,
    thread: Option<&str>,
    time: Duration,
) {
    let for_ms = millis(time);
    let hint = "a handler, callback or task does not return; a debugger shows what the thread does";
    event!("erpc::handler", ERROR, now, "event loop stuck", %endpoint, thread, for_ms, hint);
}

/// The receive queue has lost `packets` packets. `hint` says what to do.
#[cold]
pub(crate) fn receive_overflow(
    now: Instant,
    endpoint: &dyn Display,
    packets: u64,
    hint: Option<&str>,
) -> bool {
    event!("erpc::network", WARN, now, "receive queue overflowed", %endpoint, packets, hint)
}

/// The link of the endpoint's port went down `count` times since the last such event.
#[cold]
pub(crate) fn link_down(now: Instant, endpoint: &dyn Display, count: u64) -> bool {
    let hint = "calls wait until the link is up, or end with their deadlines; look at the cable, the switch and the peer";
    event!("erpc::network", WARN, now, "link down", %endpoint, count, hint)
}

/// The link of the endpoint's port came up `count` times since the last such event.
#[cold]
pub(crate) fn link_up(now: Instant, endpoint: &dyn Display, count: u64) -> bool {
    event!("erpc::network", INFO, now, "link up", %endpoint, count)
}

/// This endpoint has sent many packets again, of `sent` packets in this time.
#[cold]
pub(crate) fn retransmissions(
    now: Instant,
    endpoint: &dyn Display,
    resent: Retransmissions,
    sent: u64,
    within: Duration,
) {
    let (packets, within_ms) = (resent.packets(), millis(within));
    let Retransmissions { after_gap, after_timeout, probes, .. } = resent;
    let hint = "the network or a receive queue loses packets, or servers answer late";
    event!(
        "erpc::network", WARN, now, "many retransmissions",
        %endpoint, packets, sent, within_ms, after_gap, after_timeout, probes, hint
    );
}

/// The rate of the link to `peer` was not configured and is unknown to the transport. Emitted once
/// per process for Swift, whose sessions are controlled anyway, and once for Timely and DCQCN,
/// whose sessions are not. Not for [`CongestionControl::None`].
#[cold]
pub(crate) fn link_rate_unknown(now: Instant, control: &CongestionControl, peer: &dyn Display) {
    static CONTROLLED: AtomicBool = AtomicBool::new(false);
    static UNCONTROLLED: AtomicBool = AtomicBool::new(false);
    let hint = "EndpointConfig::link_rate sets the rate; this is not reported again";
    let (once, emit): (_, &dyn Fn() -> bool) = match control {
        CongestionControl::None => return,
        CongestionControl::Swift(_) => (&CONTROLLED, &|| {
            let effect = "only round-trip times control the sessions";
            event!("erpc::network", INFO, now, "unknown link rate", %peer, effect, hint)
        }),
        CongestionControl::Timely(_) | CongestionControl::Dcqcn(_) => (&UNCONTROLLED, &|| {
            let effect = "no congestion control: Timely and DCQCN need the rate, Swift does not";
            event!("erpc::network", WARN, now, "unknown link rate", %peer, effect, hint)
        }),
    };
    // If nobody wants the event now, it may be emitted later.
    if !once.swap(true, Ordering::Relaxed) && !emit() {
        once.store(false, Ordering::Relaxed);
    }
}

fn millis(time: Duration) -> u64 {
    time.as_millis().try_into().unwrap_or(u64::MAX)
}
