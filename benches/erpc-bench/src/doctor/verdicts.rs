//! What the facts mean: whether each transport would work, what is in its way, and what to do.
//! Nothing here looks at the machine.

use std::collections::BTreeSet;

use super::facts::{Core, Facts, Hugepages, Limit, Module, Nic, NicKind, PciNic, Rdma};

/// How far erpc itself has the transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InErpc {
    BuiltIn,
    /// A cargo feature, off by default.
    FeatureDpdk,
    /// As [`InErpc::FeatureDpdk`].
    FeatureIbverbs,
}

impl InErpc {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::BuiltIn => "built in",
            Self::FeatureDpdk => "cargo feature dpdk",
            Self::FeatureIbverbs => "cargo feature ibverbs",
        }
    }

    /// Whether this program was built with the transport.
    pub(super) fn is_built(self) -> bool {
        match self {
            Self::BuiltIn => true,
            Self::FeatureDpdk => cfg!(feature = "dpdk"),
            Self::FeatureIbverbs => cfg!(feature = "ibverbs"),
        }
    }
}

/// Something that keeps a transport from working, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Obstacle {
    pub(super) what: String,
    pub(super) advice: String,
}

/// Whether a transport would work on the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    /// For programs.
    pub(super) id: &'static str,
    /// For people.
    pub(super) name: &'static str,
    pub(super) in_erpc: InErpc,
    pub(super) obstacles: Vec<Obstacle>,
    /// What to know or to improve although it works.
    pub(super) notes: Vec<String>,
}

impl Verdict {
    fn new(id: &'static str, name: &'static str, in_erpc: InErpc) -> Self {
        Self { id, name, in_erpc, obstacles: Vec::new(), notes: Vec::new() }
    }

    /// The machine has everything that the transport needs.
    pub(super) fn machine_ready(&self) -> bool {
        self.obstacles.is_empty()
    }

    /// A program of this version of erpc can use the transport here and now.
    pub(super) fn usable_now(&self) -> bool {
        self.machine_ready() && self.in_erpc.is_built()
    }

    fn obstacle(&mut self, what: impl Into<String>, advice: impl Into<String>) {
        self.obstacles.push(Obstacle { what: what.into(), advice: advice.into() });
    }

    fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }
}

/// The receive buffer that erpc requests by default (`UdpConfig::recv_buffer`).
const RECV_BUFFER: u64 = 4 << 20;
/// Linux's default of `net.core.wmem_max`, which is enough for erpc.
const SEND_BUFFER: u64 = 212_992;
/// Linux's default of `net.core.netdev_max_backlog`.
const BACKLOG: u64 = 1_000;
/// Memory that a transport with registered buffers pins, roughly.
const PINNED: u64 = 64 << 20;
/// Memory that DPDK takes from hugepages at least.
const HUGE_MEMORY: u64 = 64 << 20;
/// The versions of DPDK that erpc's feature is written for: year and month.
const DPDK_VERSIONS: [(u64, u64); 2] = [(22, 11), (24, 11)];
/// The af_xdp driver holds a packet in a page, which also has the headers of its buffer.
const XDP_MTU: u64 = 3_000;

/// One verdict for each transport, the simplest first.
pub(super) fn judge(facts: &Facts) -> Vec<Verdict> {
    vec![
        udp(facts),
        memif(facts),
        af_packet(facts),
        af_xdp(facts),
        dpdk_pci(facts),
        verbs(facts),
        soft_roce(facts),
    ]
}

fn udp(facts: &Facts) -> Verdict {
    let mut verdict = Verdict::new("udp", "kernel UDP", InErpc::BuiltIn);
    let up: Vec<&Nic> = facts.nics.iter().filter(|nic| nic.up).collect();
    if up.is_empty() {
        verdict.obstacle(
            "no network interface is up",
            "run `ip link set lo up` for programs of this machine, and `ip link set NAME up` for \
             the network",
        );
    } else if up.iter().all(|nic| nic.kind == NicKind::Loopback) {
        verdict.note(
            "only the loopback interface is up, so that only programs of this machine reach each \
             other; `ip link set NAME up` starts another one",
        );
    }
    if let Limit::AtMost(0..16) = facts.limits.nofile.unwrap_or(Limit::Unlimited) {
        verdict.obstacle(
            "this process may open fewer than 16 files, and each endpoint needs several",
            "run `ulimit -n 1024`",
        );
    }
    let sockets = &facts.sockets;
    if let Some(bytes) = sockets.rmem_max.filter(|&bytes| bytes < RECV_BUFFER) {
        verdict.note(format!(
            "net.core.rmem_max is {bytes}, less than the {RECV_BUFFER} bytes that erpc requests \
             for receiving: fewer calls can be in flight; `sysctl -w net.core.rmem_max=8388608` \
             raises it"
        ));
    }
    if let Some(bytes) = sockets.wmem_max.filter(|&bytes| bytes < SEND_BUFFER) {
        verdict.note(format!(
            "net.core.wmem_max is {bytes}, less than Linux's default; `sysctl -w \
             net.core.wmem_max={SEND_BUFFER}` restores it"
        ));
    }
    if let Some(packets) = sockets.netdev_max_backlog.filter(|&packets| packets < BACKLOG) {
        verdict.note(format!(
            "net.core.netdev_max_backlog is {packets}: bursts over loopback may be dropped; \
             `sysctl -w net.core.netdev_max_backlog={BACKLOG}` restores Linux's default"
        ));
    }
    verdict
}

/// Obstacles of all transports over DPDK: the library, and the driver of the port.
fn dpdk_library(facts: &Facts, driver: &str, verdict: &mut Verdict) {
    let dpdk = &facts.dpdk;
    const INSTALL: &str = "run `apt-get install libdpdk-dev dpdk libclang-dev pkg-config`, or build DPDK as shared \
         libraries and install it";
    match (&dpdk.development, &dpdk.abi) {
        (None, None) => verdict.obstacle("libdpdk is not installed", INSTALL),
        (None, Some(_)) => verdict.obstacle(
            "the libraries of DPDK are installed, but not libdpdk.pc and the headers, which a \
             build needs",
            INSTALL,
        ),
        (Some(_), None) => verdict.obstacle(
            "libdpdk.pc is installed, but not librte_eal.so, which a program needs",
            INSTALL,
        ),
        (Some(version), Some(_)) => match year_and_month(version) {
            Some(version) if version < DPDK_VERSIONS[0] => verdict.obstacle(
                format!("DPDK {}.{:02} is older than 22.11", version.0, version.1),
                "install DPDK 22.11 or later",
            ),
            Some(version) if version > DPDK_VERSIONS[1] => verdict.note(format!(
                "DPDK {}.{:02} is newer than 24.11, the newest version that erpc knows",
                version.0, version.1
            )),
            Some(_) => {}
            None => verdict.note("the version of DPDK is unknown; erpc wants 22.11 to 24.11"),
        },
    }
    if dpdk.abi.is_some() && !driver.is_empty() && !dpdk.drivers.contains(driver) {
        verdict.obstacle(
            format!("DPDK's driver librte_net_{driver}.so is not installed"),
            "run `apt-get install libdpdk-dev`, which brings all of Debian's drivers, or build \
             DPDK with this driver",
        );
    }
}

/// The first two numbers of a version.
fn year_and_month(version: &str) -> Option<(u64, u64)> {
    let mut parts = version.split('.');
    let (year, month) = (parts.next()?, parts.next()?);
    let month = month.split(|c: char| !c.is_ascii_digit()).next()?;
    Some((year.parse().ok()?, month.parse().ok()?))
}

/// Why DPDK cannot use hugepages here, or `None` if it can.
fn without_hugepages(facts: &Facts) -> Option<Obstacle> {
    let bytes = |pages: &Hugepages| pages.free.saturating_mul(pages.kib).saturating_mul(1024);
    let (what, advice) = if !facts.hugepages.iter().any(|pages| bytes(pages) >= HUGE_MEMORY) {
        (
            "fewer than 64 MiB of hugepages are free",
            "run `sysctl -w vm.nr_hugepages=128`, which reserves 256 MiB in pages of 2 MiB",
        )
    } else if !facts.hugetlbfs.iter().any(|mount| mount.writable) {
        (
            "no hugetlbfs is mounted where this process may write",
            "run `mkdir -p /dev/hugepages && mount -t hugetlbfs none /dev/hugepages`",
        )
    } else {
        return None;
    };
    Some(Obstacle { what: what.into(), advice: advice.into() })
}

fn note_hugepages(facts: &Facts, verdict: &mut Verdict) {
    if let Some(Obstacle { what, advice }) = without_hugepages(facts) {
        verdict.note(format!(
            "{what}: without hugepages it works, more slowly, with the EAL arguments `--no-huge -m \
             256`; to have them, {advice}"
        ));
    }
}

fn memif(facts: &Facts) -> Verdict {
    let mut verdict = Verdict::new("dpdk-memif", "DPDK over memif", InErpc::FeatureDpdk);
    dpdk_library(facts, "memif", &mut verdict);
    verdict.note("memif connects programs of one machine, and needs no NIC and no privilege");
    verdict.note(
        "memif copies packets, except at a client with hugepages, `--single-file-segments` on both \
         sides and `zero-copy=yes` at the client",
    );
    note_hugepages(facts, &mut verdict);
    verdict
}

/// Ethernet interfaces of the kernel that are up.
fn ethernet(facts: &Facts) -> impl Iterator<Item = &Nic> {
    facts.nics.iter().filter(|nic| nic.ethernet && nic.up)
}

fn need_ethernet(facts: &Facts, verdict: &mut Verdict) {
    if ethernet(facts).next().is_some() {
        return;
    }
    let down = facts.nics.iter().find(|nic| nic.ethernet);
    let advice = down.map_or_else(
        || "add one; for tests, `ip link add a type veth peer name b` makes a pair".to_owned(),
        |nic| format!("run `ip link set {} up`, or use another interface", nic.name),
    );
    verdict.obstacle("no Ethernet interface is up", advice);
}

/// Wants capabilities. The advice is one command with all of them, because `setcap` replaces those
/// that a program had before.
fn need_rights<const N: usize>(rights: [(bool, &str); N], verdict: &mut Verdict) {
    let missing: Vec<&str> = rights.iter().filter(|(has, _)| !has).map(|&(_, name)| name).collect();
    if !missing.is_empty() {
        verdict.obstacle(
            format!("this process lacks {}", missing.join(", ")),
            format!(
                "run it as root, or give the program what it needs: `setcap {}+ep PROGRAM`",
                rights.map(|(_, name)| name.to_lowercase()).join(",")
            ),
        );
    }
}

fn need_pinned_memory(facts: &Facts, verdict: &mut Verdict) {
    let enough = match facts.limits.memlock {
        Some(Limit::AtMost(bytes)) => bytes >= PINNED,
        Some(Limit::Unlimited) | None => true,
    };
    if !enough && !facts.rights.ipc_lock {
        verdict.obstacle(
            "this process may pin less than 64 MiB (`ulimit -l`), and lacks CAP_IPC_LOCK",
            "run `ulimit -l unlimited` as root before the program, or set `memlock` in \
             /etc/security/limits.conf (`LimitMEMLOCK=` in a systemd unit)",
        );
    }
}

fn af_packet(facts: &Facts) -> Verdict {
    let mut verdict = Verdict::new("dpdk-af_packet", "DPDK over af_packet", InErpc::FeatureDpdk);
    dpdk_library(facts, "af_packet", &mut verdict);
    need_ethernet(facts, &mut verdict);
    need_rights([(facts.rights.net_raw, "CAP_NET_RAW")], &mut verdict);
    if !facts.sockets.packet {
        verdict.note(
            "the kernel does not list AF_PACKET sockets; if the start fails, run `modprobe \
             af_packet`",
        );
    }
    verdict.note(
        "give erpc an IP address that the kernel does not have, or the kernel answers packets with \
         port unreachable; every packet is copied",
    );
    verdict.note(
        "for an MTU above 1,968, add `framesz=16384,blocksz=16384` to the device's arguments, and \
         set the interface's MTU",
    );
    note_hugepages(facts, &mut verdict);
    verdict
}

fn af_xdp(facts: &Facts) -> Verdict {
    let mut verdict = Verdict::new("dpdk-af_xdp", "DPDK over af_xdp", InErpc::FeatureDpdk);
    dpdk_library(facts, "af_xdp", &mut verdict);
    need_ethernet(facts, &mut verdict);
    let rights = &facts.rights;
    let bpf = rights.bpf || rights.sys_admin;
    need_rights(
        [(rights.net_raw, "CAP_NET_RAW"), (rights.net_admin, "CAP_NET_ADMIN"), (bpf, "CAP_BPF")],
        &mut verdict,
    );
    need_pinned_memory(facts, &mut verdict);
    if !facts.sockets.xdp {
        verdict.obstacle(
            "the kernel has no AF_XDP sockets",
            "use a kernel with CONFIG_XDP_SOCKETS=y, 5.4 or later, or use af_packet",
        );
    }
    for nic in ethernet(facts) {
        if let Some(mtu) = nic.mtu.filter(|&mtu| mtu > XDP_MTU) {
            verdict.note(format!(
                "{} has an MTU of {mtu}; if the driver refuses it, run `ip link set {} mtu 1500`",
                nic.name, nic.name
            ));
        }
    }
    for nic in ethernet(facts).filter(|nic| nic.default_route) {
        verdict.note(format!(
            "the default route of this machine leaves through {}: af_xdp takes the packets of its \
             queues away from the kernel, which may end SSH sessions; use another interface or a \
             veth pair",
            nic.name
        ));
    }
    verdict.note("packets are copied between the buffers of erpc and those of the driver");
    note_hugepages(facts, &mut verdict);
    verdict
}

/// DPDK's driver for a NIC, by the kernel's driver or else by the vendor.
fn driver_of(nic: &PciNic) -> Option<&'static str> {
    let by_kernel = match nic.driver.as_deref().unwrap_or_default() {
        "mlx5_core" => "mlx5",
        "mlx4_core" => "mlx4",
        "i40e" => "i40e",
        "ice" => "ice",
        "iavf" => "iavf",
        "ixgbe" | "ixgbevf" => "ixgbe",
        "e1000" | "e1000e" | "igb" | "igbvf" => "e1000",
        "igc" => "igc",
        "ena" => "ena",
        "gve" => "gve",
        "bnxt_en" => "bnxt",
        "vmxnet3" => "vmxnet3",
        "virtio-pci" | "virtio_net" => "virtio",
        _ => "",
    };
    // Intel has several drivers for its NICs, so its id alone does not name one.
    let by_vendor = match nic.vendor.as_deref().unwrap_or_default() {
        "0x1af4" => "virtio",
        "0x1d0f" => "ena",
        "0x15b3" => "mlx5",
        "0x14e4" => "bnxt",
        "0x15ad" => "vmxnet3",
        "0x1ae0" => "gve",
        _ => "",
    };
    [by_kernel, by_vendor].into_iter().find(|name| !name.is_empty())
}

fn dpdk_pci(facts: &Facts) -> Verdict {
    let empty = || Verdict::new("dpdk-pci", "DPDK over a PCI NIC", InErpc::FeatureDpdk);
    let candidates = facts.pci_nics.iter().map(|nic| {
        let mut verdict = empty();
        one_pci_nic(facts, nic, &mut verdict);
        verdict
    });
    // The NIC with the fewest obstacles is the one to use.
    candidates.min_by_key(|verdict| verdict.obstacles.len()).unwrap_or_else(|| {
        let mut verdict = empty();
        dpdk_library(facts, "", &mut verdict);
        verdict.obstacle(
            "there is no network device on the PCI bus",
            "use a machine with a NIC that DPDK drives (https://core.dpdk.org/supported/nics/), or \
             add one to the virtual machine",
        );
        verdict
    })
}

fn one_pci_nic(facts: &Facts, nic: &PciNic, verdict: &mut Verdict) {
    let address = &nic.address;
    let driver = driver_of(nic);
    verdict.note(format!("this is about the NIC {address}"));
    dpdk_library(facts, driver.unwrap_or_default(), verdict);
    if driver.is_none() {
        verdict.note(format!(
            "doctor does not know which driver of DPDK fits {}:{}; see \
             https://core.dpdk.org/supported/nics/",
            nic.vendor.as_deref().unwrap_or("?"),
            nic.device.as_deref().unwrap_or("?"),
        ));
    }
    match nic.driver.as_deref() {
        Some("mlx5_core" | "mlx4_core") => shared_with_kernel(facts, verdict),
        Some("vfio-pci") => bound_to_vfio(facts, nic, verdict),
        Some("uio_pci_generic" | "igb_uio") => {
            need_physical_addresses(facts, verdict);
            need_device(facts, "/dev/uio", verdict);
        }
        other => {
            bind_first(facts, nic, other, verdict);
            return;
        }
    }
    // For uio, missing hugepages are an obstacle already.
    if nic.driver.as_deref().is_some_and(|driver| !driver.contains("uio")) {
        note_hugepages(facts, verdict);
    }
}

/// Drivers for which the NIC stays with the kernel, and DPDK uses it through libibverbs.
fn shared_with_kernel(facts: &Facts, verdict: &mut Verdict) {
    verdict.note("the NIC stays with the kernel's driver, which passes queues to DPDK");
    verbs_library(facts, verdict);
    need_device(facts, "/dev/infiniband/uverbs", verdict);
    need_rights([(facts.rights.net_raw, "CAP_NET_RAW")], verdict);
    need_pinned_memory(facts, verdict);
}

fn bound_to_vfio(facts: &Facts, nic: &PciNic, verdict: &mut Verdict) {
    // In the mode of vfio without an IOMMU, the kernel makes a group up, and names its file so.
    let made_up = |group: &str| {
        let path = format!("/dev/vfio/noiommu-{group}");
        facts.devices.iter().any(|file| file.path == path)
    };
    let group = nic.iommu_group.as_deref().filter(|group| !made_up(group));
    match group.filter(|_| facts.iommu_groups > 0) {
        Some(group) => {
            need_device(facts, "/dev/vfio/vfio", verdict);
            need_device(facts, &format!("/dev/vfio/{group}"), verdict);
        }
        None => verdict.obstacle(
            format!("{} is bound to vfio-pci, but has no IOMMU group of hardware", nic.address),
            IOMMU_ADVICE,
        ),
    }
    need_pinned_memory(facts, verdict);
}

const IOMMU_ADVICE: &str = "turn on VT-d or AMD-Vi in the firmware and boot with `intel_iommu=on` (Intel); a virtual \
     machine needs a virtual IOMMU; uio_pci_generic works without one, for root";

/// A NIC that belongs to a driver of the kernel, or to none.
fn bind_first(facts: &Facts, nic: &PciNic, driver: Option<&str>, verdict: &mut Verdict) {
    let address = &nic.address;
    let interface = facts.nics.iter().find(|kernel| kernel.pci.as_ref() == Some(address));
    if let Some(kernel) = interface.filter(|kernel| kernel.default_route) {
        verdict.obstacle(
            format!("the default route of this machine leaves through {address} ({})", kernel.name),
            "use another NIC: DPDK takes the NIC away from the kernel, which ends SSH sessions over \
             it",
        );
    }
    let target = if facts.iommu_groups > 0 {
        if facts.modules.vfio_pci == Module::Missing {
            verdict.obstacle(
                "the kernel has no module vfio-pci",
                "install the modules of this kernel, or a kernel with CONFIG_VFIO_PCI",
            );
        }
        need_pinned_memory(facts, verdict);
        "vfio-pci"
    } else if facts.modules.uio_pci_generic == Module::Missing {
        verdict.obstacle(
            "there is no IOMMU, which vfio-pci needs, and no module uio_pci_generic, which works \
             without one",
            IOMMU_ADVICE,
        );
        need_pinned_memory(facts, verdict);
        "vfio-pci"
    } else {
        verdict.note(format!("there is no IOMMU, which vfio-pci needs; {IOMMU_ADVICE}"));
        need_physical_addresses(facts, verdict);
        "uio_pci_generic"
    };
    let holder = driver.map_or("no driver".to_owned(), |driver| format!("the kernel's {driver}"));
    verdict.obstacle(
        format!("{address} is bound to {holder}"),
        format!("run `modprobe {target} && dpdk-devbind.py --bind={target} {address}` as root"),
    );
}

/// Without an IOMMU the NIC writes to physical addresses, which only root learns, and which stay
/// the same only in hugepages.
fn need_physical_addresses(facts: &Facts, verdict: &mut Verdict) {
    if !facts.rights.root || !facts.rights.sys_admin {
        verdict.obstacle(
            "without an IOMMU, only root with CAP_SYS_ADMIN learns the physical addresses that the \
             NIC needs",
            "run the program as root, or use vfio-pci with an IOMMU",
        );
    }
    if let Some(Obstacle { what, advice }) = without_hugepages(facts) {
        verdict.obstacle(format!("without an IOMMU, the NIC needs hugepages, but {what}"), advice);
    }
}

/// Wants a device file whose path starts with `prefix`, or is `prefix` if that ends with a number.
fn need_device(facts: &Facts, prefix: &str, verdict: &mut Verdict) {
    let is_whole = prefix.starts_with("/dev/vfio/");
    let matches = |path: &str| if is_whole { path == prefix } else { path.starts_with(prefix) };
    let found: Vec<_> = facts.devices.iter().filter(|file| matches(&file.path)).collect();
    if found.iter().any(|file| file.usable) {
        return;
    }
    match found.first() {
        Some(file) => verdict.obstacle(
            format!("this process may not open {}", file.path),
            format!("run it as root, or run `chown USER {}`", file.path),
        ),
        None => {
            let module = match prefix {
                "/dev/infiniband/uverbs" => "ib_uverbs",
                "/dev/uio" => "uio_pci_generic",
                _ => "vfio-pci",
            };
            let name = if is_whole { prefix.to_owned() } else { format!("{prefix}*") };
            verdict.obstacle(
                format!("there is no {name}"),
                format!("run `modprobe {module}`; in a container, pass the device file to it"),
            );
        }
    }
}

fn verbs_library(facts: &Facts, verdict: &mut Verdict) {
    if !facts.verbs.library {
        verdict.obstacle(
            "libibverbs is not installed",
            "run `apt-get install libibverbs-dev ibverbs-providers rdma-core`",
        );
    } else if facts.verbs.development.is_none() {
        verdict.note(
            "to build the feature `ibverbs`, also run `apt-get install libibverbs-dev cmake pkg-config \
             libclang-dev libnl-3-dev libnl-route-3-dev`",
        );
    }
}

/// Over Ethernet, peers are addressed by GIDs of RoCE v2, of which a port has one for each address of
/// its interface.
fn note_gids<'a>(devices: impl Iterator<Item = &'a Rdma>, verdict: &mut Verdict) {
    for device in devices {
        let name = &device.name;
        match device.gids.iter().find(|gid| gid.is_v2 && gid.is_v4()) {
            Some(gid) => verdict.note(format!(
                "{name} has the GID {} of RoCE v2 at index {}: `--device {name} --gid {}`",
                gid.address, gid.index, gid.index
            )),
            None if device.link_layers.iter().any(|layer| layer == "InfiniBand") => {}
            None if device.gids.is_empty() => {}
            None => verdict.note(format!(
                "{name} has no GID of RoCE v2 over IPv4; `ip addr add ADDRESS/PREFIX dev INTERFACE` \
                 gives it one"
            )),
        }
    }
}

fn verbs(facts: &Facts) -> Verdict {
    let mut verdict =
        Verdict::new("verbs-ud", "ibverbs UD over an RDMA NIC", InErpc::FeatureIbverbs);
    verbs_library(facts, &mut verdict);
    let mut devices = facts.rdma.iter().filter(|device| !device.emulated).peekable();
    if devices.peek().is_none() {
        verdict.obstacle(
            "there is no RDMA NIC",
            "use a machine with one (InfiniBand or RoCE), and load its RDMA module, for example \
             mlx5_ib",
        );
        return verdict;
    }
    if devices.all(|device| device.active_ports == 0) {
        verdict.obstacle(
            "no port of an RDMA NIC is active",
            "connect the cable and run `rdma link`; RoCE: run `ip link set NAME up`; InfiniBand: \
             start a subnet manager",
        );
    }
    note_gids(facts.rdma.iter().filter(|device| !device.emulated), &mut verdict);
    need_device(facts, "/dev/infiniband/uverbs", &mut verdict);
    need_pinned_memory(facts, &mut verdict);
    verdict
}

fn soft_roce(facts: &Facts) -> Verdict {
    let mut verdict =
        Verdict::new("soft-roce", "ibverbs UD over Soft-RoCE", InErpc::FeatureIbverbs);
    verbs_library(facts, &mut verdict);
    if facts.verbs.library && !facts.verbs.providers.contains("rxe") {
        verdict.obstacle(
            "libibverbs has no driver for Soft-RoCE (librxe-rdmav*.so)",
            "run `apt-get install ibverbs-providers`",
        );
    }
    verdict
        .note("Soft-RoCE is for tests: the kernel emulates the NIC, more slowly than kernel UDP");
    let mut devices = facts.rdma.iter().filter(|device| device.emulated).peekable();
    if devices.peek().is_some() {
        if devices.all(|device| device.active_ports == 0) {
            verdict.obstacle(
                "no port of a Soft-RoCE device is active",
                "run `ip link set NAME up` for the interface below it (`rdma link` names it)",
            );
        }
        note_gids(facts.rdma.iter().filter(|device| device.emulated), &mut verdict);
        need_device(facts, "/dev/infiniband/uverbs", &mut verdict);
        need_pinned_memory(facts, &mut verdict);
        return verdict;
    }
    if facts.modules.rdma_rxe == Module::Missing {
        verdict.obstacle(
            "the kernel has no module rdma_rxe",
            "use a kernel with CONFIG_RDMA_RXE, for example in a virtual machine",
        );
        return verdict;
    }
    need_ethernet(facts, &mut verdict);
    need_rights([(facts.rights.net_admin, "CAP_NET_ADMIN")], &mut verdict);
    let name = ethernet(facts).next().map_or("NAME", |nic| &nic.name);
    verdict.obstacle(
        "there is no Soft-RoCE device yet",
        format!("run `modprobe rdma_rxe && rdma link add rxe0 type rxe netdev {name}` as root"),
    );
    verdict
}

/// Advice about cores, clock and virtualisation, which concerns all transports.
pub(super) fn advice(facts: &Facts) -> Vec<String> {
    let mut advice = Vec::new();
    let usable: Vec<&Core> = facts.cores.iter().filter(|core| core.allowed).collect();
    match usable.len() {
        0 => advice.push("doctor cannot see the cores: /sys is not mounted or not readable".into()),
        1 => advice.push(
            "this process may use one core only, so that client and server share it; results for \
             two machines need more cores"
                .into(),
        ),
        _ => advice.push(pair_advice(&usable)),
    }
    if let Some(core) = usable.iter().find(|core| core.siblings.len() > 1) {
        advice.push(format!(
            "cores {} are hardware threads of one core: do not run two busy event loops on them",
            list(&core.siblings)
        ));
    }
    let nodes: BTreeSet<u64> = usable.iter().filter_map(|core| core.numa).collect();
    for nic in facts.nics.iter().filter(|nic| nodes.len() > 1 && nic.up) {
        let Some(node) = nic.numa else { continue };
        let near = usable.iter().filter(|core| core.numa == Some(node)).map(|core| core.id);
        let near: BTreeSet<usize> = near.collect();
        if !near.is_empty() {
            advice.push(format!(
                "{} is on NUMA node {node}: run the event loops that use it on cores {}",
                nic.name,
                list(&near)
            ));
        }
    }
    let slow = usable
        .iter()
        .find_map(|core| core.governor.as_deref().filter(|&governor| governor != "performance"));
    if let Some(governor) = slow {
        advice.push(format!(
            "the CPU governor is {governor}, so that the clock may be slow after a pause: run \
             `cpupower frequency-set -g performance` before measurements"
        ));
    }
    if facts.platform.hypervisor {
        advice.push(
            "this is a virtual machine: other guests disturb measurements, and what it says about \
             caches and siblings may be invented; `pp_ns` of `erpc-bench duplex` measures the \
             distance of two cores"
                .into(),
        );
    }
    advice
}

/// Whether two cores are near: separate cores behind one cache.
fn are_near(one: &Core, other: &Core) -> bool {
    !one.siblings.contains(&other.id) && one.cache.contains(&other.id)
}

fn pair_advice(cores: &[&Core]) -> String {
    let mut pairs = cores
        .iter()
        .enumerate()
        .flat_map(|(index, one)| cores[index + 1..].iter().map(move |other| (one, other)));
    match pairs.find(|(one, other)| are_near(one, other)) {
        Some((one, other)) => format!(
            "cores {} and {} are near: separate cores behind one last cache; use such a pair for \
             client and server on this machine",
            one.id, other.id
        ),
        None => "no two cores are near, that is separate cores behind one last cache: a message \
                 between two of them takes longer"
            .into(),
    }
}

/// Numbers of cores, with ranges as the kernel writes them.
pub(super) fn list(cores: &BTreeSet<usize>) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for &core in cores {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == core => *last = core,
            _ => ranges.push((core, core)),
        }
    }
    let text = |(first, last): (usize, usize)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    ranges.into_iter().map(text).collect::<Vec<_>>().join(",")
}
