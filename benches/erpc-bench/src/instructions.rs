//! `instructions`: runs one of the hottest paths a fixed number of times, on one thread and with a
//! virtual clock. Repeated runs execute nearly the same instructions, on fast machines and on slow
//! ones. `.ci/instructions` counts them with callgrind.

use std::net::{Ipv4Addr, SocketAddr};

use clap::{Args, ValueEnum};
use erpc::raw::{App, Body, Context, Instant, MsgBuf, Request};
#[cfg(feature = "dpdk")]
use erpc::transport::dpdk::{self, DpdkConfig, DpdkTransport};
use erpc::transport::mem::MemConfig;
use erpc::transport::verbs::{SoftDevice, SoftFabric, VerbsConfig, VerbsTransport};
use erpc::{CongestionControl, EndpointConfig, Transport, Udp, UdpConfig};
use erpc_core::wire::HEADER_LEN;

use crate::failure::Failure;
use crate::methods;
use crate::payload;
use crate::report::Line;
use crate::typed_cost::closed_loop::{ClosedLoop, Messages};
use crate::typed_cost::{Clock, Form, Setup, Subject, Width};

#[derive(Args)]
pub(crate) struct InstructionsArgs {
    /// The path to run
    #[arg(long, value_enum, required_unless_present = "list")]
    path: Option<Path>,
    /// How often: calls, or packets of large messages, rounded up to whole messages
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..))]
    times: u64,
    /// Print the names of all paths, and run none
    #[arg(long, conflicts_with_all = ["path", "times"])]
    list: bool,
}

/// A path of the code that runs per call or per packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Path {
    /// A call of 32 bytes, and its answer of 32 bytes, through the raw layer
    Raw,
    /// As `raw`, with congestion control
    RawCc,
    /// As `raw`, with 1,000 sessions, which make one call at a time each
    RawSessions,
    /// As `raw-cc`, with one call at a time: what is paid per turn is paid per packet
    RawLone,
    /// A packet of a request of 64 packets
    Request,
    /// A packet of a response of 64 packets
    Response,
    /// A typed call with fixed layouts and a callback
    Fixed,
    /// As `fixed`, with a burst hook
    FixedHooked,
    /// A typed call with protocol buffers and a callback
    Prost,
    /// As `prost`; the handler and the callback have views of the answer
    View,
    /// A typed call with protocol buffers, awaited by a task
    ProstAwait,
    /// As `prost-await`, with a deadline
    ProstDeadline,
    /// As `prost-await`, with one call at a time
    ProstLone,
    /// As `raw`, over kernel UDP, without the kernel's own instructions
    Udp,
    /// As `raw`, over verbs on devices in memory. `.ci/instructions` does not count the devices' own
    /// instructions
    Verbs,
    /// As `raw`, over DPDK on rings in memory, with the driver's instructions
    #[cfg(feature = "dpdk")]
    Dpdk,
}

/// Bytes of small requests and responses.
const SMALL: usize = 32;
/// Packets of a large message.
const PACKETS: u64 = 64;
const LARGE: usize = PACKETS as usize * 4_096;
/// The link of endpoints with congestion control, in bytes per second.
const LINK: u64 = 12_500_000_000;
/// Any time but 0, when no clock begins.
const START: Instant = Instant::from_nanos(1_000_000_000);

impl Path {
    /// How many packets a call counts for.
    fn packets_per_call(self) -> Option<u64> {
        matches!(self, Self::Request | Self::Response).then_some(PACKETS)
    }

    fn setup(self) -> Setup {
        let (sessions, outstanding) = match self {
            Self::RawSessions => (1_000, 1_000),
            Self::Request | Self::Response => (4, 4),
            Self::RawLone | Self::ProstLone => (1, 1),
            _ => (8, 64),
        };
        let config = EndpointConfig::new().seed(1);
        let config = match self {
            Self::Fixed
            | Self::FixedHooked
            | Self::Prost
            | Self::View
            | Self::ProstAwait
            | Self::ProstDeadline
            | Self::ProstLone => config,
            Self::RawCc | Self::RawLone => {
                config.congestion(CongestionControl::default()).link_rate(LINK)
            }
            _ => config.congestion(CongestionControl::None),
        };
        let entries = if self == Self::RawSessions { 4_096 } else { 1_024 };
        let ports = MemConfig::default().max_datagram(HEADER_LEN + LARGE / PACKETS as usize);
        Setup {
            width: Width { sessions, outstanding },
            config,
            ports: ports.entries(entries),
            clock: Clock::Virtual(START),
        }
    }

    fn subject(self) -> Result<Box<dyn Subject>, Failure> {
        let setup = self.setup();
        let (request, answer) = match self {
            Self::Fixed => return Form::FixedCallback.subject(&setup),
            Self::FixedHooked => return Form::FixedHooked.subject(&setup),
            Self::Prost => return Form::ProstCallback.subject(&setup),
            Self::View => return Form::ViewCallback.subject(&setup),
            Self::ProstDeadline => return Form::ProstDeadline.subject(&setup),
            Self::ProstAwait | Self::ProstLone => return Form::ProstAwait.subject(&setup),
            Self::Request => (LARGE, SMALL),
            Self::Response => (SMALL, LARGE),
            Self::Raw
            | Self::RawCc
            | Self::RawSessions
            | Self::RawLone
            | Self::Udp
            | Self::Verbs => (SMALL, SMALL),
            #[cfg(feature = "dpdk")]
            Self::Dpdk => (SMALL, SMALL),
        };
        let (client, server) = (Numbers { request, answer }, Numbered { answer });
        match self {
            Self::Udp => {
                let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
                let udp = UdpConfig::new().address(address);
                let socket = || Udp::bind(&udp).map_err(Failure::of("no socket"));
                let sockets = (socket()?, socket()?);
                Ok(Box::new(ClosedLoop::over(sockets, &setup, client, server)?))
            }
            Self::Verbs => {
                let fabric = SoftFabric::default();
                let device = |host| {
                    let config = VerbsConfig::new("soft").interface([127, 0, 0, host].into());
                    VerbsTransport::<SoftDevice>::open(&fabric, &config)
                        .map_err(Failure::of("no device"))
                };
                let devices = (device(2)?, device(3)?);
                Ok(Box::new(ClosedLoop::over(devices, &setup, client, server)?))
            }
            #[cfg(feature = "dpdk")]
            Self::Dpdk => {
                dpdk::init(&["--no-huge", "-m", "256", "--no-pci"])
                    .and_then(|()| dpdk::ring_pair("client", "server", 1))
                    .map_err(Failure::of("no ports"))?;
                let port = |name, host| {
                    let config = DpdkConfig::new(name, [10, 0, 0, host].into(), 24);
                    DpdkTransport::open(&config).map_err(Failure::of("no port"))
                };
                let ports = (port("net_ring_client", 1)?, port("net_ring_server", 2)?);
                Ok(Box::new(ClosedLoop::over(ports, &setup, client, server)?))
            }
            _ => Ok(Box::new(ClosedLoop::new(&setup, client, server)?)),
        }
    }
}

/// Runs the path and prints one line.
pub(crate) fn run(args: &InstructionsArgs) -> Result<(), Failure> {
    let name = |path: Path| path.to_possible_value().map(|name| name.get_name().to_owned());
    let Some(path) = args.path.filter(|_| !args.list) else {
        Path::value_variants().iter().filter_map(|path| name(*path)).for_each(|name| {
            println!("{name}");
        });
        return Ok(());
    };
    let per_call = path.packets_per_call().unwrap_or(1);
    let calls = args.times.div_ceil(per_call);
    path.subject()?.run(calls)?;
    Line::new()
        .text("path", &name(path).unwrap_or_default())
        .int("calls", calls)
        .int("times", calls * per_call)
        .print();
    Ok(())
}

/// The client's messages: the first bytes are the number of the call, and the others are not
/// written.
struct Numbers {
    request: usize,
    answer: usize,
}

impl Messages for Numbers {
    fn room(&self) -> usize {
        self.request
    }

    #[inline(always)]
    fn method(&self) -> u32 {
        methods::MIRROR
    }

    #[inline(always)]
    fn write(&self, key: u64, request: &mut MsgBuf) {
        request.resize(self.request);
        payload::number_request(request.as_mut_slice(), key);
    }

    #[inline(always)]
    fn is_answer(&self, answer: &[u8], key: u64) -> bool {
        answer.len() == self.answer && answer.starts_with(&key.to_le_bytes())
    }
}

/// The server: an answer of `answer` bytes begins with the number of the request.
struct Numbered {
    answer: usize,
}

impl<T: Transport> App<T> for Numbered {
    #[inline(always)]
    fn on_request(&mut self, cx: &mut Context<'_, T>, request: Request<'_, T::Route>) {
        let handle = request.handle;
        let number =
            request.body.as_slice().first_chunk().map(|number| u64::from_le_bytes(*number));
        if let Some(number) = number
            && let Ok(mut answer) = cx.response_buffer(request.buffer, self.answer)
        {
            answer.resize(self.answer);
            payload::number_request(answer.as_mut_slice(), number);
            cx.respond(handle, answer, false);
        }
        if let Body::Message(message) = request.body {
            cx.recycle(message);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_answers_all_its_calls() {
        for &path in Path::value_variants() {
            let mut subject = path.subject().unwrap_or_else(|why| panic!("{path:?}: {why}"));
            for calls in [1, 200] {
                subject.run(calls).unwrap_or_else(|why| panic!("{path:?}: {why}"));
            }
        }
    }
}
