//! Devices of libibverbs.
//!
//! The binding is `ibverbs-sys`. `ibverbs`, which is built on it, has no Q_Keys, address handles,
//! inline data, or chains of requests, and keeps its pointers to itself; this folder is what could
//! move there. The functions of the data path are not symbols of the library but fields of the
//! device's context (`ops`), which the inline functions of `verbs.h` call; so does `post.rs`.

mod open;
mod pair;
mod post;

use std::collections::HashSet;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, Ordering};

use ibverbs_sys as ffi;

use super::config::{VerbsConfig, VerbsError};
use super::device::{
    AddressHandle, Completion, Device, DeviceInfo, Host, Provider, Queue, Rebuilt, RecvRequest,
    Registration, SendRequest,
};
use super::sysfs::Port;
use open::{Channel, CompletionQueue, Context, Domain};

/// Hops of packets with a GRH, which routers count down.
const HOPS: u8 = 64;
/// Traffic class of packets that switches may mark: ECT(0) (RFC 3168).
const ECN_CAPABLE: u8 = 2;

/// Opens devices of libibverbs.
#[derive(Clone, Copy, Debug)]
pub struct Ibverbs;

impl Provider for Ibverbs {
    type Device = IbvDevice;

    fn open(&self, config: &VerbsConfig) -> Result<IbvDevice, VerbsError> {
        IbvDevice::open(config)
    }
}

/// An open port of libibverbs, with a queue pair.
pub struct IbvDevice {
    /// Null after an attempt to replace the queue pair in vain.
    pair: AtomicPtr<ffi::ibv_qp>,
    /// Address handles that exist.
    handles: Mutex<HashSet<u64>>,
    regions: Mutex<Vec<Region>>,
    // Dropped in this order, after the queue pair, the handles and the regions.
    send: CompletionQueue,
    recv: CompletionQueue,
    channel: Channel,
    domain: Domain,
    context: Context,
    info: DeviceInfo,
    setup: pair::Setup,
    port: Port,
    /// The counter's value when the device was opened.
    overflows: u64,
}

/// A memory region.
struct Region(NonNull<ffi::ibv_mr>);

// SAFETY: libibverbs is thread-safe, and the region belongs to this value.
unsafe impl Send for Region {}

impl IbvDevice {
    fn open(config: &VerbsConfig) -> Result<Self, VerbsError> {
        let context = Context::open(&config.device)?;
        let limits = context.limits(config)?;
        let attributes = context.port(config)?;
        let port = Port::new(Path::new("/"), config);
        let gid = port.choose(config, attributes.is_ethernet)?;
        let pkey_index = context.pkey_index(config, attributes.pkeys)?;
        let (send_depth, recv_depth) = (config.send_depth.min(limits), config.recv_entries());
        config.check_ring(limits)?;
        let recv_depth = (recv_depth as u32).next_power_of_two().min(limits);
        let domain = context.domain(config)?;
        let channel = context.channel(config)?;
        let send = context.completion_queue(config, send_depth, None)?;
        let recv = context.completion_queue(config, recv_depth, Some(&channel))?;
        let setup = pair::Setup {
            port: config.port,
            gid_index: gid.index,
            pkey_index,
            qkey: config.qkey,
            service_level: config.service_level,
            send_depth,
            recv_depth,
            inline: pair::INLINE,
        };
        let refused = |(doing, error): (&'static str, io::Error)| VerbsError::Device {
            device: config.device.clone(),
            doing,
            errno: super::config::errno(&error),
        };
        let (pair, inline) = setup.create(&domain, &send, &recv).map_err(refused)?;
        let overflows = port.overflows().unwrap_or(0);
        let device = Self {
            pair: AtomicPtr::new(pair.as_ptr()),
            handles: Mutex::default(),
            regions: Mutex::default(),
            send,
            recv,
            channel,
            domain,
            context,
            info: DeviceInfo {
                gid: gid.gid,
                lid: attributes.lid,
                is_global: attributes.is_ethernet,
                mtu: attributes.mtu,
                inline,
                send_depth,
                recv_depth,
                rate: attributes.rate,
            },
            setup: pair::Setup { inline: inline as u32, ..setup },
            port,
            overflows,
        };
        device.setup.make_ready(pair).map_err(refused)?;
        Ok(device)
    }

    fn pair(&self) -> Option<NonNull<ffi::ibv_qp>> {
        NonNull::new(self.pair.load(Ordering::Relaxed))
    }

    fn queue(&self, queue: Queue) -> &CompletionQueue {
        match queue {
            Queue::Send => &self.send,
            Queue::Receive => &self.recv,
        }
    }

    /// Forces the queue pair into the error state, for tests.
    ///
    /// # Errors
    /// The system's error.
    pub fn break_pair(&self) -> io::Result<()> {
        self.pair().map_or(Ok(()), |pair| pair::modify_state(pair, ffi::ibv_qp_state::IBV_QPS_ERR))
    }

    /// Takes all completions, which are void.
    fn discard(&self) {
        let mut taken = [Completion::EMPTY; 64];
        for queue in [Queue::Send, Queue::Receive] {
            // Ends: the queue pair is reset or destroyed, so no completion is added.
            while self.poll(queue, &mut taken) > 0 {}
        }
    }
}

// SAFETY: a queue pair that is reset or destroyed accesses no memory of its requests, says the
// specification of verbs (InfiniBand 10.3.1, reset state), and drivers wait for the device. `drop`
// destroys it first. A device writes to posted receive buffers only: no remote access is allowed.
unsafe impl Device for IbvDevice {
    type Provider = Ibverbs;

    fn info(&self) -> DeviceInfo {
        self.info
    }

    fn qpn(&self) -> u32 {
        // SAFETY: the queue pair exists until `rebuild` or `drop`, which this thread would run.
        self.pair().map_or(0, |pair| unsafe { pair.as_ref() }.qp_num)
    }

    unsafe fn register(&self, start: NonNull<u8>, len: usize) -> io::Result<Registration> {
        let access = ffi::ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0 as i32;
        // SAFETY: the domain exists, and the caller promises that the memory stays mapped.
        let region =
            unsafe { ffi::ibv_reg_mr(self.domain.as_ptr(), start.as_ptr().cast(), len, access) };
        let region = NonNull::new(region).ok_or_else(io::Error::last_os_error)?;
        // SAFETY: libibverbs has filled the struct.
        let lkey = unsafe { region.as_ref() }.lkey;
        super::line::lock(&self.regions).push(Region(region));
        Ok(Registration { lkey })
    }

    fn create_handle(&self, host: Host, is_ecn_capable: bool) -> io::Result<AddressHandle> {
        let mut attributes = ffi::ibv_ah_attr {
            sl: self.setup.service_level,
            port_num: self.setup.port,
            ..ffi::ibv_ah_attr::default()
        };
        match host {
            Host::Lid(lid) => attributes.dlid = lid,
            Host::Gid(gid) => {
                attributes.is_global = 1;
                attributes.grh.dgid.raw = gid.0;
                attributes.grh.sgid_index = self.setup.gid_index;
                attributes.grh.hop_limit = HOPS;
                attributes.grh.traffic_class = if is_ecn_capable { ECN_CAPABLE } else { 0 };
            }
        }
        // SAFETY: the domain exists; a struct to read.
        let handle = unsafe { ffi::ibv_create_ah(self.domain.as_ptr(), &raw mut attributes) };
        let handle = NonNull::new(handle).ok_or_else(io::Error::last_os_error)?;
        let number = handle.as_ptr().expose_provenance() as u64;
        super::line::lock(&self.handles).insert(number);
        Ok(AddressHandle(number))
    }

    unsafe fn destroy_handle(&self, handle: AddressHandle) {
        if super::line::lock(&self.handles).remove(&handle.0) {
            destroy_handle(handle.0);
        }
    }

    unsafe fn post_recv(&self, requests: &[RecvRequest]) -> Result<(), (usize, io::Error)> {
        // SAFETY: the caller's promise.
        unsafe { post::recv(self.pair(), requests) }
    }

    unsafe fn post_send(&self, requests: &[SendRequest]) -> Result<(), (usize, io::Error)> {
        // SAFETY: the caller's promise.
        unsafe { post::send(self.pair(), requests) }
    }

    fn poll(&self, queue: Queue, into: &mut [Completion]) -> usize {
        post::poll(self.queue(queue), into)
    }

    fn is_ready(&self) -> bool {
        self.pair().is_some_and(pair::is_ready)
    }

    fn rebuild(&self) -> io::Result<Rebuilt> {
        if let Some(pair) = self.pair() {
            // A queue pair in another state goes through this one.
            let _ = pair::modify_state(pair, ffi::ibv_qp_state::IBV_QPS_ERR);
            if pair::modify_state(pair, ffi::ibv_qp_state::IBV_QPS_RESET).is_ok() {
                self.discard();
                if self.setup.make_ready(pair).is_ok() {
                    return Ok(Rebuilt::Reset);
                }
            }
            self.pair.store(std::ptr::null_mut(), Ordering::Relaxed);
            pair::destroy(pair);
        }
        self.discard();
        let (pair, _) =
            self.setup.create(&self.domain, &self.send, &self.recv).map_err(|(_, error)| error)?;
        if let Err((_, error)) = self.setup.make_ready(pair) {
            pair::destroy(pair);
            return Err(error);
        }
        self.pair.store(pair.as_ptr(), Ordering::Relaxed);
        Ok(Rebuilt::Replaced)
    }

    fn is_link_up(&self) -> bool {
        self.context.is_active(self.setup.port)
    }

    fn overflows(&self) -> Option<u64> {
        self.port.overflows().map(|count| count.saturating_sub(self.overflows))
    }

    fn arm(&self) {
        self.recv.arm();
    }

    fn take_events(&self) {
        self.channel.take_events();
    }

    fn events(&self) -> BorrowedFd<'_> {
        self.channel.fd()
    }
}

fn destroy_handle(number: u64) {
    let handle = std::ptr::with_exposed_provenance_mut(number as usize);
    // SAFETY: the number is that of a handle in the set of those that exist, from which it was
    // removed; requests that use it have ended.
    unsafe { ffi::ibv_destroy_ah(handle) };
}

impl Drop for IbvDevice {
    fn drop(&mut self) {
        if let Some(pair) = self.pair() {
            pair::destroy(pair);
        }
        for number in super::line::lock(&self.handles).drain() {
            destroy_handle(number);
        }
        for Region(region) in super::line::lock(&self.regions).drain(..) {
            // SAFETY: the region exists, and the queue pair that could use it does not.
            unsafe { ffi::ibv_dereg_mr(region.as_ptr()) };
        }
    }
}
