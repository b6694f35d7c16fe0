//! A program that uses none of the generated code has no warnings. The test is that this file
//! compiles.

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
