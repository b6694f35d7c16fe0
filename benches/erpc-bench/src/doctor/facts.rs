//! What the machine has: read from files below a root folder, without any judgement. A file that
//! is missing, unreadable or odd leaves its fact unknown.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

/// Everything that the verdicts depend on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) kernel: Option<String>,
    pub(super) hugepages: Vec<Hugepages>,
    pub(super) hugetlbfs: Vec<Mount>,
    pub(super) nics: Vec<Nic>,
    pub(super) pci_nics: Vec<PciNic>,
    pub(super) rdma: Vec<Rdma>,
    pub(super) modules: Modules,
    /// Number of IOMMU groups. 0 if the kernel runs without an IOMMU.
    pub(super) iommu_groups: usize,
    pub(super) devices: Vec<DeviceFile>,
    pub(super) dpdk: Dpdk,
    pub(super) verbs: Verbs,
    pub(super) sockets: Sockets,
    pub(super) limits: Limits,
    pub(super) rights: Rights,
    pub(super) cores: Vec<Core>,
    pub(super) platform: Platform,
}

/// The kernel's pool of hugepages of one size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Hugepages {
    pub(super) kib: u64,
    pub(super) total: u64,
    pub(super) free: u64,
}

/// A mounted hugetlbfs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Mount {
    pub(super) path: String,
    pub(super) writable: bool,
}

/// What carries an interface of the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum NicKind {
    Loopback,
    /// Software of the kernel, for example veth.
    #[default]
    Virtual,
    /// A device on the PCI bus, real or emulated.
    Pci,
    /// A device on another bus.
    Other,
}

impl NicKind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Loopback => "loopback",
            Self::Virtual => "virtual",
            Self::Pci => "pci",
            Self::Other => "other",
        }
    }
}

/// A network interface of the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Nic {
    pub(super) name: String,
    pub(super) kind: NicKind,
    pub(super) ethernet: bool,
    pub(super) up: bool,
    pub(super) driver: Option<String>,
    pub(super) mbps: Option<u64>,
    pub(super) mtu: Option<u64>,
    pub(super) numa: Option<u64>,
    pub(super) pci: Option<String>,
    /// The default route leaves through this interface.
    pub(super) default_route: bool,
}

/// A network device on the PCI bus, whether the kernel has an interface for it or not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PciNic {
    pub(super) address: String,
    pub(super) vendor: Option<String>,
    pub(super) device: Option<String>,
    pub(super) driver: Option<String>,
    pub(super) numa: Option<u64>,
    pub(super) iommu_group: Option<String>,
}

/// An RDMA device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Rdma {
    pub(super) name: String,
    /// The device is `rxe` or `siw`, emulated by the kernel.
    pub(super) emulated: bool,
    pub(super) link_layers: Vec<String>,
    pub(super) active_ports: u64,
    /// The GIDs of its first port.
    pub(super) gids: Vec<PortGid>,
}

/// An entry of a port's GID table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PortGid {
    pub(super) index: u64,
    pub(super) is_v2: bool,
    pub(super) address: String,
}

impl PortGid {
    pub(super) fn is_v4(&self) -> bool {
        self.address.parse::<Ipv4Addr>().is_ok()
    }
}

/// Whether the kernel has a module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Module {
    #[default]
    Missing,
    /// `modprobe` would find it.
    Available,
    Loaded,
}

impl Module {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Available => "available",
            Self::Loaded => "loaded",
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Modules {
    pub(super) vfio_pci: Module,
    pub(super) uio_pci_generic: Module,
    pub(super) rdma_rxe: Module,
}

/// A file below `/dev/vfio` or `/dev/infiniband`, or a `/dev/uio*`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DeviceFile {
    pub(super) path: String,
    /// This process may read and write it.
    pub(super) usable: bool,
}

/// libdpdk, as far as files show it. Nothing is linked or loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Dpdk {
    /// Version of the pkg-config file, which a build needs.
    pub(super) development: Option<String>,
    /// Version of the binary interface of `librte_eal.so`, which a program needs.
    pub(super) abi: Option<String>,
    /// Drivers for ports, by the names of their libraries: `memif` of `librte_net_memif.so`.
    pub(super) drivers: BTreeSet<String>,
}

/// libibverbs, as far as files show it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Verbs {
    /// Version of the pkg-config file.
    pub(super) development: Option<String>,
    pub(super) library: bool,
    /// Drivers for devices: `rxe` of `librxe-rdmav34.so`.
    pub(super) providers: BTreeSet<String>,
}

/// Limits of sockets, and the protocols that the kernel knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Sockets {
    pub(super) rmem_max: Option<u64>,
    pub(super) wmem_max: Option<u64>,
    pub(super) netdev_max_backlog: Option<u64>,
    /// `AF_PACKET` sockets. The kernel may have to load a module first.
    pub(super) packet: bool,
    /// `AF_XDP` sockets.
    pub(super) xdp: bool,
}

/// Soft limits of this process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Limits {
    /// In bytes.
    pub(super) memlock: Option<Limit>,
    pub(super) nofile: Option<Limit>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limit {
    Unlimited,
    AtMost(u64),
}

/// What this process may do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Rights {
    pub(super) root: bool,
    pub(super) net_raw: bool,
    pub(super) net_admin: bool,
    pub(super) ipc_lock: bool,
    pub(super) sys_admin: bool,
    pub(super) bpf: bool,
}

/// A core that is online.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Core {
    pub(super) id: usize,
    /// This process may run on it.
    pub(super) allowed: bool,
    /// Hardware threads of the same core, this one included.
    pub(super) siblings: BTreeSet<usize>,
    /// Cores behind the same last cache, this one included.
    pub(super) cache: BTreeSet<usize>,
    pub(super) package: Option<u64>,
    pub(super) numa: Option<u64>,
    pub(super) governor: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Platform {
    pub(super) cpu: Option<String>,
    /// The processor says that a hypervisor runs it.
    pub(super) hypervisor: bool,
    pub(super) vendor: Option<String>,
    pub(super) product: Option<String>,
}

/// Most bytes that are read of one file.
const MOST_BYTES: u64 = 16 << 20;

/// Cores with higher numbers are ignored, so that an odd list of cores costs no memory.
const MOST_CORES: usize = 8192;

impl Facts {
    /// Reads the facts of the machine whose file system starts at `root`.
    pub(super) fn read(root: &Path) -> Self {
        let root = Root(root.to_owned());
        let kernel = root.line("proc/sys/kernel/osrelease");
        Self {
            hugepages: hugepages(&root),
            hugetlbfs: hugetlbfs(&root),
            nics: nics(&root),
            pci_nics: pci_nics(&root),
            rdma: rdma(&root),
            modules: modules(&root, kernel.as_deref()),
            iommu_groups: root.names("sys/kernel/iommu_groups").len(),
            devices: devices(&root),
            dpdk: dpdk(&root),
            verbs: verbs(&root),
            sockets: sockets(&root),
            limits: limits(&root),
            rights: rights(&root),
            cores: cores(&root),
            platform: platform(&root),
            kernel,
        }
    }
}

/// The folder that stands for `/`.
struct Root(PathBuf);

impl Root {
    fn path(&self, path: &str) -> PathBuf {
        self.0.join(path)
    }

    fn exists(&self, path: &str) -> bool {
        self.path(path).exists()
    }

    /// The text of a regular file, with `?` for what is not UTF-8. Empty if it cannot be read.
    fn text(&self, path: &str) -> String {
        let path = self.path(path);
        let mut bytes = Vec::new();
        // A pipe in place of the file would block.
        if fs::metadata(&path).is_ok_and(|metadata| metadata.is_file())
            && let Ok(file) = File::open(&path)
        {
            // If the read fails halfway, what was read before counts.
            let _ = file.take(MOST_BYTES).read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).replace(char::REPLACEMENT_CHARACTER, "?")
    }

    /// The first line of a file, if it is not empty.
    fn line(&self, path: &str) -> Option<String> {
        let text = self.text(path);
        let line = printable(text.lines().next().unwrap_or_default().trim());
        (!line.is_empty()).then_some(line)
    }

    fn number(&self, path: &str) -> Option<u64> {
        self.line(path)?.parse().ok()
    }

    /// The names in a folder, sorted.
    fn names(&self, path: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(path)).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        // A name with control characters is none of those that this module looks for.
        names.retain(|name| !name.contains(char::is_control));
        names.sort();
        names
    }

    /// The last part of a symbolic link's target.
    fn target(&self, path: &str) -> Option<String> {
        let target = fs::read_link(self.path(path)).ok()?;
        Some(printable(&target.file_name()?.to_string_lossy()))
    }

    fn usable(&self, path: &str) -> bool {
        access(self.path(path), Access::READ_OK | Access::WRITE_OK).is_ok()
    }
}

/// Replaces control characters, which could change a terminal.
fn printable(text: &str) -> String {
    text.replace(char::is_control, "?")
}

fn hugepages(root: &Root) -> Vec<Hugepages> {
    let folder = "sys/kernel/mm/hugepages";
    let size = |name: &str| {
        let kib = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
        Some(Hugepages {
            kib,
            total: root.number(&format!("{folder}/{name}/nr_hugepages")).unwrap_or(0),
            free: root.number(&format!("{folder}/{name}/free_hugepages")).unwrap_or(0),
        })
    };
    let mut sizes: Vec<_> = root.names(folder).iter().filter_map(|name| size(name)).collect();
    sizes.sort_by_key(|pages| pages.kib);
    sizes
}

fn hugetlbfs(root: &Root) -> Vec<Mount> {
    let mounts = root.text("proc/mounts");
    let mount = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        let (path, kind) = (fields.nth(1)?, fields.next()?);
        // The kernel writes a space of a path as an escape.
        let path = path.replace("\\040", " ");
        let writable = root.usable(path.trim_start_matches('/'));
        (kind == "hugetlbfs").then(|| Mount { path: printable(&path), writable })
    };
    mounts.lines().filter_map(mount).collect()
}

/// Whether a text has the form of a PCI address, as `0000:00:03.0`.
fn is_pci_address(text: &str) -> bool {
    let parts: Vec<&str> = text.split([':', '.']).collect();
    let is_hex = |part: &&str| !part.is_empty() && part.chars().all(|c| c.is_ascii_hexdigit());
    parts.len() == 4 && parts.iter().all(is_hex) && text.matches(':').count() == 2
}

/// A NUMA node. The kernel writes -1 if there is none.
fn numa(root: &Root, folder: &str) -> Option<u64> {
    root.number(&format!("{folder}/numa_node"))
}

fn nics(root: &Root) -> Vec<Nic> {
    const ETHERNET: u64 = 1;
    const LOOPBACK: u64 = 772;
    const IS_UP: u64 = 1;
    let routes = root.text("proc/net/route");
    let default_route = |name: &str| {
        routes.lines().any(|route| {
            let mut fields = route.split_ascii_whitespace();
            fields.next() == Some(name) && fields.next() == Some("00000000")
        })
    };
    let nic = |name: String| {
        let folder = format!("sys/class/net/{name}");
        // The folder has files of the bonding driver too, which are not interfaces.
        let kind = root.number(&format!("{folder}/type"))?;
        let place = fs::canonicalize(root.path(&folder)).unwrap_or_default();
        let parts: Vec<_> = place.iter().map(|part| part.to_string_lossy()).collect();
        let pci = parts.iter().rfind(|part| is_pci_address(part)).map(|part| part.to_string());
        let flags = root.line(&format!("{folder}/flags")).unwrap_or_default();
        let flags = u64::from_str_radix(flags.trim_start_matches("0x"), 16).unwrap_or(0);
        Some(Nic {
            kind: match &pci {
                _ if kind == LOOPBACK => NicKind::Loopback,
                Some(_) => NicKind::Pci,
                None if root.exists(&format!("{folder}/device")) => NicKind::Other,
                None => NicKind::Virtual,
            },
            ethernet: kind == ETHERNET,
            up: flags & IS_UP != 0,
            driver: root.target(&format!("{folder}/device/driver")),
            mbps: root.number(&format!("{folder}/speed")).filter(|&mbps| mbps > 0),
            mtu: root.number(&format!("{folder}/mtu")),
            numa: numa(root, &format!("{folder}/device")),
            pci,
            default_route: default_route(&name),
            name,
        })
    };
    root.names("sys/class/net").into_iter().filter_map(nic).collect()
}

fn pci_nics(root: &Root) -> Vec<PciNic> {
    let folder = "sys/bus/pci/devices";
    let device = |address: String| {
        let folder = format!("{folder}/{address}");
        let class = root.line(&format!("{folder}/class"))?;
        // Class 2 is that of network controllers.
        class.starts_with("0x02").then(|| PciNic {
            vendor: root.line(&format!("{folder}/vendor")),
            device: root.line(&format!("{folder}/device")),
            driver: root.target(&format!("{folder}/driver")),
            numa: numa(root, &folder),
            iommu_group: root.target(&format!("{folder}/iommu_group")),
            address,
        })
    };
    root.names(folder).into_iter().filter_map(device).collect()
}

fn rdma(root: &Root) -> Vec<Rdma> {
    let class = "sys/class/infiniband";
    let device = |name: String| {
        let ports = format!("{class}/{name}/ports");
        let port = |file: &'static str| {
            let ports = ports.clone();
            move |port: String| root.line(&format!("{ports}/{port}/{file}"))
        };
        let names = || root.names(&ports).into_iter();
        let layers: BTreeSet<String> = names().filter_map(port("link_layer")).collect();
        let states = names().filter_map(port("state"));
        Rdma {
            // An emulated device has no bus, except siw's on some kernels. `parent` is a file of
            // rxe.
            emulated: !root.exists(&format!("{class}/{name}/device"))
                || root.exists(&format!("{class}/{name}/parent"))
                || name.starts_with("siw"),
            link_layers: layers.into_iter().collect(),
            // The kernel writes `4: ACTIVE`.
            active_ports: states.filter(|state| state.contains("ACTIVE")).count() as u64,
            gids: gids(root, &format!("{ports}/1")),
            name,
        }
    };
    root.names(class).into_iter().map(device).collect()
}

/// The GIDs of the port with this folder. Entries that are not in use are zero, or have no type.
fn gids(root: &Root, port: &str) -> Vec<PortGid> {
    let gid = |index: String| {
        let gid: Ipv6Addr = root.line(&format!("{port}/gids/{index}"))?.parse().ok()?;
        let kind = root.line(&format!("{port}/gid_attrs/types/{index}"))?;
        let address = gid.to_canonical().to_string();
        let index = index.parse().ok()?;
        (!gid.is_unspecified()).then_some(PortGid { index, is_v2: kind == "RoCE v2", address })
    };
    let mut gids: Vec<_> =
        root.names(&format!("{port}/gids")).into_iter().filter_map(gid).collect();
    gids.sort_by_key(|gid| gid.index);
    gids
}

fn modules(root: &Root, kernel: Option<&str>) -> Modules {
    let release = kernel.filter(|release| !release.contains('/')).unwrap_or("unknown");
    let lists = ["lib/modules", "usr/lib/modules"].map(|folder| {
        let list = |file: &str| root.text(&format!("{folder}/{release}/{file}"));
        list("modules.dep") + "\n" + &list("modules.builtin")
    });
    let known: BTreeSet<String> = lists
        .iter()
        .flat_map(|list| list.lines())
        .filter_map(|line| {
            let file = line.split(':').next()?.rsplit('/').next()?;
            // Files and modules differ in `-` and `_`.
            Some(file.split(".ko").next()?.replace('-', "_"))
        })
        .collect();
    let module = |name: &str, driver: &str| {
        if root.exists(&format!("sys/module/{name}")) || root.exists(driver) {
            Module::Loaded
        } else if known.contains(name) {
            Module::Available
        } else {
            Module::Missing
        }
    };
    Modules {
        vfio_pci: module("vfio_pci", "sys/bus/pci/drivers/vfio-pci"),
        uio_pci_generic: module("uio_pci_generic", "sys/bus/pci/drivers/uio_pci_generic"),
        rdma_rxe: module("rdma_rxe", "sys/module/rdma_rxe"),
    }
}

fn devices(root: &Root) -> Vec<DeviceFile> {
    let below = |folder: &'static str| {
        root.names(folder).into_iter().map(move |name| format!("{folder}/{name}"))
    };
    let all = below("dev/vfio").chain(below("dev/infiniband"));
    let uio = below("dev").filter(|path| path.starts_with("dev/uio"));
    all.chain(uio)
        .filter(|path| !root.path(path).is_dir())
        .map(|path| DeviceFile { usable: root.usable(&path), path: format!("/{path}") })
        .collect()
}

/// Folders where distributions and `make install` put libraries.
fn library_folders(root: &Root) -> Vec<String> {
    let mut folders = Vec::new();
    for folder in ["usr/local/lib", "usr/local/lib64", "usr/lib", "usr/lib64", "lib", "lib64"] {
        folders.push(folder.to_owned());
        // Debian has a folder for each kind of processor.
        let names = root.names(folder).into_iter();
        folders.extend(
            names.filter(|name| name.contains("-linux-")).map(|name| format!("{folder}/{name}")),
        );
    }
    folders
}

/// The version in a pkg-config file.
fn pkg_config(root: &Root, folders: &[String], name: &str) -> Option<String> {
    folders.iter().find_map(|folder| {
        let text = root.text(&format!("{folder}/pkgconfig/{name}.pc"));
        let version = text.lines().find_map(|line| line.strip_prefix("Version:"))?;
        let version = printable(version.trim());
        (!version.is_empty()).then_some(version)
    })
}

fn dpdk(root: &Root) -> Dpdk {
    let folders = library_folders(root);
    let mut drivers = BTreeSet::new();
    let mut abi: Option<String> = None;
    for name in folders.iter().flat_map(|folder| root.names(folder)) {
        let Some((library, suffix)) = name.split_once(".so") else { continue };
        if let Some(driver) = library.strip_prefix("librte_net_") {
            drivers.insert(driver.to_owned());
        }
        let version = suffix.trim_start_matches('.');
        // Of the names of one library, the longest has the whole version.
        if library == "librte_eal" && version.len() >= abi.as_ref().map_or(0, String::len) {
            abi = Some(version.to_owned());
        }
    }
    Dpdk { development: pkg_config(root, &folders, "libdpdk"), abi, drivers }
}

fn verbs(root: &Root) -> Verbs {
    let folders = library_folders(root);
    let provider = |name: String| {
        let (provider, _) = name.strip_prefix("lib")?.split_once("-rdmav")?;
        Some(provider.to_owned())
    };
    let libraries = folders.iter().map(|folder| format!("{folder}/libibverbs"));
    Verbs {
        development: pkg_config(root, &folders, "libibverbs"),
        library: folders.iter().any(|folder| root.exists(&format!("{folder}/libibverbs.so.1"))),
        providers: libraries.flat_map(|path| root.names(&path)).filter_map(provider).collect(),
    }
}

fn sockets(root: &Root) -> Sockets {
    let limit = |name: &str| root.number(&format!("proc/sys/net/core/{name}"));
    let protocols = root.text("proc/net/protocols");
    let knows = |name: &str| {
        protocols.lines().any(|line| line.split_ascii_whitespace().next() == Some(name))
    };
    Sockets {
        rmem_max: limit("rmem_max"),
        wmem_max: limit("wmem_max"),
        netdev_max_backlog: limit("netdev_max_backlog"),
        packet: knows("PACKET"),
        xdp: knows("XDP"),
    }
}

fn limits(root: &Root) -> Limits {
    let text = root.text("proc/self/limits");
    let limit = |name: &str| {
        let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
        match rest.split_ascii_whitespace().next()? {
            "unlimited" => Some(Limit::Unlimited),
            number => number.parse().ok().map(Limit::AtMost),
        }
    };
    Limits { memlock: limit("Max locked memory"), nofile: limit("Max open files") }
}

/// A line of `/proc/self/status`.
fn status<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = text.lines();
    lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

fn rights(root: &Root) -> Rights {
    let text = root.text("proc/self/status");
    let effective = status(&text, "CapEff").unwrap_or_default();
    let effective = u64::from_str_radix(effective, 16).unwrap_or(0);
    // Numbers of capabilities, from linux/capability.h.
    let has = |number: u32| effective >> number & 1 != 0;
    let user = status(&text, "Uid").and_then(|users| users.split_ascii_whitespace().nth(1));
    Rights {
        root: user == Some("0"),
        net_admin: has(12),
        net_raw: has(13),
        ipc_lock: has(14),
        sys_admin: has(21),
        bpf: has(39),
    }
}

/// Reads a list of cores as the kernel writes it, for example `0-3,8`.
fn core_list(text: &str) -> BTreeSet<usize> {
    let range = |part: &str| {
        let part = part.trim();
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse::<usize>().ok()?, last.parse::<usize>().ok()?);
        Some(first..last.saturating_add(1).min(MOST_CORES))
    };
    text.split(',').filter_map(range).flatten().collect()
}

fn cores(root: &Root) -> Vec<Core> {
    let folder = "sys/devices/system/cpu";
    let list = |path: &str| core_list(&root.line(path).unwrap_or_default());
    let status_text = root.text("proc/self/status");
    let allowed = status(&status_text, "Cpus_allowed_list").map(core_list);
    let nodes: Vec<(u64, BTreeSet<usize>)> = root
        .names("sys/devices/system/node")
        .iter()
        .filter_map(|name| {
            let node = name.strip_prefix("node")?.parse().ok()?;
            Some((node, list(&format!("sys/devices/system/node/{name}/cpulist"))))
        })
        .collect();
    let core = |id: usize| {
        let folder = format!("{folder}/cpu{id}");
        let caches = root.names(&format!("{folder}/cache")).into_iter();
        let level = |name: &String| root.number(&format!("{folder}/cache/{name}/level"));
        let last = caches
            .filter(|name| name.starts_with("index"))
            .filter_map(|name| Some((level(&name)?, name)))
            .max();
        let siblings = [
            list(&format!("{folder}/topology/core_cpus_list")),
            list(&format!("{folder}/topology/thread_siblings_list")),
        ];
        Core {
            id,
            allowed: allowed.as_ref().is_none_or(|allowed| allowed.contains(&id)),
            siblings: siblings.into_iter().find(|list| !list.is_empty()).unwrap_or_default(),
            cache: last
                .map(|(_, name)| list(&format!("{folder}/cache/{name}/shared_cpu_list")))
                .unwrap_or_default(),
            package: root.number(&format!("{folder}/topology/physical_package_id")),
            numa: nodes.iter().find(|(_, cores)| cores.contains(&id)).map(|&(node, _)| node),
            governor: root.line(&format!("{folder}/cpufreq/scaling_governor")),
        }
    };
    list(&format!("{folder}/online")).into_iter().map(core).collect()
}

fn platform(root: &Root) -> Platform {
    let text = root.text("proc/cpuinfo");
    let field = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim())
    };
    let mut flags = field("flags").unwrap_or_default().split_ascii_whitespace();
    Platform {
        cpu: field("model name").filter(|name| !name.is_empty()).map(printable),
        hypervisor: flags.any(|flag| flag == "hypervisor"),
        vendor: root.line("sys/class/dmi/id/sys_vendor"),
        product: root.line("sys/class/dmi/id/product_name"),
    }
}
