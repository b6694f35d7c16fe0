//! The protocol's specification, as tests: two cores, a wire that the test holds in its hands, and a
//! clock that stands still until it is moved.

mod pair;

mod lossy;

pub(super) use pair::TestRoute;
