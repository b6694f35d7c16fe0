//! Generated code has no warnings in a crate with strict lints, whatever its `.proto` file
//! contains. The test is that this file compiles, also with clippy.

#![deny(
    warnings,
    future_incompatible,
    let_underscore,
    missing_docs,
    nonstandard_style,
    rust_2018_idioms,
    single_use_lifetimes,
    unnameable_types,
    unreachable_pub,
    unused,
    unused_qualifications,
    clippy::all,
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    clippy::as_conversions,
    clippy::exhaustive_structs,
    clippy::implicit_return,
    clippy::nursery,
    clippy::pedantic,
    clippy::pub_use,
    clippy::std_instead_of_core
)]

mod bare {
    include!("../../../erpc-build/tests/golden/bare/odd.bare.rs");
}

mod imported {
    include!("../../../erpc-build/tests/golden/odd/odd.imported.rs");
}

mod names {
    include!("../../../erpc-build/tests/golden/odd/odd.names.rs");
}

mod old {
    include!("../../../erpc-build/tests/golden/proto2/old.v1.rs");
}

mod layouts {
    include!("../../../erpc-build/tests/golden/layouts/layouts.v1.rs");
}
