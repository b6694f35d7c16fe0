//! `Debug` of errors that `main` may return.
//!
//! A `main` that returns an error prints the error with `Debug`, and so does `unwrap`. A user then
//! needs the text that says what to do, not the names of fields. So the errors of functions that
//! `main` typically calls implement `Debug` as `Display`. Their parts, such as
//! [`Cause`](crate::protocol::Cause), keep the derived one.

/// Implements `Debug` as `Display` for these types.
macro_rules! debug_is_display {
    ($($name:ty),* $(,)?) => {
        $(
            impl ::std::fmt::Debug for $name {
                fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                    ::std::fmt::Display::fmt(self, f)
                }
            }
        )*
    };
}

pub(crate) use debug_is_display;
