//! All generated code, compiled with strict lints: the files of `erpc-build/tests/golden`, which
//! the tests of `erpc-build` keep up to date. The tests that use the code are in `tests/`.
//!
//! | module | content |
//! |---|---|
//! | [`hello`] | the simplest service |
//! | [`modes`] | modes, deadlines, limits |
//! | [`streams`] | streams of all kinds |
//! | [`library`] | handlers in tokio |
//! | [`layouts`] | fixed layouts and views |
//! | [`old`] | proto2 |
//! | [`known`], [`shared`] | types from other crates |
//! | [`odd`] | names that collide |

#![forbid(unsafe_code, missing_docs)]
#![deny(warnings, clippy::all, clippy::pedantic)]

/// `hello.v1`, the simplest service.
pub mod hello {
    include!("../../../erpc-build/tests/golden/plain/hello.v1.rs");
}

/// `hello.v1` with only a client.
pub mod client {
    include!("../../../erpc-build/tests/golden/client/hello.v1.rs");
}

/// `hello.v1` with only a server, and with `erpc` at the path `crate::rpc`.
pub mod server {
    include!("../../../erpc-build/tests/golden/server/hello.v1.rs");
}

/// The crate `erpc` for the module [`server`].
mod rpc {
    pub(crate) use erpc::{Request, Response, Status, generated, protobuf, service};
}

/// `modes.v1`: modes, deadlines, limits.
pub mod modes {
    include!("../../../erpc-build/tests/golden/modes/modes.v1.rs");
}

/// `streams.v1`: streams of protocol-buffer messages and of fixed layouts.
pub mod streams {
    include!("../../../erpc-build/tests/golden/streams/streams.v1.rs");
}

/// `tokio.v1`: handlers in tokio.
pub mod library {
    include!("../../../erpc-build/tests/golden/tokio/tokio.v1.rs");
}

/// `layouts.v1`: fixed layouts and views.
pub mod layouts {
    include!("../../../erpc-build/tests/golden/layouts/layouts.v1.rs");
}

/// `old.v1`: proto2.
pub mod old {
    include!("../../../erpc-build/tests/golden/proto2/old.v1.rs");
}

/// `known.v1`: well-known types and the types of [`shared`].
pub mod known {
    include!("../../../erpc-build/tests/golden/known/known.v1.rs");
}

/// `shared.v1`, used like a package of another crate.
pub mod shared {
    include!("../../../erpc-build/tests/golden/shared/shared.v1.rs");
}

/// Names that collide with others and with each other.
pub mod odd {
    /// `odd.imported`.
    pub mod imported {
        include!("../../../erpc-build/tests/golden/odd/odd.imported.rs");
    }

    /// `odd.names`: names that generated code also uses.
    pub mod names {
        include!("../../../erpc-build/tests/golden/odd/odd.names.rs");
    }

    /// `odd.bare`: a file with few comments.
    pub mod bare {
        include!("../../../erpc-build/tests/golden/bare/odd.bare.rs");
    }

    /// `odd.type.match`: keywords, and items of the prelude.
    pub mod keywords {
        include!("../../../erpc-build/tests/golden/keywords/odd.r#type.r#match.rs");
    }
}

/// A view cannot outlive the handler's call:
///
/// ```compile_fail,E0521
/// use std::sync::Mutex;
///
/// use erpc::{Request, Response, Status};
/// use erpc_codegen_tests::odd::keywords::{Result as Message, ResultView, S};
///
/// struct Keeper {
///     last: Mutex<Option<&'static [u8]>>,
/// }
///
/// impl S for Keeper {
///     fn t(&self, request: Request<'_, ResultView<'_>>) -> Result<Response<Message>, Status> {
///         *self.last.lock().unwrap() = Some(request.message().view);
///         Ok(Response::new(Message::default()))
///     }
/// }
/// ```
///
/// A client belongs to one thread, but all threads share the state of a service, so that state
/// cannot contain a client (`ui/handlers/not_shared.stderr` has the compiler's error):
///
/// ```compile_fail,E0277
/// use erpc::{Request, Response, Status};
/// use erpc_codegen_tests::hello::{Greeter, LocalGreeterClient, GreetReply, GreetRequest};
///
/// struct Proxy {
///     backend: LocalGreeterClient,
/// }
///
/// impl Greeter for Proxy {
///     fn greet(&self, _: Request<'_, GreetRequest>) -> Result<Response<GreetReply>, Status> {
///         Err(Status::unimplemented("nothing"))
///     }
/// }
/// ```
///
/// A fixed layout also needs the derives of `zerocopy`, which prove the layout:
///
/// ```compile_fail,E0277
/// #[derive(erpc::FixedLayout)]
/// #[repr(C)]
/// struct Quote {
///     symbol: [u8; 8],
/// }
/// ```
pub mod proofs {}
