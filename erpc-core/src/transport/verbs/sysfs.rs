//! What the kernel's files say about verbs devices, in `/sys/class/infiniband`.

use std::fs;
use std::net::{IpAddr, Ipv6Addr};
use std::path::{Path, PathBuf};

use super::config::{GidChoice, VerbsConfig, VerbsError};
use super::device::Gid;

/// Most entries of a GID table that are read.
const MOST_GIDS: u8 = 255;
/// Files that count datagrams without a buffer, by driver.
const OVERFLOWS: [&str; 2] = ["out_of_buffer", "rx_out_of_buffer"];

/// An entry of a port's GID table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    pub(super) index: u8,
    pub(super) gid: Gid,
    pub(super) is_v2: bool,
}

/// A port's folder.
pub(super) struct Port(PathBuf);

impl Port {
    pub(super) fn new(root: &Path, config: &VerbsConfig) -> Self {
        let device = root.join("sys/class/infiniband").join(&config.device);
        Self(device.join("ports").join(config.port.to_string()))
    }

    fn read(&self, file: &str) -> Option<String> {
        fs::read_to_string(self.0.join(file)).ok().map(|text| text.trim().to_owned())
    }

    /// The GIDs in use. Entries without a GID are zero, or have no type.
    pub(super) fn gids(&self) -> Vec<Entry> {
        let entry = |index: u8| {
            let gid: Ipv6Addr = self.read(&format!("gids/{index}"))?.parse().ok()?;
            let kind = self.read(&format!("gid_attrs/types/{index}"))?;
            let entry = Entry { index, gid: Gid(gid.octets()), is_v2: kind == "RoCE v2" };
            (!gid.is_unspecified()).then_some(entry)
        };
        (0..MOST_GIDS).filter_map(entry).collect()
    }

    /// The GID that the configuration chooses.
    pub(super) fn choose(
        &self,
        config: &VerbsConfig,
        is_ethernet: bool,
    ) -> Result<Entry, VerbsError> {
        let gids = self.gids();
        let fits = |entry: &&Entry| match config.gid {
            GidChoice::Index(index) => entry.index == index,
            GidChoice::Ip(ip) => entry.is_v2 && entry.gid == Gid::from(ip),
            GidChoice::Default => entry.is_v2 || !is_ethernet,
        };
        let is_v4 = |entry: &&Entry| matches!(entry.gid.ip(), IpAddr::V4(_));
        let chosen = gids.iter().filter(fits).find(is_v4).or_else(|| gids.iter().find(fits));
        chosen.copied().ok_or_else(|| VerbsError::Gid {
            device: config.device.clone(),
            found: gids.iter().map(Entry::to_string).collect(),
        })
    }

    /// Datagrams to this port without a buffer, as far as its driver counts them.
    pub(super) fn overflows(&self) -> Option<u64> {
        let count = |name: &&str| self.read(&format!("hw_counters/{name}"))?.parse().ok();
        OVERFLOWS.iter().find_map(count)
    }
}

impl std::fmt::Display for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let version = if self.is_v2 { "RoCE v2" } else { "v1" };
        write!(f, "index {} ({version}, {})", self.index, self.gid.ip())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine with a port that has these GIDs: index, address, type.
    fn machine(name: &str, gids: &[(u8, &str, &str)]) -> PathBuf {
        let root = std::env::temp_dir().join(format!("erpc-verbs-{}-{name}", std::process::id()));
        let port = root.join("sys/class/infiniband/rxe0/ports/1");
        for folder in ["gids", "gid_attrs/types", "hw_counters"] {
            fs::create_dir_all(port.join(folder)).expect("a folder");
        }
        for (index, gid, kind) in gids {
            fs::write(port.join(format!("gids/{index}")), gid).expect("a file");
            fs::write(port.join(format!("gid_attrs/types/{index}")), kind).expect("a file");
        }
        root
    }

    #[test]
    fn the_gid_is_chosen_by_version_index_or_address() {
        let gids = [
            (0, "fe80:0000:0000:0000:0000:0aff:fe4d:0001\n", "IB/RoCE v1\n"),
            (1, "fe80:0000:0000:0000:0000:0aff:fe4d:0001\n", "RoCE v2\n"),
            (2, "0000:0000:0000:0000:0000:ffff:0a4d:0001\n", "IB/RoCE v1\n"),
            (3, "0000:0000:0000:0000:0000:ffff:0a4d:0001\n", "RoCE v2\n"),
            (4, "0000:0000:0000:0000:0000:0000:0000:0000\n", "RoCE v2\n"),
        ];
        let root = machine("gids", &gids);
        let chosen = |config: VerbsConfig, is_ethernet| {
            Port::new(&root, &config).choose(&config, is_ethernet).map(|entry| entry.index)
        };
        let config = || VerbsConfig::new("rxe0");
        assert_eq!(chosen(config(), true), Ok(3), "RoCE v2 over IPv4");
        assert_eq!(chosen(config().gid_index(2), true), Ok(2));
        assert_eq!(chosen(config().interface("10.77.0.1".parse().unwrap()), true), Ok(3));
        assert_eq!(chosen(config().interface("fe80::aff:fe4d:1".parse().unwrap()), true), Ok(1));
        for config in [config().gid_index(4), config().interface("10.77.0.9".parse().unwrap())] {
            let error = chosen(config, true).expect_err("no such GID").to_string();
            assert!(error.contains("index 3 (RoCE v2, 10.77.0.1)"), "{error}");
        }
        let other = config().port(2);
        assert!(Port::new(&root, &other).choose(&other, true).is_err(), "no such port");
        fs::remove_dir_all(root).expect("the folder");
    }

    #[test]
    fn over_infiniband_the_first_gid_is_chosen_and_overflows_are_counted() {
        let root = machine("ib", &[(0, "fe80::2:c903:0:1\n", "IB/RoCE v1\n")]);
        let config = VerbsConfig::new("rxe0");
        let port = Port::new(&root, &config);
        assert_eq!(port.choose(&config, false).map(|entry| entry.index), Ok(0));
        assert!(port.choose(&config, true).is_err(), "over Ethernet, only RoCE v2");
        assert_eq!(port.overflows(), None);
        fs::write(port.0.join("hw_counters/out_of_buffer"), "17\n").expect("a file");
        assert_eq!(port.overflows(), Some(17));
        fs::remove_dir_all(root).expect("the folder");
    }
}
