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
        /// Reads are not validated.
        ValidateSkipped,
        /// A transaction of two reads is not validated.
        TwoReadsUnvalidated,
        /// Reads of absent keys are not validated, so phantoms are missed.
        AbsentReadsUnvalidated,
        /// Other nodes' answers to a validation are not looked at.
        VerdictIgnored,
        /// A validation does not mind that another transaction holds the lock.
        LockedReadsValid,
        /// Reads return the old value of a locked bucket.
        LockedReadsAllowed,
        /// A key that was read may have changed when it is locked.
        UpgradeUnchecked,
        /// An update locks nothing.
        LockNotTaken,
        /// The locks are freed before the backups have the writes.
        UnlockedBeforeBackups,
        /// Primaries commit before backups.
        PrimariesFirst,
        /// One backup is left out.
        BackupSkipped,
        /// The transaction is reported before its record is stored.
        ReportedBeforeStored,
        /// Other nodes do not get the record.
        LogSkipped,
        /// A log forgets its records.
        RecordNotKept,
        /// A record is freed although its transaction has not ended.
        FloorTooHigh,
        /// Ids of transactions are used again.
        OwnerReused,
        /// A commit leaves the version as it was.
        VersionReused,
        /// A backup applies writes whatever its version is.
        BackupAppliesAnything,
        /// An unlock frees the locks of others.
        ForeignUnlock,
        /// The locks of an aborted transaction stay.
        AbortKeepsLocks,
        /// Locks stay if the answer to their request did not come.
        SentLocksForgotten,
        /// A late request of a transaction that has ended locks.
        EndedNotChecked,
        /// Locked buckets without writes stay locked after the commit.
        UnwrittenLocksStay,
        /// A call that failed counts as done.
        FailureIsDone,
        /// A commit is given up if its caller does not wait for it.
        WorkDropped,
        /// An unknown outcome is reported as an abort.
        UnknownIsAborted,
        /// An unknown outcome is reported as a commit.
        UnknownIsCommitted,
        /// The room of freed records is not used again.
        RoomNotGivenBack,
        /// A transaction does not see its own writes.
        OwnWritesUnseen,
        /// A member that has restarted is accepted.
        RestartAccepted,
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
