//! A program that uses nothing of what is generated has no warnings. That it compiles is the test.

#![deny(warnings)]

mod hello {
    include!("../../../erpc-build/tests/golden/plain/hello.v1.rs");
}

mod layouts {
    include!("../../../erpc-build/tests/golden/layouts/layouts.v1.rs");
}

mod shared {
    include!("../../../erpc-build/tests/golden/shared/shared.v1.rs");
}

mod known {
    include!("../../../erpc-build/tests/golden/known/known.v1.rs");
}
