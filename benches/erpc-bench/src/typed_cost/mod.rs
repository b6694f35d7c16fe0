//! The cost of types: the call of workload w4 in several forms, which alternate within one run.
//!
//! In all forms the request is a key of 64 bits, and the answer is a value of 64 bytes and a flag.
//! All forms run client and server on one thread over the memory transport, with the same number of
//! calls in flight. All answers are checked.

use std::time::Duration;

use clap::ValueEnum;
use erpc_test_tools::counting::Account;

use crate::failure::Failure;
use crate::machine;
use crate::report::Line;

mod closed_loop;
mod endpoints;
mod layered;
mod messages;
mod plain;

use messages::{Called, Get, GetAsync, GetFixed};

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
    /// Protocol buffers between endpoints, with callbacks
    ProstCallback,
    /// Fixed layouts between endpoints, awaited by tasks
    FixedAwait,
    /// Protocol buffers between endpoints, awaited by tasks
    ProstAwait,
    /// As `prost-await`, with an asynchronous handler
    Async,
}

/// Sessions between the two endpoints, and calls in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Width {
    pub(crate) sessions: usize,
    pub(crate) outstanding: usize,
}

/// A form of the call, with connected endpoints.
trait Subject {
    /// Makes `calls` calls and waits until all have ended.
    fn run(&mut self, calls: u64) -> Result<(), Failure>;
}

impl Form {
    const MEASURED: [Self; 8] = [
        Self::Raw,
        Self::Prost,
        Self::Fixed,
        Self::FixedCallback,
        Self::ProstCallback,
        Self::FixedAwait,
        Self::ProstAwait,
        Self::Async,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Raw => "raw",
            Self::Prost => "prost",
            Self::Fixed => "fixed",
            Self::FixedCallback => "fixed-callback",
            Self::ProstCallback => "prost-callback",
            Self::FixedAwait => "fixed-await",
            Self::ProstAwait => "prost-await",
            Self::Async => "async",
        }
    }

    fn subject(self, width: Width) -> Result<Box<dyn Subject>, Failure> {
        Ok(match self {
            Self::All | Self::Raw => plain::subject(width)?,
            Self::Prost => layered::subject(width, Get::METHOD)?,
            Self::Fixed => layered::subject(width, GetFixed::METHOD)?,
            Self::FixedCallback => endpoints::with_callbacks::<GetFixed>(width)?,
            Self::ProstCallback => endpoints::with_callbacks::<Get>(width)?,
            Self::FixedAwait => endpoints::awaited::<GetFixed>(width)?,
            Self::ProstAwait => endpoints::awaited::<Get>(width)?,
            Self::Async => endpoints::awaited::<GetAsync>(width)?,
        })
    }
}

/// Calls of a form before the next form runs. They take about 5 to 25 ms.
const SLICE: u64 = 100_000;

/// Allocations of calls. A reallocation counts as one.
#[derive(Clone, Copy, Default)]
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
    /// Allocations of the last slice.
    allocated: Allocated,
}

impl Measured {
    fn slice(&mut self) -> Result<(), Failure> {
        let (account, time) = (Account::new(0), machine::cpu_time());
        account.charge(|| self.subject.run(SLICE))?;
        let time = machine::cpu_time() - time;
        self.allocated =
            Allocated { count: account.allocations(), bytes: account.allocated_bytes() };
        self.slices.push(time.as_nanos() as f64 / SLICE as f64);
        Ok(())
    }
}

/// Measures `form`, or all forms, and the raw form for comparison. `time` is the CPU time of all
/// forms together; each form gets at least three slices.
pub(crate) fn run(form: Form, width: Width, time: Duration) -> Result<(), Failure> {
    let wanted = |other: &Form| *other == Form::Raw || form == Form::All || *other == form;
    let mut forms = Vec::new();
    for form in Form::MEASURED.into_iter().filter(wanted) {
        let subject = form.subject(width)?;
        forms.push(Measured { form, subject, slices: Vec::new(), allocated: Allocated::default() });
    }
    for form in &mut forms {
        // A warm-up, so that the later slices count only the allocations of the calls.
        form.slice()?;
        form.slices.clear();
    }
    let start = machine::cpu_time();
    while machine::cpu_time() - start < time || forms[0].slices.len() < 3 {
        forms.iter_mut().try_for_each(Measured::slice)?;
    }
    let raw = forms[0].slices.clone();
    for Measured { form, slices, allocated, .. } in &forms {
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
