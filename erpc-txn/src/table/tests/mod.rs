mod model;
mod operations;
mod stress;

use super::{Bucket, Config, Owner, Snapshot, Table, Version, Write};

fn owner(id: u64) -> Owner {
    Owner::new(id).expect("not 0")
}

/// A table with few buckets, so that they are crowded.
fn crowded(buckets: u32, overflow: u32) -> Table {
    Config::new(0).inline(16).max_value(1000).blocks(buckets, overflow).build().expect("memory")
}

fn snapshots(table: &Table) -> Vec<Snapshot> {
    table.snapshots().map(|snapshot| snapshot.expect("nobody commits")).collect()
}

/// Keys of one bucket.
fn keys_of(table: &Table, bucket: Bucket) -> impl Iterator<Item = u64> {
    (0..).filter(move |&key| table.bucket(key) == bucket)
}
