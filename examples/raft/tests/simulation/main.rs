//! The whole store in a virtual network: one seed, one run.

mod chaos;
mod cluster;
mod files;
mod leases;
mod misuse;
mod overtaken;
#[cfg(erpc_mutants)]
mod planted;
