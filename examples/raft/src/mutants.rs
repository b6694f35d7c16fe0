//! Deliberate bugs, which check that the simulation detects them.
//!
//! With `--cfg erpc_mutants`, every `mutant!(Name)` in the code checks at run time whether [`choose`]
//! has enabled that bug. In all other builds it is the constant `false`, and this module has no other
//! content.

/// Whether the bug of this name is enabled. In ordinary builds the constant `false`.
#[cfg(erpc_mutants)]
macro_rules! mutant {
    ($name:ident) => {
        $crate::mutants::is_chosen($crate::mutants::Mutant::$name)
    };
}

/// Whether the bug of this name is enabled. In ordinary builds the constant `false`.
#[cfg(not(erpc_mutants))]
macro_rules! mutant {
    ($name:ident) => {
        false
    };
}

pub(crate) use mutant;

#[cfg(erpc_mutants)]
pub use chosen::{ALL, Mutant, choose, is_chosen};

#[cfg(erpc_mutants)]
mod chosen {
    use std::sync::atomic::{AtomicUsize, Ordering};

    macro_rules! mutants {
        ($($(#[doc = $doc:literal])* $name:ident,)*) => {
            /// A deliberate bug.
            #[derive(Clone, Copy, PartialEq, Eq, Debug)]
            #[repr(usize)]
            pub enum Mutant {
                $($(#[doc = $doc])* $name,)*
            }

            /// All bugs with their effects.
            pub const ALL: &[(Mutant, &str)] = &[$((Mutant::$name, concat!($($doc),*)),)*];
        };
    }

    mutants! {
        /// A write is answered when it is proposed, before a majority has it.
        AnsweredBeforeCommit,
        /// Votes and terms are not written to disk.
        VoteNotPersisted,
        /// Messages that promise something leave before it is on disk.
        PromisedBeforeWritten,
        /// A leader reads without asking a majority whether it still leads.
        StaleRead,
        /// A repeated write is made again.
        AppliedTwice,
        /// A snapshot forgets which writes the sessions have made.
        SnapshotForgetsSessions,
        /// A write is answered by whatever entry is at its index.
        TermNotCompared,
        /// A compare-and-swap does not compare.
        CasIgnoresExpected,
        /// The client repeats a write under a new number.
        NewNumberForRepeat,
        /// The log's entries are read from disk without those of the last frames.
        TailNotRead,
        /// The checksums of the log are not compared.
        ChecksumNotCompared,
        /// The lease is about three times as long as the others wait with an election.
        LeaseTooLong,
        /// A node that has restarted votes although the lease of the old leader may last.
        VotesDuringLease,
        /// A leader reads by its lease although it has handed its leadership over.
        LeaseAfterTransfer,
        /// Omni-Paxos: a node that learns what is decided keeps its own entries.
        OwnEntriesKept,
        /// Omni-Paxos: a leader reads before it knows all that earlier leaders have decided.
        ReadBeforeOwnLog,
    }

    const NONE: usize = usize::MAX;
    static CHOSEN: AtomicUsize = AtomicUsize::new(NONE);

    /// Enables this bug and no other, in all threads.
    pub fn choose(mutant: Option<Mutant>) {
        CHOSEN.store(mutant.map_or(NONE, |mutant| mutant as usize), Ordering::Relaxed);
    }

    /// Whether this bug is enabled.
    #[must_use]
    pub fn is_chosen(mutant: Mutant) -> bool {
        CHOSEN.load(Ordering::Relaxed) == mutant as usize
    }
}
