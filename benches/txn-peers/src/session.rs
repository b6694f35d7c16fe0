//! What a store has to do.

use crate::failure::Failure;
use crate::work::{Choice, Row};

/// How a transaction ended, and after how many attempts. Attempts that conflict are repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ran {
    pub(crate) attempts: u64,
    /// By how much it changed the sum of all money. None if the workload's predicate did not hold, so
    /// that nothing was changed.
    pub(crate) added: Option<i64>,
}

/// One of the clients that run transactions at the same time.
pub(crate) trait Session {
    /// The most rows of one `load` or `read`.
    const CHUNK: usize;

    /// Stores new rows, all of one table.
    async fn load(&mut self, rows: &[(Row, Vec<u8>)]) -> Result<(), Failure>;

    /// Reads rows, all of one table, in the order of `rows`.
    async fn read(&mut self, rows: &[Row]) -> Result<Vec<Option<Vec<u8>>>, Failure>;

    /// Runs a transaction until it commits or fails.
    async fn run(&mut self, choice: &Choice) -> Result<Ran, Failure>;
}
