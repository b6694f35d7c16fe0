//! The cost of types: the call of workload w4 in several forms, which alternate within one run.
//!
//! In all forms the request is a key of 64 bits, and the answer is a value of 64 bytes and a flag.
//! All forms run client and server on one thread over the memory transport, with the same number of
//! calls in flight. All answers are checked.

use std::time::Duration;

use clap::ValueEnum;
use erpc::EndpointConfig;
use erpc::raw::Instant;
use erpc::transport::mem::{MemConfig, MemHub, MemTransport};
use erpc_test_tools::counting::Account;

use crate::failure::Failure;
use crate::machine;
use crate::report::Line;

pub(crate) mod closed_loop;
mod endpoints;
mod layered;
mod messages;
mod plain;

use messages::{Called, Get, GetAsync, GetFixed, GetHooked, GetTimed, GetView};

/// A form of the call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Form {
    /// All forms
    All,
    /// Bytes through the raw layer
    Raw,
    /// Protocol buffers and a handler, in the raw layer's loop
    Prost,
    /// Fixed layouts and a handler, in the raw layer's loop
    Fixed,
    /// Fixed layouts between endpoints, with callbacks
    FixedCallback,
    /// As `fixed-callback`, with a burst hook
    FixedHooked,
    /// Protocol buffers between endpoints, with callbacks
    ProstCallback,
    /// As `prost-callback`; the handler and the callback have views of the answer
    ViewCallback,
    /// Fixed layouts between endpoints, awaited by tasks
    FixedAwait,
    /// Protocol buffers between endpoints, awaited by tasks
    ProstAwait,
    /// As `prost-await`; the handler answers with a view
    ViewAwait,
    /// As `prost-await`, with a deadline
    ProstDeadline,
    /// As `prost-await`, with an asynchronous handler
    Async,
}

/// Sessions between the two endpoints, and calls in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Width {
    pub(crate) sessions: usize,
    pub(crate) outstanding: usize,
}

/// The clock of a subject's loops.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Clock {
    /// The system's clock.
    System,
    /// A clock that a pair of turns, the client's and the server's, advances by [`Clock::TICK`]
    /// nanoseconds. Then a run does not depend on the machine's speed.
    Virtual(Instant),
}

impl Clock {
    const TICK: u64 = 1_000;

    /// Begins a pair of turns. Returns its time if the clock is virtual.
    #[inline(always)]
    fn tick(&mut self) -> Option<Instant> {
        match self {
            Self::System => None,
            Self::Virtual(now) => {
                *now = now.plus_nanos(Self::TICK);
                Some(*now)
            }
        }
    }
}

/// How a subject is set up.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) width: Width,
    /// Settings of both endpoints.
    pub(crate) config: EndpointConfig,
    /// Settings of both ports, if the subject uses the memory transport.
    pub(crate) ports: MemConfig,
    pub(crate) clock: Clock,
}

impl Setup {
    /// Default settings and the system's clock.
    pub(crate) fn new(width: Width) -> Self {
        let (config, ports) = (EndpointConfig::new(), MemConfig::default());
        Self { width, config, ports, clock: Clock::System }
    }

    /// The ports of client and server.
    fn ports(&self) -> (MemTransport, MemTransport) {
        let hub = MemHub::new();
        (hub.port(self.ports), hub.port(self.ports))
    }
}

/// A form of the call, with connected endpoints.
pub(crate) trait Subject {
    /// Makes `calls` calls and waits until all have ended.
    fn run(&mut self, calls: u64) -> Result<(), Failure>;
}

impl Form {
    const MEASURED: [Self; 12] = [
        Self::Raw,
        Self::Prost,
        Self::Fixed,
        Self::FixedCallback,
        Self::FixedHooked,
        Self::ProstCallback,
        Self::ViewCallback,
        Self::FixedAwait,
        Self::ProstAwait,
        Self::ViewAwait,
        Self::ProstDeadline,
        Self::Async,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Raw => "raw",
            Self::Prost => "prost",
            Self::Fixed => "fixed",
            Self::FixedCallback => "fixed-callback",
            Self::FixedHooked => "fixed-hooked",
            Self::ProstCallback => "prost-callback",
            Self::ViewCallback => "view-callback",
            Self::FixedAwait => "fixed-await",
            Self::ProstAwait => "prost-await",
            Self::ViewAwait => "view-await",
            Self::ProstDeadline => "prost-deadline",
            Self::Async => "async",
        }
    }

    pub(crate) fn subject(self, setup: &Setup) -> Result<Box<dyn Subject>, Failure> {
        Ok(match self {
            Self::All | Self::Raw => plain::subject(setup)?,
            Self::Prost => layered::subject(setup, Get::METHOD)?,
            Self::Fixed => layered::subject(setup, GetFixed::METHOD)?,
            Self::FixedCallback => endpoints::with_callbacks::<GetFixed>(setup)?,
            Self::FixedHooked => endpoints::with_callbacks::<GetHooked>(setup)?,
            Self::ProstCallback => endpoints::with_callbacks::<Get>(setup)?,
            Self::ViewCallback => endpoints::with_callbacks::<GetView>(setup)?,
            Self::FixedAwait => endpoints::awaited::<GetFixed>(setup)?,
            Self::ProstAwait => endpoints::awaited::<Get>(setup)?,
            Self::ViewAwait => endpoints::awaited::<GetView>(setup)?,
            Self::ProstDeadline => endpoints::awaited::<GetTimed>(setup)?,
            Self::Async => endpoints::awaited::<GetAsync>(setup)?,
        })
    }
}

/// Calls of a form before the next form runs. They take about 5 to 25 ms.
const SLICE: u64 = 100_000;

/// Allocations of calls. A reallocation counts as one.
#[derive(Clone, Copy)]
struct Allocated {
    count: u64,
    bytes: u64,
}

/// A form and its measurements.
struct Measured {
    form: Form,
    subject: Box<dyn Subject>,
    /// CPU nanoseconds per call, slice by slice.
    slices: Vec<f64>,
}

impl Measured {
    fn slice(&mut self) -> Result<(), Failure> {
        let time = machine::cpu_time();
        self.subject.run(SLICE)?;
        let time = machine::cpu_time() - time;
        self.slices.push(time.as_nanos() as f64 / SLICE as f64);
        Ok(())
    }

    /// Counts the allocations of a further slice. Its time is not measured, because the counting
    /// takes a few nanoseconds per allocation.
    fn allocated(&mut self) -> Result<Allocated, Failure> {
        let account = Account::new(0);
        account.charge(|| self.subject.run(SLICE))?;
        Ok(Allocated { count: account.allocations(), bytes: account.allocated_bytes() })
    }
}

/// Measures `form`, or all forms, and the raw form for comparison. `time` is the CPU time of all
/// forms together; each form gets at least three slices.
pub(crate) fn run(form: Form, setup: &Setup, time: Duration) -> Result<(), Failure> {
    let wanted = |other: &Form| *other == Form::Raw || form == Form::All || *other == form;
    let width = setup.width;
    let mut forms = Vec::new();
    for form in Form::MEASURED.into_iter().filter(wanted) {
        let subject = form.subject(setup)?;
        forms.push(Measured { form, subject, slices: Vec::new() });
    }
    for form in &mut forms {
        // A warm-up, so that the later slices allocate only for their calls.
        form.slice()?;
        form.slices.clear();
    }
    let start = machine::cpu_time();
    while machine::cpu_time() - start < time || forms[0].slices.len() < 3 {
        forms.iter_mut().try_for_each(Measured::slice)?;
    }
    let raw = forms[0].slices.clone();
    for measured in &mut forms {
        let allocated = measured.allocated()?;
        let Measured { form, slices, .. } = measured;
        // A slice of this form and the raw slice of the same round ran within a fraction of a
        // second. So a change of the machine's speed mostly affects both, and cancels out.
        let differences = slices.iter().zip(&raw).map(|(typed, raw)| typed - raw).collect();
        let (ns, over_raw) = (median(slices.clone()), median(differences));
        let per_call = |total: u64| total as f64 / SLICE as f64;
        eprintln!(
            "{}: {ns:.1} ns per call, {over_raw:+.1} to raw, {} allocations",
            form.name(),
            per_call(allocated.count)
        );
        Line::new()
            .text("typed", form.name())
            .int("sessions", width.sessions as u64)
            .int("outstanding", width.outstanding as u64)
            .int("rpcs", slices.len() as u64 * SLICE)
            .number("ns_per_rpc", Some(ns))
            .number("ns_over_raw", Some(over_raw))
            .number("allocations_per_rpc", Some(per_call(allocated.count)))
            .number("allocated_bytes_per_rpc", Some(per_call(allocated.bytes)))
            .print();
    }
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
