//! Facts and verdicts, as text for people and as JSON for programs.

use std::collections::BTreeSet;
use std::fmt::{self, Display, Write as _};
use std::io::{self, ErrorKind, Write as _};

use super::facts::{Facts, Limit};
use super::port::Port;
use super::verdicts::{InErpc, Verdict, list};
use crate::failure::Failure;

/// Writes to standard output. A reader that closes its end early, as `head` does, is no failure.
pub(super) fn write(text: &str) -> Result<(), Failure> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::of("cannot write to standard output")(error))
        }
        _ => Ok(()),
    }
}

/// A value of JSON.
pub(super) enum Json {
    Null,
    Bool(bool),
    Int(u64),
    Text(String),
    List(Vec<Json>),
    /// The names need no escapes.
    Object(Vec<(&'static str, Json)>),
}

impl Json {
    fn object<const N: usize>(fields: [(&'static str, Json); N]) -> Self {
        Self::Object(fields.into())
    }

    fn list<T>(items: impl IntoIterator<Item = T>, value: impl Fn(T) -> Json) -> Self {
        Self::List(items.into_iter().map(value).collect())
    }
}

impl From<bool> for Json {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<u64> for Json {
    fn from(value: u64) -> Self {
        Self::Int(value)
    }
}

impl From<usize> for Json {
    fn from(value: usize) -> Self {
        Self::Int(value as u64)
    }
}

impl From<&str> for Json {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

impl From<&String> for Json {
    fn from(value: &String) -> Self {
        Self::Text(value.clone())
    }
}

impl From<Limit> for Json {
    fn from(value: Limit) -> Self {
        match value {
            Limit::Unlimited => "unlimited".into(),
            Limit::AtMost(number) => number.into(),
        }
    }
}

impl<T: Into<Json>> From<Option<T>> for Json {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

impl Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::Int(value) => write!(f, "{value}"),
            Self::Text(text) => quoted(text, f),
            Self::List(items) => {
                f.write_char('[')?;
                for (index, item) in items.iter().enumerate() {
                    f.write_str(if index == 0 { "" } else { "," })?;
                    item.fmt(f)?;
                }
                f.write_char(']')
            }
            Self::Object(fields) => {
                f.write_char('{')?;
                for (index, (name, value)) in fields.iter().enumerate() {
                    write!(f, "{}\"{name}\":{value}", if index == 0 { "" } else { "," })?;
                }
                f.write_char('}')
            }
        }
    }
}

/// A string of JSON (RFC 8259, section 7).
fn quoted(text: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_char('"')?;
    for c in text.chars() {
        match c {
            '"' => f.write_str("\\\"")?,
            '\\' => f.write_str("\\\\")?,
            '\n' => f.write_str("\\n")?,
            '\r' => f.write_str("\\r")?,
            '\t' => f.write_str("\\t")?,
            c if c.is_control() => write!(f, "\\u{:04x}", u32::from(c))?,
            c => f.write_char(c)?,
        }
    }
    f.write_char('"')
}

/// Facts, verdicts, advice and the opened port as one object.
pub(super) fn json(
    facts: &Facts,
    verdicts: &[Verdict],
    advice: &[String],
    port: Option<&Port>,
) -> Json {
    Json::object([
        ("facts", facts_json(facts)),
        ("verdicts", Json::list(verdicts, verdict_json)),
        ("advice", Json::list(advice, Json::from)),
        ("port", port.map(port_json).into()),
    ])
}

fn port_json(port: &Port) -> Json {
    Json::object([
        ("port", (&port.port).into()),
        ("endpoints", u64::from(port.endpoints).into()),
        ("steering", (&port.steering).into()),
        ("zero_copy", port.zero_copy.into()),
        ("link_up", port.link_up.into()),
        ("datagram", port.datagram.into()),
    ])
}

fn verdict_json(verdict: &Verdict) -> Json {
    Json::object([
        ("transport", verdict.id.into()),
        ("machine_ready", verdict.machine_ready().into()),
        ("in_erpc", verdict.in_erpc.name().into()),
        ("usable_now", verdict.usable_now().into()),
        (
            "obstacles",
            Json::list(&verdict.obstacles, |obstacle| {
                Json::object([
                    ("what", (&obstacle.what).into()),
                    ("advice", (&obstacle.advice).into()),
                ])
            }),
        ),
        ("notes", Json::list(&verdict.notes, Json::from)),
    ])
}

fn facts_json(facts: &Facts) -> Json {
    let hugepages = Json::list(&facts.hugepages, |pages| {
        Json::object([
            ("kib", pages.kib.into()),
            ("total", pages.total.into()),
            ("free", pages.free.into()),
        ])
    });
    let hugetlbfs = Json::list(&facts.hugetlbfs, |mount| {
        Json::object([("path", (&mount.path).into()), ("writable", mount.writable.into())])
    });
    let devices = Json::list(&facts.devices, |file| {
        Json::object([("path", (&file.path).into()), ("usable", file.usable.into())])
    });
    let platform = &facts.platform;
    Json::object([
        ("kernel", facts.kernel.as_ref().into()),
        ("hugepages", hugepages),
        ("hugetlbfs", hugetlbfs),
        ("nics", nics_json(facts)),
        ("pci_nics", pci_nics_json(facts)),
        ("rdma", rdma_json(facts)),
        (
            "modules",
            Json::object([
                ("vfio_pci", facts.modules.vfio_pci.name().into()),
                ("uio_pci_generic", facts.modules.uio_pci_generic.name().into()),
                ("rdma_rxe", facts.modules.rdma_rxe.name().into()),
            ]),
        ),
        ("iommu_groups", facts.iommu_groups.into()),
        ("devices", devices),
        ("dpdk", libraries_json(facts)),
        ("verbs", verbs_json(facts)),
        ("sockets", sockets_json(facts)),
        (
            "limits",
            Json::object([
                ("memlock", facts.limits.memlock.into()),
                ("nofile", facts.limits.nofile.into()),
            ]),
        ),
        ("rights", rights_json(facts)),
        ("cores", cores_json(facts)),
        (
            "platform",
            Json::object([
                ("cpu", platform.cpu.as_ref().into()),
                ("hypervisor", platform.hypervisor.into()),
                ("vendor", platform.vendor.as_ref().into()),
                ("product", platform.product.as_ref().into()),
            ]),
        ),
    ])
}

fn nics_json(facts: &Facts) -> Json {
    Json::list(&facts.nics, |nic| {
        Json::object([
            ("name", (&nic.name).into()),
            ("kind", nic.kind.name().into()),
            ("ethernet", nic.ethernet.into()),
            ("up", nic.up.into()),
            ("driver", nic.driver.as_ref().into()),
            ("mbps", nic.mbps.into()),
            ("mtu", nic.mtu.into()),
            ("numa", nic.numa.into()),
            ("pci", nic.pci.as_ref().into()),
            ("default_route", nic.default_route.into()),
        ])
    })
}

fn pci_nics_json(facts: &Facts) -> Json {
    Json::list(&facts.pci_nics, |nic| {
        Json::object([
            ("address", (&nic.address).into()),
            ("vendor", nic.vendor.as_ref().into()),
            ("device", nic.device.as_ref().into()),
            ("driver", nic.driver.as_ref().into()),
            ("numa", nic.numa.into()),
            ("iommu_group", nic.iommu_group.as_ref().into()),
        ])
    })
}

fn rdma_json(facts: &Facts) -> Json {
    Json::list(&facts.rdma, |device| {
        Json::object([
            ("name", (&device.name).into()),
            ("emulated", device.emulated.into()),
            ("link_layers", Json::list(&device.link_layers, Json::from)),
            ("active_ports", device.active_ports.into()),
            (
                "gids",
                Json::list(&device.gids, |gid| {
                    Json::object([
                        ("index", gid.index.into()),
                        ("roce_v2", gid.is_v2.into()),
                        ("address", (&gid.address).into()),
                    ])
                }),
            ),
        ])
    })
}

fn libraries_json(facts: &Facts) -> Json {
    Json::object([
        ("development", facts.dpdk.development.as_ref().into()),
        ("abi", facts.dpdk.abi.as_ref().into()),
        ("drivers", Json::list(&facts.dpdk.drivers, Json::from)),
    ])
}

fn verbs_json(facts: &Facts) -> Json {
    Json::object([
        ("development", facts.verbs.development.as_ref().into()),
        ("library", facts.verbs.library.into()),
        ("providers", Json::list(&facts.verbs.providers, Json::from)),
    ])
}

fn sockets_json(facts: &Facts) -> Json {
    let sockets = &facts.sockets;
    Json::object([
        ("rmem_max", sockets.rmem_max.into()),
        ("wmem_max", sockets.wmem_max.into()),
        ("netdev_max_backlog", sockets.netdev_max_backlog.into()),
        ("packet", sockets.packet.into()),
        ("xdp", sockets.xdp.into()),
    ])
}

fn rights_json(facts: &Facts) -> Json {
    let rights = &facts.rights;
    Json::object([
        ("root", rights.root.into()),
        ("net_raw", rights.net_raw.into()),
        ("net_admin", rights.net_admin.into()),
        ("ipc_lock", rights.ipc_lock.into()),
        ("sys_admin", rights.sys_admin.into()),
        ("bpf", rights.bpf.into()),
    ])
}

fn cores_json(facts: &Facts) -> Json {
    Json::list(&facts.cores, |core| {
        Json::object([
            ("id", core.id.into()),
            ("allowed", core.allowed.into()),
            ("siblings", Json::list(core.siblings.iter().copied(), Json::from)),
            ("cache", Json::list(core.cache.iter().copied(), Json::from)),
            ("package", core.package.into()),
            ("numa", core.numa.into()),
            ("governor", core.governor.as_ref().into()),
        ])
    })
}

/// Facts, verdicts, advice and the opened port as text.
pub(super) fn text(
    facts: &Facts,
    verdicts: &[Verdict],
    advice: &[String],
    port: Option<&Port>,
) -> String {
    let mut text = String::from("MACHINE\n");
    for (name, value) in facts_text(facts) {
        text += &format!("  {name:<11} {value}\n");
    }
    text += "\nTRANSPORTS\n";
    for verdict in verdicts {
        text += &format!("  {}: {}\n", verdict.name, summary(verdict, verdict.in_erpc.is_built()));
        for obstacle in &verdict.obstacles {
            text += &format!("    - {}\n      To do: {}.\n", obstacle.what, obstacle.advice);
        }
        for note in &verdict.notes {
            text += &format!("    Note: {note}.\n");
        }
    }
    if !advice.is_empty() {
        text += "\nADVICE\n";
    }
    for line in advice {
        text += &format!("  - {line}.\n");
    }
    if let Some(port) = port {
        text += &format!(
            "\nPORT\n  {}: {} endpoints, steering {}, zero copy on transmit: {}, link {}, datagrams up \
             to {} bytes\n",
            port.port,
            port.endpoints,
            port.steering,
            yes(port.zero_copy),
            if port.link_up { "up" } else { "down" },
            port.datagram,
        );
    }
    text
}

/// The verdict in a few words, of a program that was built with the transport or without it.
pub(super) fn summary(verdict: &Verdict, is_built: bool) -> String {
    let is_ready = verdict.machine_ready();
    let (feature, tried) = match verdict.in_erpc {
        InErpc::BuiltIn => return if is_ready { "WORKS" } else { "DOES NOT WORK" }.into(),
        InErpc::FeatureDpdk => ("dpdk", "memif, af_packet and af_xdp"),
        InErpc::FeatureIbverbs => ("ibverbs", "Soft-RoCE"),
    };
    match (is_ready, is_built) {
        (true, true) => format!("WORKS; tried over {tried} only"),
        (true, false) => format!(
            "THE MACHINE IS READY; build erpc with the feature `{feature}`, tried over {tried} only"
        ),
        (false, true) => "WOULD NOT WORK YET".into(),
        (false, false) => format!("WOULD NOT WORK YET (and needs erpc's feature `{feature}`)"),
    }
}

fn or_unknown(value: Option<impl Display>) -> String {
    value.map_or_else(|| "unknown".to_owned(), |value| value.to_string())
}

fn yes(value: bool) -> &'static str {
    if value { "yes" } else { "no" }
}

impl Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unlimited => f.write_str("unlimited"),
            Self::AtMost(number) => write!(f, "{number}"),
        }
    }
}

fn facts_text(facts: &Facts) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    let platform = &facts.platform;
    let machine = [&platform.vendor, &platform.product].into_iter().flatten();
    let machine: Vec<&str> = machine.map(String::as_str).collect();
    lines.push((
        "platform",
        format!(
            "Linux {}; {}; virtual machine: {}{}{}",
            or_unknown(facts.kernel.as_ref()),
            platform.cpu.as_deref().unwrap_or("processor unknown"),
            yes(platform.hypervisor),
            if machine.is_empty() { "" } else { "; " },
            machine.join(" "),
        ),
    ));
    lines.extend(cores_text(facts).into_iter().map(|line| ("cores", line)));
    lines.extend(facts.hugepages.iter().map(|pages| {
        ("hugepages", format!("{} KiB: {} of {} free", pages.kib, pages.free, pages.total))
    }));
    lines.extend(
        facts.hugetlbfs.iter().map(|mount| {
            ("hugetlbfs", format!("{}, writable: {}", mount.path, yes(mount.writable)))
        }),
    );
    lines.extend(facts.nics.iter().map(|nic| {
        let speed = nic.mbps.map_or("speed unknown".to_owned(), |mbps| format!("{mbps} Mb/s"));
        let numa = nic.numa.map_or(String::new(), |node| format!(", NUMA node {node}"));
        let state = if nic.up { "up" } else { "down" };
        let driver = nic.driver.as_deref().unwrap_or("none");
        let address = nic.pci.as_deref().unwrap_or_default();
        let text = format!(
            "{}: {} {address}, {state}, driver {driver}, {speed}, MTU {}{numa}{}",
            nic.name,
            nic.kind.name(),
            or_unknown(nic.mtu),
            if nic.default_route { ", default route" } else { "" },
        );
        ("interface", text.replace(" ,", ","))
    }));
    lines.extend(facts.pci_nics.iter().map(|nic| {
        let text = format!(
            "{} [{}:{}], driver {}, IOMMU group {}",
            nic.address,
            nic.vendor.as_deref().unwrap_or("?"),
            nic.device.as_deref().unwrap_or("?"),
            nic.driver.as_deref().unwrap_or("none"),
            nic.iommu_group.as_deref().unwrap_or("none"),
        );
        ("PCI NIC", text)
    }));
    lines.extend(facts.rdma.iter().map(|device| {
        let kind = if device.emulated { "emulated" } else { "hardware" };
        let layers = device.link_layers.join(", ");
        (
            "RDMA",
            format!("{}: {kind}, {layers}, active ports: {}", device.name, device.active_ports),
        )
    }));
    lines.extend(facts.devices.iter().map(|file| {
        ("device", format!("{}, usable by this process: {}", file.path, yes(file.usable)))
    }));
    let modules = &facts.modules;
    lines.push((
        "modules",
        format!(
            "vfio-pci {}, uio_pci_generic {}, rdma_rxe {}; IOMMU groups: {}",
            modules.vfio_pci.name(),
            modules.uio_pci_generic.name(),
            modules.rdma_rxe.name(),
            facts.iommu_groups,
        ),
    ));
    lines.push(("libdpdk", dpdk_text(facts)));
    lines.push(("libibverbs", verbs_text(facts)));
    let sockets = &facts.sockets;
    lines.push((
        "sockets",
        format!(
            "rmem_max {}, wmem_max {}, netdev_max_backlog {}; AF_PACKET: {}, AF_XDP: {}",
            or_unknown(sockets.rmem_max),
            or_unknown(sockets.wmem_max),
            or_unknown(sockets.netdev_max_backlog),
            yes(sockets.packet),
            yes(sockets.xdp),
        ),
    ));
    let (limits, rights) = (&facts.limits, &facts.rights);
    lines.push((
        "limits",
        format!(
            "locked memory {}, open files {}",
            or_unknown(limits.memlock),
            or_unknown(limits.nofile)
        ),
    ));
    lines.push((
        "rights",
        format!(
            "root {}, CAP_NET_RAW {}, CAP_NET_ADMIN {}, CAP_IPC_LOCK {}, CAP_SYS_ADMIN {}, CAP_BPF \
             {}",
            yes(rights.root),
            yes(rights.net_raw),
            yes(rights.net_admin),
            yes(rights.ipc_lock),
            yes(rights.sys_admin),
            yes(rights.bpf),
        ),
    ));
    lines
}

/// One line for each group of cores behind one last cache.
fn cores_text(facts: &Facts) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let mut lines = Vec::new();
    for core in &facts.cores {
        let group = if core.cache.is_empty() { &BTreeSet::from([core.id]) } else { &core.cache };
        if !seen.insert(group.clone()) {
            continue;
        }
        lines.push(format!(
            "{}: one last cache; hardware threads per core: {}; package {}, NUMA node {}, governor \
             {}",
            list(group),
            core.siblings.len().max(1),
            or_unknown(core.package),
            or_unknown(core.numa),
            or_unknown(core.governor.as_ref()),
        ));
    }
    lines
}

fn dpdk_text(facts: &Facts) -> String {
    let dpdk = &facts.dpdk;
    if dpdk.development.is_none() && dpdk.abi.is_none() {
        return "not found".into();
    }
    let of_interest = ["memif", "af_packet", "af_xdp"]
        .map(|driver| format!("{driver} {}", yes(dpdk.drivers.contains(driver))));
    format!(
        "for builds {}, librte_eal.so {}; drivers: {} ({} in all)",
        dpdk.development.as_deref().unwrap_or("not found"),
        dpdk.abi.as_deref().unwrap_or("not found"),
        of_interest.join(", "),
        dpdk.drivers.len(),
    )
}

fn verbs_text(facts: &Facts) -> String {
    let verbs = &facts.verbs;
    if !verbs.library {
        return "not found".into();
    }
    let providers: Vec<&str> = verbs.providers.iter().map(String::as_str).collect();
    format!(
        "for builds {}; drivers: {}",
        verbs.development.as_deref().unwrap_or("not found"),
        if providers.is_empty() { "none".to_owned() } else { providers.join(" ") },
    )
}
