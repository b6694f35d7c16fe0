//! Deliberate bugs, which check that the tests detect them.
//!
//! With `--cfg erpc_mutants`, every `mutant!(Name)` in the code checks at run time whether the
//! environment variable `ERPC_BUG` names that bug. In all other builds it is the constant `false`,
//! and this module has no other content. `.ci/mutants-masstree` lists the test that detects each
//! bug.

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
pub(crate) use chosen::{Mutant, is_chosen};

#[cfg(erpc_mutants)]
mod chosen {
    use std::sync::OnceLock;

    macro_rules! mutants {
        ($($(#[doc = $doc:literal])* $name:ident,)*) => {
            /// A deliberate bug.
            #[derive(Clone, Copy, PartialEq, Eq, Debug)]
            pub(crate) enum Mutant {
                $($(#[doc = $doc])* $name,)*
            }

            const ALL: &[Mutant] = &[$(Mutant::$name,)*];
        };
    }

    mutants! {
        /// Readers do not check the version after they have read.
        ValidationSkipped,
        /// Readers do not check that the slice belongs to the node.
        HighIgnored,
        /// An entry is published before its slot is filled.
        PublishedEarly,
        /// A removal does not change the version, so a reader may take another entry in the same
        /// slot for the removed one.
        RemovedQuietly,
        /// A split does not change the version.
        SplitQuietly,
        /// A split does not tell the right neighbor.
        PrevForgotten,
        /// The halves of a split may be removed before their parent knows both.
        UnlockedBeforeParent,
        /// A border node that left the list is not marked, so writers insert into it.
        NotMarkedDeleted,
        /// A border node leaves the list although a key was inserted meanwhile.
        EmptyNotRechecked,
        /// The key above a first child that leaves stays as it is.
        KeyNotMoved,
        /// The node of a removed layer is not marked, so writers insert into it.
        LayerLeftAlive,
        /// A layer is removed although a key was inserted meanwhile.
        LayerNotRechecked,
        /// Nodes without entries stay in the tree.
        NothingPruned,
        /// Nodes that have left the tree are not freed.
        NodeLeaked,
        /// Layers that have left the tree are not freed.
        LayerLeaked,
        /// A scan ends at a node that has left the tree.
        ScanEndsAtDeleted,
        /// A scan does not skip what it has passed in a node that has taken over its neighbor's
        /// slices.
        ScanGoesBack,
        /// A scan that starts again repeats its last key.
        ScanRepeats,
        /// Writers insert into a node that has left the tree.
        DeletedLocked,
    }

    /// Whether this bug is enabled.
    pub(crate) fn is_chosen(mutant: Mutant) -> bool {
        static CHOSEN: OnceLock<Option<Mutant>> = OnceLock::new();
        let chosen = CHOSEN.get_or_init(|| {
            let name = std::env::var("ERPC_BUG").ok()?;
            let mut all = ALL.iter().copied();
            Some(all.find(|bug| format!("{bug:?}") == name).expect("ERPC_BUG names no bug"))
        });
        *chosen == Some(mutant)
    }
}
