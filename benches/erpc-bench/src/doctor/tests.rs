//! Facts from made-up trees of files, and verdicts from made-up facts.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use super::facts::{
    Core, DeviceFile, Dpdk, Facts, Hugepages, Limit, Limits, Module, Mount, Nic, NicKind, PciNic,
    PortGid, Rdma, Rights, Sockets, Verbs,
};
use super::port::Port;
use super::print::{self, Json};
use super::verdicts::{Verdict, advice, judge, list};

/// A folder with files, removed at the end of a test.
struct Tree(PathBuf);

impl Tree {
    fn new(name: &str) -> Self {
        let name = format!("erpc-doctor-{}-{name}", std::process::id());
        let root = std::env::temp_dir().join(name);
        fs::create_dir_all(&root).unwrap();
        Self(root)
    }

    fn file(&self, path: &str, content: impl AsRef<[u8]>) -> &Self {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
        self
    }

    fn link(&self, path: &str, target: &str) -> &Self {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(target, path).unwrap();
        self
    }

    fn facts(&self) -> Facts {
        Facts::read(&self.0)
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn facts_of_an_empty_tree_are_unknown() {
    assert_eq!(Tree::new("empty").facts(), Facts::default());
}

#[test]
fn facts_come_from_the_files() {
    let tree = Tree::new("full");
    let status =
        "Name:\tx\nUid:\t1000\t0\t0\t0\nCapEff:\t0000008000207000\nCpus_allowed_list:\t1-2\n";
    let limits = "Limit  Soft  Hard  Units\nMax open files            20000 30000 files\n\
                  Max locked memory         unlimited unlimited bytes\n";
    let pci = "sys/devices/pci0000:00/0000:00:03.0";
    tree.file("proc/sys/kernel/osrelease", "6.1.0\n")
        .file("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "8\n")
        .file("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "5\n")
        .file("proc/mounts", "none /dev/huge\\040pages hugetlbfs rw 0 0\nproc /proc proc rw 0 0\n")
        .file("dev/huge pages/x", "")
        .file(&format!("{pci}/class"), "0x020000\n")
        .file(&format!("{pci}/vendor"), "0x8086\n")
        .file(&format!("{pci}/device"), "0x1572\n")
        .file(&format!("{pci}/numa_node"), "1\n")
        .link(&format!("{pci}/driver"), "../../../bus/pci/drivers/i40e")
        .link(&format!("{pci}/iommu_group"), "../../../kernel/iommu_groups/7")
        .file("sys/kernel/iommu_groups/7/type", "DMA\n")
        .link("sys/bus/pci/devices/0000:00:03.0", "../../../devices/pci0000:00/0000:00:03.0")
        .file(&format!("{pci}/net/eth0/type"), "1\n")
        .file(&format!("{pci}/net/eth0/flags"), "0x1003\n")
        .file(&format!("{pci}/net/eth0/mtu"), "9000\n")
        .file(&format!("{pci}/net/eth0/speed"), "40000\n")
        .link(&format!("{pci}/net/eth0/device"), "../../../0000:00:03.0")
        .link("sys/class/net/eth0", "../../devices/pci0000:00/0000:00:03.0/net/eth0")
        .file("sys/devices/virtual/net/lo/type", "772\n")
        .file("sys/devices/virtual/net/lo/flags", "0x9\n")
        .file("sys/devices/virtual/net/lo/speed", "-1\n")
        .link("sys/class/net/lo", "../../devices/virtual/net/lo")
        .file("sys/class/net/bonding_masters", "")
        .file("proc/net/route", "Iface Destination\neth0 00000000 0102\n")
        .file("sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n")
        .file("sys/class/infiniband/mlx5_0/ports/1/link_layer", "Ethernet\n")
        .file("sys/class/infiniband/mlx5_0/device/x", "")
        .file("sys/class/infiniband/rxe0/ports/1/state", "1: DOWN\n")
        .file("sys/class/infiniband/rxe0/parent", "eth0\n")
        .file(
            "sys/class/infiniband/rxe0/ports/1/gids/0",
            "fe80:0000:0000:0000:0000:0aff:fe4d:0001\n",
        )
        .file("sys/class/infiniband/rxe0/ports/1/gid_attrs/types/0", "RoCE v2\n")
        .file(
            "sys/class/infiniband/rxe0/ports/1/gids/1",
            "0000:0000:0000:0000:0000:ffff:0a4d:0001\n",
        )
        .file("sys/class/infiniband/rxe0/ports/1/gid_attrs/types/1", "RoCE v2\n")
        .file(
            "sys/class/infiniband/rxe0/ports/1/gids/2",
            "0000:0000:0000:0000:0000:0000:0000:0000\n",
        )
        .file("lib/modules/6.1.0/modules.dep", "kernel/drivers/vfio/pci/vfio-pci.ko.xz: a b\n")
        .file("lib/modules/6.1.0/modules.builtin", "kernel/drivers/uio/uio_pci_generic.ko\n")
        .file("sys/module/rdma_rxe/refcnt", "0\n")
        .file("dev/vfio/vfio", "")
        .file("usr/lib/x86_64-linux-gnu/pkgconfig/libdpdk.pc", "Name: DPDK\nVersion: 22.11.1\n")
        .file("usr/lib/x86_64-linux-gnu/librte_eal.so.23", "")
        .file("usr/lib/x86_64-linux-gnu/librte_eal.so.23.0", "")
        .file("usr/lib/x86_64-linux-gnu/librte_net_memif.so.23", "")
        .file("usr/lib64/libibverbs.so.1", "")
        .file("usr/lib64/libibverbs/librxe-rdmav34.so", "")
        .file("proc/sys/net/core/rmem_max", "212992\n")
        .file("proc/net/protocols", "protocol size\nPACKET 1\nXDP 1\n")
        .file("proc/self/limits", limits)
        .file("proc/self/status", status)
        .file("sys/devices/system/cpu/online", "0-1\n")
        .file("sys/devices/system/cpu/cpu1/topology/core_cpus_list", "1,3\n")
        .file("sys/devices/system/cpu/cpu1/topology/physical_package_id", "0\n")
        .file("sys/devices/system/cpu/cpu1/cache/index2/level", "2\n")
        .file("sys/devices/system/cpu/cpu1/cache/index2/shared_cpu_list", "1\n")
        .file("sys/devices/system/cpu/cpu1/cache/index3/level", "3\n")
        .file("sys/devices/system/cpu/cpu1/cache/index3/shared_cpu_list", "0-3\n")
        .file("sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "powersave\n")
        .file("sys/devices/system/node/node0/cpulist", "0-3\n")
        .file("proc/cpuinfo", "model name\t: Some CPU\nflags\t\t: fpu hypervisor sse\n")
        .file("sys/class/dmi/id/product_name", "Standard PC\n");
    let facts = tree.facts();
    assert_eq!(facts.hugepages, [Hugepages { kib: 2048, total: 8, free: 5 }]);
    assert_eq!(facts.hugetlbfs, [Mount { path: "/dev/huge pages".into(), writable: true }]);
    let address = "0000:00:03.0".to_owned();
    let eth0 = Nic {
        name: "eth0".into(),
        kind: NicKind::Pci,
        ethernet: true,
        up: true,
        driver: Some("i40e".into()),
        mbps: Some(40_000),
        mtu: Some(9_000),
        numa: Some(1),
        pci: Some(address.clone()),
        default_route: true,
    };
    let lo = Nic { name: "lo".into(), kind: NicKind::Loopback, up: true, ..Nic::default() };
    assert_eq!(facts.nics, [eth0, lo]);
    let pci_nic = PciNic {
        address,
        vendor: Some("0x8086".into()),
        device: Some("0x1572".into()),
        driver: Some("i40e".into()),
        numa: Some(1),
        iommu_group: Some("7".into()),
    };
    assert_eq!(facts.pci_nics, [pci_nic]);
    assert_eq!(facts.iommu_groups, 1);
    let rdma: Vec<_> =
        facts.rdma.iter().map(|rdma| (&rdma.name[..], rdma.emulated, rdma.active_ports)).collect();
    assert_eq!(rdma, [("mlx5_0", false, 1), ("rxe0", true, 0)]);
    let gid = |index, address: &str| PortGid { index, is_v2: true, address: address.into() };
    assert_eq!(facts.rdma[1].gids, [gid(0, "fe80::aff:fe4d:1"), gid(1, "10.77.0.1")]);
    assert_eq!(facts.modules.vfio_pci, Module::Available);
    assert_eq!(facts.modules.uio_pci_generic, Module::Available);
    assert_eq!(facts.modules.rdma_rxe, Module::Loaded);
    assert_eq!(facts.devices, [DeviceFile { path: "/dev/vfio/vfio".into(), usable: true }]);
    assert_eq!(facts.dpdk, dpdk("22.11.1", &["memif"]));
    assert!(facts.verbs.library && facts.verbs.providers.contains("rxe"));
    assert_eq!(facts.sockets.rmem_max, Some(212_992));
    assert!(facts.sockets.packet && facts.sockets.xdp);
    let limits = Limits { memlock: Some(Limit::Unlimited), nofile: Some(Limit::AtMost(20_000)) };
    assert_eq!(facts.limits, limits);
    assert_eq!(facts.rights, all_rights());
    assert_eq!(facts.cores.len(), 2);
    assert!(!facts.cores[0].allowed);
    let core = Core {
        id: 1,
        allowed: true,
        siblings: [1, 3].into(),
        cache: (0..4).collect(),
        package: Some(0),
        numa: Some(0),
        governor: Some("powersave".into()),
    };
    assert_eq!(facts.cores[1], core);
    assert!(facts.platform.hypervisor);
    assert_eq!(facts.platform.cpu.as_deref(), Some("Some CPU"));
    assert_eq!(facts.platform.product.as_deref(), Some("Standard PC"));
}

/// Every file that `Facts` reads has odd contents, in turn.
#[test]
fn odd_contents_do_not_panic() {
    let all_bytes: Vec<u8> = (0..=255).collect();
    let contents: [&[u8]; 8] = [
        b"",
        b"\n\n",
        b"-1",
        b"99999999999999999999999",
        b"0-18446744073709551615,5-2,-,,x-3",
        b"a b hugetlbfs\nUid:\nCapEff: zz\nflags\nmodel name\nVersion:\nMax open files",
        b"x /\xff\x1b[2J hugetlbfs rw",
        &all_bytes,
    ];
    for (index, content) in contents.into_iter().enumerate() {
        let tree = Tree::new(&format!("odd-{index}"));
        for path in [
            "proc/sys/kernel/osrelease",
            "proc/mounts",
            "proc/net/route",
            "proc/net/protocols",
            "proc/self/limits",
            "proc/self/status",
            "proc/cpuinfo",
            "proc/sys/net/core/rmem_max",
            "sys/kernel/mm/hugepages/hugepages-kB/nr_hugepages",
            "sys/kernel/mm/hugepages/hugepages-4kB/free_hugepages",
            "sys/class/net/eth0/type",
            "sys/class/net/eth0/flags",
            "sys/class/net/eth1",
            "sys/bus/pci/devices/::/class",
            "sys/class/infiniband/x/ports/1/state",
            "sys/class/dmi/id/product_name",
            "sys/devices/system/cpu/online",
            "sys/devices/system/cpu/cpu0/cache/index0/level",
            "sys/devices/system/cpu/cpu0/topology/core_cpus_list",
            "sys/devices/system/node/nodex/cpulist",
            "usr/lib/pkgconfig/libdpdk.pc",
            "usr/lib/librte_eal.so",
            "dev/vfio/vfio",
        ] {
            tree.file(path, content);
        }
        let facts = tree.facts();
        let (verdicts, advice) = (judge(&facts), advice(&facts));
        let text = print::text(&facts, &verdicts, &advice, None);
        assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text:?}");
        let json = print::json(&facts, &verdicts, &advice, None).to_string();
        assert!(!json.contains(char::is_control), "{json:?}");
    }
}

fn dpdk(version: &str, drivers: &[&str]) -> Dpdk {
    Dpdk {
        development: Some(version.into()),
        abi: Some("23.0".into()),
        drivers: drivers.iter().map(|&driver| driver.to_owned()).collect(),
    }
}

fn all_rights() -> Rights {
    Rights {
        root: true,
        net_raw: true,
        net_admin: true,
        ipc_lock: true,
        sys_admin: true,
        bpf: true,
    }
}

/// A machine on which every transport works.
fn ready() -> Facts {
    let device = |path: &str| DeviceFile { path: path.into(), usable: true };
    let rdma = |name: &str, emulated| Rdma {
        name: name.into(),
        emulated,
        active_ports: 1,
        ..Rdma::default()
    };
    Facts {
        hugepages: vec![Hugepages { kib: 2048, total: 64, free: 64 }],
        hugetlbfs: vec![Mount { path: "/dev/hugepages".into(), writable: true }],
        nics: vec![Nic { name: "eth0".into(), ethernet: true, up: true, ..Nic::default() }],
        pci_nics: vec![PciNic {
            address: "0000:00:03.0".into(),
            vendor: Some("0x1af4".into()),
            driver: Some("vfio-pci".into()),
            iommu_group: Some("7".into()),
            ..PciNic::default()
        }],
        rdma: vec![rdma("mlx5_0", false), rdma("rxe0", true)],
        iommu_groups: 8,
        devices: ["/dev/vfio/vfio", "/dev/vfio/7", "/dev/infiniband/uverbs0", "/dev/uio0"]
            .map(device)
            .into(),
        dpdk: dpdk("22.11.1", &["memif", "af_packet", "af_xdp", "virtio", "mlx5"]),
        verbs: Verbs {
            development: Some("1.14".into()),
            library: true,
            providers: ["rxe".to_owned()].into(),
        },
        sockets: Sockets { rmem_max: Some(8 << 20), packet: true, xdp: true, ..Sockets::default() },
        rights: all_rights(),
        ..Facts::default()
    }
}

fn verdict(facts: &Facts, id: &str) -> Verdict {
    judge(facts).into_iter().find(|verdict| verdict.id == id).unwrap()
}

/// Changes a machine on which all works, and wants an obstacle of the transport that has this text,
/// in what is wrong or in what to do.
#[track_caller]
fn refused(id: &str, change: impl FnOnce(&mut Facts), wanted: &str) {
    let mut facts = ready();
    change(&mut facts);
    let verdict = verdict(&facts, id);
    let found = verdict
        .obstacles
        .iter()
        .any(|obstacle| obstacle.what.contains(wanted) || obstacle.advice.contains(wanted));
    assert!(found, "{wanted}: {verdict:#?}");
    assert!(!verdict.usable_now());
    assert!(verdict.obstacles.iter().all(|obstacle| !obstacle.advice.is_empty()));
}

#[test]
fn a_ready_machine_can_use_what_this_build_has() {
    for verdict in judge(&ready()) {
        assert!(verdict.machine_ready(), "{verdict:#?}");
        let is_built = match verdict.id {
            "udp" => true,
            "verbs-ud" | "soft-roce" => cfg!(feature = "ibverbs"),
            _ => cfg!(feature = "dpdk"),
        };
        assert_eq!(verdict.usable_now(), is_built);
    }
}

#[test]
fn udp_needs_an_interface_and_files() {
    refused("udp", |facts| facts.nics.clear(), "ip link set lo up");
    refused("udp", |facts| facts.limits.nofile = Some(Limit::AtMost(3)), "ulimit -n");
    let mut facts = ready();
    facts.sockets.rmem_max = Some(212_992);
    assert!(verdict(&facts, "udp").notes[0].contains("sysctl -w net.core.rmem_max=8388608"));
}

#[test]
fn memif_needs_the_library_and_its_driver_but_no_hugepages() {
    refused("dpdk-memif", |facts| facts.dpdk = Dpdk::default(), "libdpdk is not installed");
    refused("dpdk-memif", |facts| facts.dpdk.development = None, "headers");
    refused("dpdk-memif", |facts| facts.dpdk.abi = None, "librte_eal.so");
    refused("dpdk-memif", |facts| facts.dpdk.drivers.clear(), "librte_net_memif.so");
    refused("dpdk-memif", |facts| facts.dpdk = dpdk("20.11", &["memif"]), "older than 22.11");
    let facts = Facts { dpdk: dpdk("25.03", &["memif"]), ..Facts::default() };
    let verdict = verdict(&facts, "dpdk-memif");
    assert!(verdict.machine_ready());
    assert!(verdict.notes.iter().any(|note| note.contains("--no-huge")));
    assert!(verdict.notes.iter().any(|note| note.contains("newer than 24.11")));
}

#[test]
fn af_packet_needs_an_interface_and_a_right() {
    refused("dpdk-af_packet", |facts| facts.nics[0].up = false, "ip link set eth0 up");
    refused("dpdk-af_packet", |facts| facts.nics.clear(), "type veth");
    refused("dpdk-af_packet", |facts| facts.rights.net_raw = false, "setcap cap_net_raw+ep");
}

#[test]
fn af_xdp_needs_the_kernel_and_rights() {
    refused("dpdk-af_xdp", |facts| facts.sockets.xdp = false, "CONFIG_XDP_SOCKETS");
    refused("dpdk-af_xdp", |facts| facts.rights.net_admin = false, "CAP_NET_ADMIN");
    refused("dpdk-af_xdp", |facts| facts.rights = Rights::default(), "CAP_BPF");
    let one_command = "setcap cap_net_raw,cap_net_admin,cap_bpf+ep";
    refused("dpdk-af_xdp", |facts| facts.rights.net_raw = false, one_command);
    let pinned = |facts: &mut Facts| {
        facts.rights.ipc_lock = false;
        facts.limits.memlock = Some(Limit::AtMost(8 << 20));
    };
    refused("dpdk-af_xdp", pinned, "ulimit -l");
    let mut facts = ready();
    facts.rights.bpf = false;
    facts.nics[0].default_route = true;
    let verdict = verdict(&facts, "dpdk-af_xdp");
    assert!(verdict.machine_ready(), "CAP_SYS_ADMIN includes CAP_BPF");
    assert!(verdict.notes.iter().any(|note| note.contains("use another interface")));
}

#[test]
fn a_pci_nic_needs_a_driver_that_dpdk_can_use() {
    refused("dpdk-pci", |facts| facts.pci_nics.clear(), "no network device on the PCI bus");
    refused("dpdk-pci", |facts| facts.pci_nics[0].iommu_group = None, "no IOMMU group");
    let made_up = |facts: &mut Facts| facts.devices[1].path = "/dev/vfio/noiommu-7".into();
    refused("dpdk-pci", made_up, "no IOMMU group of hardware");
    refused("dpdk-pci", |facts| facts.devices[1].usable = false, "chown USER /dev/vfio/7");
    refused("dpdk-pci", |facts| facts.devices.clear(), "modprobe vfio-pci");
    let kernel = |facts: &mut Facts| facts.pci_nics[0].driver = Some("virtio-pci".into());
    refused("dpdk-pci", kernel, "--bind=vfio-pci 0000:00:03.0");
    refused("dpdk-pci", kernel, "no module vfio-pci");
    let no_iommu = |facts: &mut Facts| {
        kernel(facts);
        facts.iommu_groups = 0;
    };
    refused("dpdk-pci", no_iommu, "VT-d");
    let uio_available = |facts: &mut Facts| {
        no_iommu(facts);
        facts.modules.uio_pci_generic = Module::Available;
    };
    refused("dpdk-pci", uio_available, "--bind=uio_pci_generic 0000:00:03.0");
    let default_route = |facts: &mut Facts| {
        kernel(facts);
        facts.nics[0].pci = Some("0000:00:03.0".into());
        facts.nics[0].default_route = true;
    };
    refused("dpdk-pci", default_route, "ends SSH");
}

#[test]
fn a_pci_nic_without_iommu_needs_root_and_hugepages() {
    let uio = |facts: &mut Facts| {
        facts.pci_nics[0].driver = Some("uio_pci_generic".into());
        facts.iommu_groups = 0;
    };
    let mut facts = ready();
    uio(&mut facts);
    assert!(verdict(&facts, "dpdk-pci").machine_ready());
    let user = |facts: &mut Facts| {
        uio(facts);
        facts.rights.root = false;
    };
    refused("dpdk-pci", user, "run the program as root");
    let no_pages = |facts: &mut Facts| {
        uio(facts);
        facts.hugepages[0].free = 1;
    };
    refused("dpdk-pci", no_pages, "vm.nr_hugepages");
    let no_mount = |facts: &mut Facts| {
        uio(facts);
        facts.hugetlbfs[0].writable = false;
    };
    refused("dpdk-pci", no_mount, "mount -t hugetlbfs");
}

#[test]
fn a_mellanox_nic_stays_with_the_kernel() {
    let mlx5 = |facts: &mut Facts| facts.pci_nics[0].driver = Some("mlx5_core".into());
    let mut facts = ready();
    mlx5(&mut facts);
    assert!(verdict(&facts, "dpdk-pci").machine_ready());
    let without_library = |facts: &mut Facts| {
        mlx5(facts);
        facts.verbs.library = false;
    };
    refused("dpdk-pci", without_library, "libibverbs is not installed");
}

#[test]
fn verbs_need_a_device_with_an_active_port() {
    refused("verbs-ud", |facts| facts.rdma.clear(), "no RDMA NIC");
    refused("verbs-ud", |facts| facts.rdma[0].active_ports = 0, "subnet manager");
    refused("verbs-ud", |facts| facts.verbs.library = false, "apt-get install libibverbs-dev");
    refused("verbs-ud", |facts| facts.devices.clear(), "ib_uverbs");
    let pinned = |facts: &mut Facts| {
        facts.limits.memlock = Some(Limit::AtMost(8 << 20));
        facts.rights.ipc_lock = false;
    };
    refused("verbs-ud", pinned, "ulimit -l unlimited");
}

#[test]
fn verbs_name_the_gid_to_use_or_how_to_get_one() {
    let mut facts = ready();
    let gid = |index, address: &str| PortGid { index, is_v2: true, address: address.into() };
    facts.rdma[1].gids = vec![gid(0, "fe80::1"), gid(1, "10.77.0.1")];
    facts.rdma[0].gids = vec![gid(0, "fe80::1")];
    assert!(verdict(&facts, "soft-roce").notes.join(" ").contains("--device rxe0 --gid 1"));
    assert!(verdict(&facts, "verbs-ud").notes.join(" ").contains("ip addr add"));
}

#[test]
fn soft_roce_needs_the_module_and_a_device() {
    refused("soft-roce", |facts| facts.rdma.clear(), "CONFIG_RDMA_RXE");
    let available = |facts: &mut Facts| {
        facts.rdma.clear();
        facts.modules.rdma_rxe = Module::Available;
    };
    refused("soft-roce", available, "rdma link add rxe0 type rxe netdev eth0");
    refused("soft-roce", |facts| facts.verbs.providers.clear(), "ibverbs-providers");
    refused("soft-roce", |facts| facts.rdma[1].active_ports = 0, "rdma link");
}

#[test]
fn advice_names_near_cores_siblings_nodes_and_the_governor() {
    let core = |id: usize, node: u64| Core {
        id,
        allowed: true,
        siblings: if id < 2 { [0, 1].into() } else { [id].into() },
        cache: if node == 0 { (0..3).collect() } else { [3].into() },
        numa: Some(node),
        ..Core::default()
    };
    let mut facts = ready();
    facts.cores = vec![core(0, 0), core(1, 0), core(2, 0), core(3, 1)];
    facts.cores[3].governor = Some("powersave".into());
    facts.nics[0].numa = Some(1);
    facts.platform.hypervisor = true;
    let all = advice(&facts).join("\n");
    for wanted in [
        "cores 0 and 2 are near",
        "cores 0-1 are hardware threads",
        "eth0 is on NUMA node 1: run the event loops that use it on cores 3",
        "the CPU governor is powersave",
        "virtual machine",
    ] {
        assert!(all.contains(wanted), "{wanted}: {all}");
    }
    facts.cores.truncate(2);
    assert!(advice(&facts)[0].contains("no two cores are near"));
    facts.cores.truncate(1);
    assert!(advice(&facts)[0].contains("one core only"));
    facts.cores.clear();
    assert!(advice(&facts)[0].contains("cannot see the cores"));
}

#[test]
fn lists_of_cores_have_ranges() {
    assert_eq!(list(&[0, 1, 2, 5, 7, 8].into()), "0-2,5,7-8");
    assert_eq!(list(&[].into()), "");
}

#[test]
fn json_escapes_texts() {
    let text = Json::Text("a\"b\\c\n\t\r\u{1}\u{7f}é".into());
    assert_eq!(text.to_string(), r#""a\"b\\c\n\t\r\u0001\u007fé""#);
    let object = Json::Object(vec![
        ("list", Json::List(vec![Json::Int(1), Json::Bool(true), Json::Null])),
        ("empty", Json::Object(vec![])),
    ]);
    assert_eq!(object.to_string(), r#"{"list":[1,true,null],"empty":{}}"#);
}

#[test]
fn text_says_what_to_do_and_how_far_erpc_is() {
    let mut facts = ready();
    facts.nics.clear();
    let verdicts = judge(&facts);
    let text = print::text(&facts, &verdicts, &[], None);
    for wanted in [
        "kernel UDP: DOES NOT WORK",
        "To do: run `ip link set lo up`",
        "DPDK over memif: ",
        "ibverbs UD over an RDMA NIC: ",
    ] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
}

#[test]
fn a_program_built_with_a_transport_does_not_ask_for_its_feature() {
    let ready = judge(&ready());
    let bare = judge(&Facts::default());
    let said = |verdicts: &[Verdict], id, is_built| {
        let verdict = verdicts.iter().find(|verdict| verdict.id == id).expect("it is judged");
        print::summary(verdict, is_built)
    };
    assert_eq!(
        said(&ready, "dpdk-memif", false),
        "THE MACHINE IS READY; build erpc with the feature `dpdk`, tried over memif, af_packet and af_xdp only"
    );
    assert_eq!(
        said(&ready, "dpdk-memif", true),
        "WORKS; tried over memif, af_packet and af_xdp only"
    );
    assert_eq!(
        said(&ready, "verbs-ud", false),
        "THE MACHINE IS READY; build erpc with the feature `ibverbs`, tried over Soft-RoCE only"
    );
    assert_eq!(said(&ready, "verbs-ud", true), "WORKS; tried over Soft-RoCE only");
    assert_eq!(
        said(&bare, "verbs-ud", false),
        "WOULD NOT WORK YET (and needs erpc's feature `ibverbs`)"
    );
    assert_eq!(said(&bare, "verbs-ud", true), "WOULD NOT WORK YET");
}

#[test]
fn an_opened_port_is_printed() {
    let facts = Facts::default();
    let port = Port {
        port: "net_memif0 10.9.0.1/24".into(),
        endpoints: 2,
        steering: "software".into(),
        zero_copy: true,
        link_up: false,
        datagram: 1_472,
    };
    let text = print::text(&facts, &[], &[], Some(&port));
    let line = "net_memif0 10.9.0.1/24: 2 endpoints, steering software, zero copy on transmit: yes, \
                link down, datagrams up to 1472 bytes";
    assert!(text.contains(line), "{text}");
    let json = print::json(&facts, &[], &[], Some(&port)).to_string();
    let fields = "\"port\":{\"port\":\"net_memif0 10.9.0.1/24\",\"endpoints\":2,\"steering\":\"software\",\
                  \"zero_copy\":true,\"link_up\":false,\"datagram\":1472}";
    assert!(json.contains(fields), "{json}");
    let json = print::json(&facts, &[], &[], None).to_string();
    assert!(json.contains("\"port\":null"), "{json}");
}
