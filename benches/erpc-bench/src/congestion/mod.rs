//! Benchmarks of congestion control and loss recovery: their cost and their effect.

mod cost;
mod factors;
mod handler;
mod idle;
mod incast;
mod loss;
mod pair;
mod paths;
mod recovery;
mod scale;
mod stall;

use std::time::Duration;

use clap::ValueEnum;
use erpc::{CongestionControl, DcqcnConfig, SwiftConfig, TimelyConfig};
use erpc::{Udp, UdpConfig};

pub(crate) use cost::{Controlled, Cost, Without, run as cost};
pub(crate) use factors::{FactorsArgs, factors};
pub(crate) use handler::{HandlerArgs, handler};
pub(crate) use idle::{IdleArgs, idle};
pub(crate) use incast::{IncastArgs, incast};
pub(crate) use loss::{LossArgs, loss};
pub(crate) use paths::{PathsArgs, paths};
pub(crate) use recovery::{RecoveryArgs, recovery};
pub(crate) use scale::{ScaleArgs, scale};
pub(crate) use stall::{StallArgs, stall};

use crate::failure::Failure;

/// Congestion control of all endpoints.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Control {
    /// No congestion control: credits only
    None,
    /// Rates follow round-trip times
    Timely,
    /// Windows follow round-trip times, on paths of any length and rate
    Swift,
    /// Rates follow the ECN marks of switches
    Dcqcn,
}

impl Control {
    pub(crate) fn config(self) -> CongestionControl {
        match self {
            Self::None => CongestionControl::None,
            Self::Timely => CongestionControl::Timely(TimelyConfig::new()),
            Self::Swift => CongestionControl::Swift(SwiftConfig::new()),
            Self::Dcqcn => CongestionControl::Dcqcn(DcqcnConfig::new()),
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Timely => "timely",
            Self::Swift => "swift",
            Self::Dcqcn => "dcqcn",
        }
    }
}

/// The transport between two endpoints of this process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Carrier {
    /// The memory transport
    Mem,
    /// The kernel's UDP, over loopback
    Udp,
}

impl Carrier {
    fn name(self) -> &'static str {
        match self {
            Self::Mem => "mem",
            Self::Udp => "udp",
        }
    }
}

/// A UDP transport on loopback.
fn socket() -> Result<Udp, Failure> {
    Udp::bind(&UdpConfig::new()).map_err(Failure::of("no socket"))
}

/// Parses a number of milliseconds for the command line.
pub(crate) fn millis(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(millis) if (0.1..=60_000.0).contains(&millis) => {
            Ok(Duration::from_secs_f64(millis / 1e3))
        }
        _ => Err("a number of milliseconds, 0.1 to 60000, is wanted".into()),
    }
}
