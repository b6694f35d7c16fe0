//! Bare frames over memif, as the baseline of `client --transport dpdk`: a device of DPDK without
//! addresses, headers or a protocol. The server sends each burst back as it is.

use std::ffi::CString;
use std::ptr;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use dpdk_sys::{erpc_device, erpc_frame, erpc_setup, rte_mbuf, rte_mempool};
use erpc::Retransmissions;
use erpc::transport::dpdk::init;

use crate::failure::Failure;
use crate::machine;
use crate::report::{Latencies, LoopOutcome};

/// Frames of a burst.
const BURST: usize = 64;
/// Bursts between two looks at the clock.
const BURSTS: u32 = 1_024;
/// After this time without an answer, no frame is in flight.
const QUIET: Duration = Duration::from_millis(20);
/// A client without an answer for this time fails.
const STALL_LIMIT: Duration = Duration::from_secs(15);

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Role {
    Server,
    Client,
}

#[derive(Args)]
pub(crate) struct MemifArgs {
    #[arg(long, value_enum)]
    role: Role,
    /// Arguments of DPDK's EAL, separated by spaces
    #[arg(long, allow_hyphen_values = true)]
    eal: String,
    /// The device
    #[arg(long, default_value = "net_memif0")]
    device: String,
    /// Core to run on
    #[arg(long)]
    core: usize,
    /// Frames in flight
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    outstanding: u16,
    /// Bytes of a frame. 98: a packet of erpc with 32 bytes of payload, over IPv4
    #[arg(long, default_value_t = 98, value_parser = clap::value_parser!(u16).range(60..=2_000))]
    len: u16,
    /// Duration of the measurement, in seconds
    #[arg(long, default_value_t = 5.0, value_parser = machine::seconds)]
    secs: f64,
    /// Warm-up before the measurement, in seconds
    #[arg(long, default_value_t = 1.0, value_parser = machine::seconds)]
    warmup: f64,
}

/// A started device.
struct Port {
    port: u16,
    pool: *mut rte_mempool,
    mbufs: [*mut rte_mbuf; BURST],
    frames: [erpc_frame; BURST],
    lengths: [u16; BURST],
}

impl Port {
    fn open(args: &MemifArgs) -> Result<Self, Failure> {
        let arguments: Vec<&str> = args.eal.split_whitespace().collect();
        init(&arguments).map_err(Failure::of("no DPDK"))?;
        let name = CString::new(&*args.device).map_err(Failure::of("`--device`"))?;
        let mut device = erpc_device::default();
        // SAFETY: DPDK runs; a terminated string, and a struct to write.
        if unsafe { dpdk_sys::erpc_device_find(name.as_ptr(), &raw mut device) } != 0 {
            return Err(Failure::new(format!("there is no device `{}`", args.device)));
        }
        // SAFETY: DPDK runs; a terminated string. The sizes are in range.
        let pool = unsafe {
            dpdk_sys::rte_pktmbuf_pool_create(c"bare".as_ptr(), 8_191, 256, 0, 2_176, device.socket)
        };
        if pool.is_null() {
            return Err(Failure::new("no memory for packet buffers"));
        }
        let mut setup = erpc_setup {
            rx_queues: 1,
            tx_queues: 1,
            rx_descriptors: 1_024,
            tx_descriptors: 1_024,
            ..erpc_setup::default()
        };
        let mut step = ptr::null();
        // SAFETY: the device exists, and nothing else uses it. The pool is never freed.
        let error = unsafe {
            dpdk_sys::erpc_device_start(device.port, &raw mut setup, pool, &raw mut step)
        };
        if error != 0 {
            return Err(Failure::new(format!("the device does not start: error {error}")));
        }
        Ok(Self {
            port: device.port,
            pool,
            mbufs: [ptr::null_mut(); BURST],
            frames: [erpc_frame::default(); BURST],
            lengths: [0; BURST],
        })
    }

    fn is_up(&self) -> bool {
        let mut mbps = 0;
        // SAFETY: the device is started.
        unsafe { dpdk_sys::erpc_link(self.port, &raw mut mbps) == 1 }
    }

    /// Receives a burst.
    #[inline]
    fn receive(&mut self) -> usize {
        // SAFETY: the device is started; both arrays have room for `BURST` entries. They hold no
        // mbuf of ours: each burst is sent, or given back, before the next.
        let count = unsafe {
            dpdk_sys::erpc_rx_burst(
                self.port,
                0,
                self.mbufs.as_mut_ptr(),
                self.frames.as_mut_ptr(),
                BURST as u16,
            )
        };
        usize::from(count).min(BURST)
    }

    /// Sends the first `count` frames of the last burst back. Returns how many the device took; the
    /// others are gone.
    #[inline]
    fn send_back(&mut self, count: usize) -> usize {
        for (length, frame) in self.lengths.iter_mut().zip(&self.frames[..count]) {
            *length = frame.len as u16;
        }
        self.send(count)
    }

    #[inline]
    fn send(&mut self, count: usize) -> usize {
        // SAFETY: the first `count` mbufs are ours, with `lengths` bytes each.
        let sent = unsafe {
            dpdk_sys::erpc_tx_burst(
                self.port,
                0,
                self.mbufs.as_mut_ptr(),
                self.lengths.as_ptr(),
                ptr::null(),
                count as u16,
            )
        };
        let sent = usize::from(sent).min(count);
        self.give_back(sent, count);
        sent
    }

    /// Drops the frames of the last burst.
    fn drop_frames(&mut self, count: usize) {
        self.give_back(0, count);
    }

    #[inline]
    fn give_back(&mut self, from: usize, to: usize) {
        if from < to {
            let mbufs = &mut self.mbufs[from..to];
            // SAFETY: these mbufs are ours, and are not used after this.
            unsafe { dpdk_sys::erpc_give_back(mbufs.as_mut_ptr(), mbufs.len() as u16) };
        }
    }

    /// Sends `count` new frames.
    fn start(&mut self, count: usize, len: u16) -> Result<(), Failure> {
        let mut data = [ptr::null_mut(); BURST];
        let (mbufs, data) = (self.mbufs.as_mut_ptr(), data.as_mut_ptr());
        // SAFETY: both arrays have room for `count` entries, at most `BURST`.
        if unsafe { dpdk_sys::erpc_take(self.pool, mbufs, data, count as u16) } != 0 {
            return Err(Failure::new("the packet buffers are used up"));
        }
        self.lengths[..count].fill(len);
        match self.send(count) == count {
            true => Ok(()),
            false => Err(Failure::new("the device does not take the frames")),
        }
    }
}

/// Runs a side. The server runs until it is killed.
pub(crate) fn run(args: &MemifArgs) -> Result<(), Failure> {
    machine::pin(args.core)?;
    let mut port = Port::open(args)?;
    if args.role == Role::Server {
        println!("READY");
        return serve(&mut port);
    }
    meet(&mut port, args.len)?;
    for first in (0..usize::from(args.outstanding)).step_by(BURST) {
        port.start(BURST.min(usize::from(args.outstanding) - first), args.len)?;
    }
    let warmup = Duration::from_secs_f64(args.warmup.max(0.001));
    let mut latencies = Latencies::new();
    let (before, _) = echo(&mut port, args, warmup, &mut latencies)?;
    latencies.clear();
    let cpu = machine::cpu_time();
    let (ops, elapsed) = echo(&mut port, args, Duration::from_secs_f64(args.secs), &mut latencies)?;
    LoopOutcome {
        workload: if args.outstanding == 1 { "w1" } else { "w2" },
        stack: "memif",
        outstanding: args.outstanding.into(),
        ops,
        ops_total: before + ops,
        elapsed,
        payload: 2 * usize::from(args.len),
        latencies,
        cpu_client: machine::cpu_time() - cpu,
        cpu_server: None,
        resent: Retransmissions::default(),
        gaps_client: None,
        gaps_server: None,
        pp_ns: None,
    }
    .print();
    Ok(())
}

/// Sends a frame until one comes back: the driver of the server loses frames that are sent before it
/// has connected, which is after the client's. Then waits until none is in flight.
fn meet(port: &mut Port, len: u16) -> Result<(), Failure> {
    let begun = Instant::now();
    let mut last = begun;
    let mut has_answer = false;
    while !has_answer || last.elapsed() < QUIET {
        if begun.elapsed() > STALL_LIMIT {
            return Err(Failure::new("the server does not answer"));
        }
        let count = port.receive();
        if count > 0 {
            (has_answer, last) = (true, Instant::now());
            port.drop_frames(count);
        } else if !has_answer && last.elapsed() >= QUIET && port.is_up() {
            last = Instant::now();
            port.start(1, len)?;
        }
    }
    Ok(())
}

fn serve(port: &mut Port) -> Result<(), Failure> {
    // The driver connects in this call.
    while !port.is_up() {}
    loop {
        let count = port.receive();
        if count > 0 {
            port.send_back(count);
        }
    }
}

/// Sends each frame that comes back again. Returns how many came back, and the elapsed time.
/// Measures latencies if there is one frame in flight.
fn echo(
    port: &mut Port,
    args: &MemifArgs,
    time: Duration,
    latencies: &mut Latencies,
) -> Result<(u64, Duration), Failure> {
    let is_alone = args.outstanding == 1;
    let start = Instant::now();
    let (mut sent, mut seen) = (start, start);
    let (mut done, mut bursts, mut done_then) = (0, 0u32, 0);
    loop {
        let count = port.receive();
        if count > 0 {
            if is_alone {
                let now = Instant::now();
                latencies.record((now - sent).as_nanos() as u64);
                sent = now;
            }
            done += count as u64;
            if port.send_back(count) < count {
                return Err(Failure::new("the device does not take the frames"));
            }
        }
        bursts = bursts.wrapping_add(1);
        if bursts.is_multiple_of(BURSTS) {
            let now = Instant::now();
            if done != done_then {
                (done_then, seen) = (done, now);
            } else if now - seen > STALL_LIMIT {
                return Err(Failure::new("no frame came back"));
            }
            if now - start >= time {
                return Ok((done, now - start));
            }
        }
    }
}
