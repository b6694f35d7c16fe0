//! The whole store in a virtual network: one seed, one run.
#![cfg(not(loom))]

mod absence;
mod benchmarks;
mod chaos;
mod cluster;
mod costs;
mod load;
mod misuse;
mod outside;
#[cfg(erpc_mutants)]
mod planted;
mod protocol;
mod stopping;
mod workload;

use erpc_txn::codec::TypedTable;
use erpc_txn::participant::Settings;
use erpc_txn::table::Config;

pub(crate) const KEYS: TypedTable<u64, Vec<u8>> = TypedTable::new(1);

/// Small tables, in which keys share buckets, and small logs, which fill up.
pub(crate) fn settings() -> Settings {
    Settings {
        tables: [(1, Config::new(200).max_value(1 << 16)), (2, Config::new(200))].into(),
        threads: 1,
        log_bytes: 200_000,
        log_records: 16,
    }
}
