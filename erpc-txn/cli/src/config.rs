//! The file that describes a cluster, the same for all of its nodes.
//!
//! ```toml
//! name = "shop"
//! replicas = 2
//!
//! [[nodes]]
//! id = 0
//! address = "10.0.0.1:31850"
//!
//! [[nodes]]
//! id = 1
//! address = "10.0.0.2:31850"
//!
//! [[tables]]
//! id = 1
//! name = "users"
//! capacity = 1_000_000
//! ```

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::{fmt, fs};

use erpc_txn::cluster::{FixedMembership, NodeId, Ring};
use erpc_txn::log::MAX_THREADS;
use erpc_txn::participant::Settings;
use erpc_txn::table::Config;
use serde::Deserialize;
use siphasher::sip::SipHasher13;

use crate::failure::Failure;

/// A cluster.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) name: String,
    pub(crate) membership: FixedMembership,
    pub(crate) settings: Settings,
    pub(crate) tables: Tables,
}

/// The names of tables, by number. Tables without a name are not there.
pub(crate) type Tables = BTreeMap<u16, String>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// Nodes of clusters with different names refuse each other.
    name: String,
    #[serde(default = "one")]
    epoch: u32,
    /// Copies of each partition, the primary included.
    #[serde(default = "one")]
    replicas: u32,
    /// Threads of each node.
    #[serde(default = "one")]
    threads: u16,
    #[serde(default)]
    log: Log,
    #[serde(default)]
    nodes: Vec<Node>,
    #[serde(default)]
    tables: Vec<Table>,
}

/// The log of one thread, at each node that stores it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Log {
    bytes: usize,
    records: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Node {
    id: u16,
    address: SocketAddr,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    id: u16,
    name: Option<String>,
    /// Entries of each partition.
    capacity: usize,
    /// Bytes of values that are stored beside their key.
    inline: Option<usize>,
    /// Bytes of the longest value.
    max_value: Option<usize>,
}

/// Bytes of the record of a transaction that writes one value, without the value.
const RECORD: usize = 83;

fn one<T: From<u8>>() -> T {
    1.into()
}

impl Default for Log {
    fn default() -> Self {
        Self { bytes: 16 << 20, records: 1024 }
    }
}

impl Cluster {
    /// Reads a file.
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        let name = path.display();
        let text = fs::read_to_string(path)
            .map_err(|error| Failure::new(format!("cannot read {name}: {error}")))?;
        Self::parse(&text).map_err(|why| Failure::new(format!("{name}: {why}")))
    }

    /// The cluster that a file's text describes, or what is wrong with it, in one line.
    fn parse(text: &str) -> Result<Self, String> {
        let file: File = toml::from_str(text).map_err(|error| {
            let before = error.span().and_then(|span| text.get(..span.start));
            let line = before.map_or(1, |before| before.matches('\n').count() + 1);
            format!("line {line}: {}", error.message().replace('\n', " "))
        })?;
        if file.name.is_empty() {
            return Err("the cluster needs a name".into());
        }
        file.check_sizes()?;
        let backups = file.replicas.checked_sub(1).ok_or("replicas = 0; at least 1")?;
        if backups > 2 || backups as usize >= file.nodes.len() {
            return Err(format!(
                "replicas = {} with {} nodes; 1 to 3, and not more than there are nodes",
                file.replicas,
                file.nodes.len()
            ));
        }
        let ids = file.nodes.iter().map(|node| NodeId(node.id));
        let ring =
            Ring::new(file.epoch, ids, backups as usize).map_err(|error| error.to_string())?;
        if let Some(node) = file.nodes.iter().find(|node| node.address.port() == 0) {
            return Err(format!("node {} has port 0; the others cannot find it", node.id));
        }
        let addresses = file.nodes.iter().map(|node| (NodeId(node.id), node.address)).collect();
        let membership = FixedMembership::new(Arc::new(ring), addresses);
        let membership = membership.map_err(|error| error.to_string())?;
        let (mut configs, mut tables) = (BTreeMap::new(), Tables::new());
        for table in file.tables {
            let (id, config) = (table.id, table.config(&file.name));
            file.log.check_room(&table, &config)?;
            if configs.insert(id, config).is_some() {
                return Err(format!("table {id} is there twice"));
            }
            let Some(name) = table.name else { continue };
            check_name(&name)?;
            if tables.values().any(|other| *other == name) {
                return Err(format!("two tables have the name {name}"));
            }
            tables.insert(id, name);
        }
        let settings = Settings {
            tables: configs,
            threads: file.threads,
            log_bytes: file.log.bytes,
            log_records: file.log.records,
        };
        Ok(Self { name: file.name, membership, settings, tables })
    }

    /// A cluster on this machine, with one table for tries.
    pub(crate) fn local(
        addresses: &BTreeMap<NodeId, SocketAddr>,
        replicas: u16,
        threads: u16,
    ) -> Result<Self, Failure> {
        let ring = Ring::new(1, addresses.keys().copied(), usize::from(replicas) - 1);
        let ring = ring.map_err(Failure::of("no such cluster"))?;
        let membership = FixedMembership::new(Arc::new(ring), addresses.clone());
        let table = Table { id: 1, name: None, capacity: 100_000, inline: None, max_value: None };
        let (name, log) = ("local".to_owned(), Log::default());
        let settings = Settings {
            tables: [(1, table.config(&name))].into(),
            threads,
            log_bytes: log.bytes,
            log_records: log.records,
        };
        let membership = membership.map_err(Failure::of("no such cluster"))?;
        Ok(Self { name, membership, settings, tables: [(1, "data".to_owned())].into() })
    }
}

impl File {
    /// Refuses a cluster in which nothing fits.
    fn check_sizes(&self) -> Result<(), String> {
        if self.nodes.is_empty() {
            return Err("there are no nodes; add [[nodes]] with id and address".into());
        }
        if self.tables.is_empty() {
            return Err("there are no tables; add [[tables]] with id and capacity".into());
        }
        if !(1..=MAX_THREADS).contains(&self.threads) {
            return Err(format!("threads = {}; set 1 to {MAX_THREADS}", self.threads));
        }
        if self.log.records == 0 {
            return Err("records = 0 in [log]; set at least 1, or leave it out".into());
        }
        match self.tables.iter().find(|table| table.capacity == 0) {
            Some(table) => Err(format!(
                "capacity = 0 in {table}; set how many entries each partition has, at least 1"
            )),
            None => Ok(()),
        }
    }
}

impl Log {
    /// Refuses a log that is too small for a transaction that writes one value.
    fn check_room(&self, table: &Table, config: &Config) -> Result<(), String> {
        let (bytes, longest) = (self.bytes, config.longest());
        let least = longest.saturating_add(RECORD);
        if bytes >= least {
            return Ok(());
        }
        Err(format!(
            "bytes = {bytes} in [log], but a value of {table} may have {longest} bytes; set bytes to at \
             least {least}, or lower the table's max_value"
        ))
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "table {name}"),
            None => write!(f, "table {}", self.id),
        }
    }
}

impl Table {
    /// The settings. The seed is different in each cluster. So its nodes refuse those of others,
    /// because they have other settings.
    fn config(&self, cluster: &str) -> Config {
        let mut hasher = SipHasher13::new();
        cluster.hash(&mut hasher);
        let mut config = Config::new(self.capacity).seed(hasher.finish());
        if let Some(bytes) = self.inline {
            config = config.inline(bytes);
        }
        if let Some(bytes) = self.max_value {
            config = config.max_value(bytes);
        }
        config
    }
}

/// Names are words, so that the shell can tell them from numbers.
pub(crate) fn check_name(name: &str) -> Result<(), String> {
    let is_word = name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    if is_word {
        return Ok(());
    }
    Err(format!("the table name {name:?} is not a letter followed by letters, digits, - and _"))
}

#[cfg(test)]
mod tests {
    use erpc_txn::cluster::Membership;
    use erpc_txn::log::{Coordinator, Entry, Group, Operation, Record};
    use erpc_txn::table::{Bucket, Version};

    use super::*;

    const GOOD: &str = r#"
name = "shop"
epoch = 4
replicas = 2

[[nodes]]
id = 0
address = "127.0.0.1:4000"

[[nodes]]
id = 7
address = "127.0.0.1:4007"

[[tables]]
id = 1
name = "users"
capacity = 1000
"#;

    #[test]
    fn a_file_describes_a_cluster() {
        let cluster = Cluster::parse(GOOD).expect("it is right");
        let placement = cluster.membership.placement();
        assert_eq!((placement.epoch(), placement.nodes()), (4, &[NodeId(0), NodeId(7)][..]));
        assert_eq!(placement.replicas(1), [NodeId(7), NodeId(0)]);
        let address = cluster.membership.address(NodeId(7)).expect("it is a member");
        assert_eq!(address.port(), 4007);
        assert_eq!(cluster.tables, [(1, "users".to_owned())].into());
        assert_eq!(cluster.settings.threads, 1);
    }

    /// The file that the README shows.
    #[test]
    fn the_example_is_right() {
        const EXAMPLE: &str = include_str!("../cluster.toml");
        let cluster = Cluster::parse(EXAMPLE).expect("it is right");
        assert_eq!(cluster.membership.placement().nodes().len(), 2);
        let readme = include_str!("../../README.md");
        assert!(readme.contains(EXAMPLE), "the README shows another file");
    }

    /// The file of the guide, whose chapter shows it.
    #[test]
    fn the_bank_of_the_guide_is_right() {
        let cluster = Cluster::parse(include_str!("../../../docs/bank.toml")).expect("it is right");
        assert_eq!(cluster.membership.placement().nodes().len(), 3);
        let names: Vec<_> = cluster.tables.values().map(String::as_str).collect();
        assert_eq!(names, ["accounts", "transfers"]);
    }

    #[test]
    fn clusters_with_other_names_have_other_settings() {
        let settings = |text: &str| Cluster::parse(text).expect("it is right").settings.tables;
        assert_eq!(settings(GOOD), settings(GOOD));
        assert_ne!(settings(GOOD), settings(&GOOD.replace("shop", "bank")));
    }

    #[test]
    fn a_log_has_room_for_the_longest_value() {
        let log = |bytes: usize| {
            let more = format!("capacity = 1000\nmax_value = 100\n[log]\nbytes = {bytes}");
            Cluster::parse(&GOOD.replace("capacity = 1000", &more)).is_ok()
        };
        let entry = Entry { key: 1, operation: Operation::Update(&[7; 100]) };
        let version = Version::new(2).expect("it is a version");
        let group = Group {
            table: 1,
            partition: 0,
            bucket: Bucket::new(0),
            base: version,
            new: version.next().expect("there is a next one"),
            entries: [entry].into_iter().collect(),
        };
        let coordinator = Coordinator { node: 0, thread: 0 };
        let record = Record {
            epoch: 1,
            coordinator,
            transaction: coordinator.transaction(1).expect("it is in range"),
            partitions: [0].into_iter().collect(),
            groups: [group].into_iter().collect(),
        };
        let least = record.encoded_len();
        assert_eq!((log(least - 1), log(least)), (false, true));
    }

    #[test]
    fn nodes_and_tables_are_needed() {
        let (before, tables) = GOOD.split_at(GOOD.find("[[tables]]").expect("there are tables"));
        let nodes = before.split_at(before.find("[[nodes]]").expect("there are nodes"));
        for (text, line) in [
            (before.to_owned(), "there are no tables; add [[tables]]"),
            (format!("tables = []{before}"), "there are no tables; add [[tables]]"),
            (format!("{}{tables}", nodes.0), "there are no nodes; add [[nodes]]"),
            (format!("nodes = []{}{tables}", nodes.0), "there are no nodes; add [[nodes]]"),
        ] {
            let error = Cluster::parse(&text).expect_err(&text);
            assert!(error.starts_with(line), "{text}: {error}");
        }
    }

    #[test]
    fn a_mistake_is_one_line_that_says_where() {
        for (right, wrong, line) in [
            ("replicas = 2", "replica = 2", "line 4: unknown field `replica`"),
            ("replicas = 2", "replicas = 3", "replicas = 3 with 2 nodes"),
            ("replicas = 2", "replicas = 0", "replicas = 0; at least 1"),
            ("replicas = 2", "replicas = -1", "line 4: invalid value"),
            ("127.0.0.1:4007", "127.0.0.1", "line 12: invalid socket address"),
            ("127.0.0.1:4007", "127.0.0.1:4000", "two nodes have the address 127.0.0.1:4000"),
            ("127.0.0.1:4007", "127.0.0.1:0", "node 7 has port 0"),
            ("id = 7", "id = 0", "node 0 is there twice"),
            ("id = 7", "id = 70000", "line 11: invalid value"),
            ("id = 7", "id = 7000", "node 7000; the numbers of nodes are below 1024"),
            ("\"shop\"", "\"\"", "the cluster needs a name"),
            ("name = \"shop\"", "name = ", "line 2: "),
            ("name = \"shop\"", "", "missing field `name`"),
            ("\"users\"", "\"1st\"", "the table name \"1st\" is not a letter"),
            ("epoch = 4", "threads = 0", "threads = 0; set 1 to 256"),
            ("epoch = 4", "threads = 257", "threads = 257; set 1 to 256"),
            (
                "capacity = 1000",
                "capacity = 0",
                "capacity = 0 in table users; set how many entries",
            ),
            (
                "capacity = 1000",
                "capacity = 1000\n[log]\nrecords = 0",
                "records = 0 in [log]; set at least 1",
            ),
            (
                "capacity = 1000",
                "capacity = 1000\nmax_value = 100\n[log]\nbytes = 182",
                "bytes = 182 in [log], but a value of table users may have 100 bytes; set bytes to at \
                 least 183",
            ),
            (
                "capacity = 1000",
                "capacity = 1000\n[log]\nbytes = 1_000_000",
                "set bytes to at least 8388691, or lower the table's max_value",
            ),
            (
                "capacity = 1000",
                "capacity = 1000\n[[tables]]\nid = 1\ncapacity = 5",
                "table 1 is there twice",
            ),
        ] {
            let error = Cluster::parse(&GOOD.replacen(right, wrong, 1)).expect_err(wrong);
            assert!(error.contains(line), "{wrong}: {error}");
            assert!(!error.contains('\n'), "{error}");
        }
    }
}
