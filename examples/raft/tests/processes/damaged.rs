//! Files that change while their node is down.

use std::fs;
use std::path::{Path, PathBuf};

use erpc_raft::client::Patience;

use crate::PATIENCE;
use crate::cluster::{Cluster, Durability, client, until};

/// The longest file of a folder whose name begins so, and its length.
fn longest(folder: &Path, prefix: &str) -> Option<(PathBuf, u64)> {
    let files = fs::read_dir(folder).ok()?.filter_map(|entry| {
        let entry = entry.ok()?;
        let is_wanted = entry.file_name().to_str()?.starts_with(prefix);
        is_wanted.then_some((entry.path(), entry.metadata().ok()?.len()))
    });
    files.max_by_key(|(_, len)| *len)
}

/// Inverts the bits of the byte in the middle of a file. Twice changes nothing.
fn flip(file: &Path) {
    let mut bytes = fs::read(file).expect("its node is down");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0xff;
    fs::write(file, bytes).expect("its node is down");
}

fn value(key: u32) -> Vec<u8> {
    [key.to_le_bytes(); 500].concat()
}

/// A byte changes in the middle of the log, which has the votes, too, or of the snapshot or the identity,
/// while the node is down. The node does not start, and says why. The others go on. When the byte is mended,
/// the node goes on, too.
#[test]
fn a_node_with_a_damaged_file_does_not_start() {
    let mut cluster = Cluster::start("damaged", Durability::Disk, &["--snapshot-kb", "64"]);
    let patience = Patience { call: PATIENCE, ..Patience::default() };
    let (endpoint, nodes) = client(&cluster.addresses(), patience);
    cluster.leader(&endpoint, &nodes);
    let session = endpoint.block_on(nodes.open()).expect("the cluster serves");
    let mut written = 0;
    let mut write = || {
        let put = endpoint.block_on(session.put(&u32::to_le_bytes(written), &value(written)));
        put.expect("a majority serves");
        written += 1;
        written
    };
    let read_all = |written| {
        endpoint.block_on(async {
            for key in 0..written {
                let read = nodes.get(&u32::to_le_bytes(key)).await.expect("a majority serves");
                assert_eq!(read.as_deref(), Some(&*value(key)), "write {key} is lost");
            }
        });
    };
    for prefix in ["log-", "snapshot-", "identity"] {
        let data = cluster.data(1);
        let len = |prefix| longest(&data, prefix).map_or(0, |(_, len)| len);
        until("node 1 has a snapshot, and many frames after it", || {
            write();
            len("snapshot-") > 1_000 && len("log-") > 20_000
        });
        cluster.kill(1);
        let (file, _) = longest(&data, prefix).expect("it was written");
        flip(&file);
        cluster.restart(1);
        let status = cluster.wait(1);
        let text = cluster.errors(1);
        let name = file.file_name().expect("it is a file").to_string_lossy();
        assert_eq!(status.code(), Some(1), "{name}: {text}");
        assert_eq!(text.lines().count(), 1, "{name}: {text}");
        for part in [&format!("{name} is damaged"), "with another id and an empty folder"] {
            assert!(text.contains(part), "{name}: {text}");
        }
        let mut acknowledged = 0;
        (0..10).for_each(|_| acknowledged = write());
        read_all(acknowledged);
        // It has changed nothing else, so it can go on.
        flip(&file);
        cluster.restart(1);
        until("node 1 has caught up", || {
            let applied = |id| {
                let status = endpoint.block_on(nodes.status(&cluster.address(id)));
                status.map_or(0, |status| status.applied)
            };
            applied(1) >= applied(2).max(applied(3)).max(acknowledged.into())
        });
    }
    cluster.kill(2);
    read_all(write());
}
