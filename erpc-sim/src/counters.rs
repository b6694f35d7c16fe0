//! Counters of a run, which can be summed over runs.

/// Defines a struct of `u64` counters that can be added to each other.
macro_rules! counters {
    ($(#[$attribute:meta])* pub struct $Name:ident { $($(#[$doc:meta])* pub $counter:ident: u64,)* }) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct $Name {
            $($(#[$doc])* pub $counter: u64,)*
        }

        impl std::ops::AddAssign for $Name {
            fn add_assign(&mut self, more: Self) {
                $(self.$counter += more.$counter;)*
            }
        }
    };
}

pub(crate) use counters;
