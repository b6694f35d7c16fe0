//! What types cost: w4's call in several forms, in turns within one run.
//!
//! All forms carry a key of 64 bits there, a value of 64 bytes and a flag back; all run both sides on
//! one thread over the memory transport, with as many calls under way; all answers are checked.

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
    /// All that follow
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

/// Sessions between the two endpoints, and calls under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Width {
    pub(crate) sessions: usize,
    pub(crate) outstanding: usize,
}

/// One form, ready to be called.
trait Subject {
    /// Makes `calls` calls and waits for their ends.
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

/// Calls of a form before the next one's turn: some tens of milliseconds.
const SLICE: u64 = 100_000;

/// What calls allocated; changes of size count as allocations.
#[derive(Clone, Copy, Default)]
struct Allocated {
    count: u64,
    bytes: u64,
}

/// What was measured of a form.
struct Measured {
    form: Form,
    subject: Box<dyn Subject>,
    /// CPU nanoseconds per call, slice by slice.
    slices: Vec<f64>,
    /// What the last slice allocated.
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

/// Measures `form`, or all of them, beside the raw one for `time` in all.
pub(crate) fn run(form: Form, width: Width, time: Duration) -> Result<(), Failure> {
    let wanted = |other: &Form| *other == Form::Raw || form == Form::All || *other == form;
    let mut forms = Vec::new();
    for form in Form::MEASURED.into_iter().filter(wanted) {
        let subject = form.subject(width)?;
        forms.push(Measured { form, subject, slices: Vec::new(), allocated: Allocated::default() });
    }
    for form in &mut forms {
        // Warms up; what is counted after this is the calls' own.
        form.slice()?;
        form.slices.clear();
    }
    let start = machine::cpu_time();
    while machine::cpu_time() - start < time || forms[0].slices.len() < 3 {
        forms.iter_mut().try_for_each(Measured::slice)?;
    }
    let raw = forms[0].slices.clone();
    for Measured { form, slices, allocated, .. } in &forms {
        // Neighbours in time: what the machine does to both cancels out.
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
