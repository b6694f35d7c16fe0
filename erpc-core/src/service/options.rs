//! Settings with which the methods of a service are served.

use std::time::Duration;

use super::{Method, Mode};

/// How a service's `N` methods are served. Generated code has one constant per service, from the
/// declarations of the `.proto` file. `#[derive(Service)]` applies the server's changes to it at
/// compile time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServiceOptions<const N: usize> {
    /// The message of the panic for an unknown method name.
    unknown: &'static str,
    methods: [Served; N],
}

/// How one method is served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Served {
    name: &'static str,
    /// `None` if the handler is asynchronous.
    mode: Option<Mode>,
    streams: bool,
    options: MethodOptions,
}

/// A server's overrides of the `.proto` file's settings of a method. Settings not set here stay.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MethodOptions {
    deadline: Option<Duration>,
    idempotent: Option<bool>,
    max_request: Option<u32>,
    max_response: Option<u32>,
}

impl<const N: usize> ServiceOptions<N> {
    /// Methods by name, in the order of the `.proto` file, with their modes; `None` for
    /// asynchronous handlers. `unknown` is the error message for an unknown method name and lists
    /// all methods.
    #[must_use]
    pub const fn new(unknown: &'static str, methods: [(&'static str, Option<Mode>); N]) -> Self {
        let none = Served { name: "", mode: None, streams: false, options: MethodOptions::new() };
        let mut served = [none; N];
        let mut index = 0;
        while index < N {
            (served[index].name, served[index].mode) = methods[index];
            index += 1;
        }
        Self { unknown, methods: served }
    }

    /// Declares that these methods stream; named as in the `.proto` file.
    ///
    /// # Panics
    /// If there is no such method. In a constant this is a compile error.
    #[must_use]
    #[track_caller]
    pub const fn streaming(mut self, methods: &[&str]) -> Self {
        let mut at = 0;
        while at < methods.len() {
            let index = self.index(methods[at]);
            self.methods[index].streams = true;
            at += 1;
        }
        self
    }

    /// Number of methods.
    #[must_use]
    pub const fn count(&self) -> usize {
        N
    }

    /// The mode of the method at `index`.
    ///
    /// # Panics
    /// If `index` is out of range, or the method's handler is asynchronous.
    #[must_use]
    pub const fn mode(&self, index: usize) -> Mode {
        match self.methods[index].mode {
            Some(mode) => mode,
            None => panic!("the method's handler is asynchronous"),
        }
    }

    /// The method at `index` with the options applied to `declared`, the method of the `.proto`
    /// file.
    ///
    /// # Panics
    /// If `index` is out of range.
    #[must_use]
    pub const fn method<Req, Resp, C, D>(
        &self,
        index: usize,
        declared: Method<Req, Resp, C, D>,
    ) -> Method<Req, Resp, C, D> {
        self.methods[index].options.of(declared)
    }

    /// Sets the mode of all methods whose handlers are synchronous.
    #[must_use]
    pub const fn all(mut self, mode: Mode) -> Self {
        let mut index = 0;
        while index < N {
            if self.methods[index].mode.is_some() {
                self.methods[index].mode = Some(mode);
            }
            index += 1;
        }
        self
    }

    /// Sets options of all methods.
    #[must_use]
    pub const fn all_with(mut self, options: MethodOptions) -> Self {
        let mut index = 0;
        while index < N {
            self.methods[index].options = options.or(self.methods[index].options);
            index += 1;
        }
        self
    }

    /// Sets the mode of `method`, named as in the `.proto` file.
    ///
    /// # Panics
    /// If there is no such method, or its handler is asynchronous. In a constant this is a compile
    /// error.
    #[must_use]
    #[track_caller]
    pub const fn run(mut self, method: &str, mode: Mode) -> Self {
        let index = self.index(method);
        assert!(
            self.methods[index].mode.is_some(),
            "this method's handler is an `async fn`, which does not run on workers: do not list it here. A method that \
             does not stream runs on a worker with `option (erpc.method).mode = WORKER;` in the .proto file, or with \
             `.mode(\"package.Service/Method\", Mode::Worker)` in the build script, and a plain `fn`"
        );
        self.methods[index].mode = Some(mode);
        self
    }

    /// Sets options of `method`, named as in the `.proto` file.
    ///
    /// # Panics
    /// If there is no such method. In a constant this is a compile error.
    #[must_use]
    #[track_caller]
    pub const fn with(mut self, method: &str, options: MethodOptions) -> Self {
        let index = self.index(method);
        self.methods[index].options = options.or(self.methods[index].options);
        self
    }

    /// Checks that `method`, named as in the `.proto` file, can have a
    /// [burst hook](super::Routes::on_burst).
    ///
    /// # Panics
    /// If there is no such method, or it streams. In a constant this is a compile error.
    #[must_use]
    #[track_caller]
    pub const fn burst(self, method: &str) -> Self {
        assert!(
            !self.methods[self.index(method)].streams,
            "this method streams; a burst hook is for methods with one request and one response"
        );
        self
    }

    #[track_caller]
    const fn index(&self, method: &str) -> usize {
        let mut index = 0;
        while index < N {
            if equal(self.methods[index].name, method) {
                return index;
            }
            index += 1;
        }
        panic!("{}", self.unknown)
    }
}

impl MethodOptions {
    /// No overrides: all settings come from the `.proto` file.
    #[must_use]
    pub const fn new() -> Self {
        Self { deadline: None, idempotent: None, max_request: None, max_response: None }
    }

    /// Time limit of calls whose caller sets no deadline; see [`Method::served_within`].
    ///
    /// # Panics
    /// If `deadline` is zero. In a constant this is a compile error.
    #[must_use]
    #[track_caller]
    pub const fn deadline(mut self, deadline: Duration) -> Self {
        assert!(
            !deadline.is_zero(),
            "no call ends within a deadline of zero; without one, leave it out"
        );
        self.deadline = Some(deadline);
        self
    }

    /// Sets the result of [`CallContext::is_idempotent`](super::CallContext::is_idempotent). This
    /// does not change which calls clients retry: they follow their own `.proto` file.
    #[must_use]
    pub const fn idempotent(mut self, idempotent: bool) -> Self {
        self.idempotent = Some(idempotent);
        self
    }

    /// Largest encoded request that is handled, in bytes; 0 means limited only by the session. See
    /// [`Method::max_request`].
    #[must_use]
    pub const fn max_request(mut self, bytes: u32) -> Self {
        self.max_request = Some(unlimited_if_zero(bytes));
        self
    }

    /// Largest encoded response that is sent, in bytes; 0 means limited only by the session. See
    /// [`Method::max_response`].
    #[must_use]
    pub const fn max_response(mut self, bytes: u32) -> Self {
        self.max_response = Some(unlimited_if_zero(bytes));
        self
    }

    /// These options, with unset ones taken from `others`.
    const fn or(self, others: Self) -> Self {
        Self {
            deadline: if self.deadline.is_some() { self.deadline } else { others.deadline },
            idempotent: if self.idempotent.is_some() { self.idempotent } else { others.idempotent },
            max_request: if self.max_request.is_some() {
                self.max_request
            } else {
                others.max_request
            },
            max_response: if self.max_response.is_some() {
                self.max_response
            } else {
                others.max_response
            },
        }
    }

    /// `declared` with these options applied.
    const fn of<Req, Resp, C, D>(
        &self,
        declared: Method<Req, Resp, C, D>,
    ) -> Method<Req, Resp, C, D> {
        let mut method = declared;
        if let Some(deadline) = self.deadline {
            method = method.served_within(deadline);
        }
        if let Some(idempotent) = self.idempotent {
            method = method.idempotent_if(idempotent);
        }
        if let Some(bytes) = self.max_request {
            method = method.max_request(bytes);
        }
        if let Some(bytes) = self.max_response {
            method = method.max_response(bytes);
        }
        method
    }
}

/// In the `.proto` file 0 means no limit, too.
const fn unlimited_if_zero(bytes: u32) -> u32 {
    if bytes == 0 { u32::MAX } else { bytes }
}

/// `==`, at compile time.
const fn equal(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    if a.len() != b.len() {
        return false;
    }
    let mut at = 0;
    while at < a.len() {
        if a[at] != b[at] {
            return false;
        }
        at += 1;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    const DECLARED: ServiceOptions<3> = ServiceOptions::new(
        "kv.v1.Kv has no such method; it has: Get, Put, Watch",
        [("Get", Some(Mode::Dispatch)), ("Put", Some(Mode::Worker)), ("Watch", None)],
    );
    const GET: Method<u32, u32> =
        Method::new("kv.v1.Kv/Get").idempotent().max_request(64).deadline(Duration::from_secs(1));

    #[test]
    fn modes_change_by_name_and_all_together() {
        assert_eq!((DECLARED.mode(0), DECLARED.mode(1)), (Mode::Dispatch, Mode::Worker));
        const CHANGED: ServiceOptions<3> = DECLARED.all(Mode::Worker).run("Get", Mode::Dispatch);
        assert_eq!(CHANGED, DECLARED);
        assert_eq!(DECLARED.run("Get", Mode::Worker), DECLARED.all(Mode::Worker));
        assert_eq!(DECLARED.count(), 3);
    }

    #[test]
    fn options_that_are_not_set_stay_as_declared() {
        let method = DECLARED.method(0, GET);
        assert_eq!((method.server_deadline(), method.request_limit()), (None, 64));
        const SHORT: MethodOptions =
            MethodOptions::new().deadline(Duration::from_millis(20)).idempotent(false);
        const SERVED: ServiceOptions<3> = DECLARED
            .all_with(MethodOptions::new().max_response(128).deadline(Duration::from_millis(5)))
            .with("Get", SHORT)
            .with("Get", MethodOptions::new().max_request(0));
        let method = SERVED.method(0, GET);
        assert_eq!(method.server_deadline(), Some(Duration::from_millis(20)));
        assert_eq!((method.request_limit(), method.response_limit()), (u32::MAX, 128));
        assert!(!method.is_idempotent());
        // A server's options do not change the client's deadline.
        assert_eq!(method.default_deadline(), Some(Duration::from_secs(1)));
        let other = SERVED.method(2, GET);
        assert_eq!(other.server_deadline(), Some(Duration::from_millis(5)));
        assert_eq!((other.request_limit(), other.response_limit()), (64, 128));
        assert!(other.is_idempotent());
    }

    #[test]
    #[should_panic(expected = "it has: Get, Put, Watch")]
    fn an_unknown_method_panics_with_the_list_of_methods() {
        let _ = DECLARED.run("Got", Mode::Worker);
    }

    #[test]
    #[should_panic(expected = "this method's handler is an `async fn`")]
    fn an_asynchronous_method_has_no_mode() {
        let _ = DECLARED.run("Watch", Mode::Worker);
    }

    #[test]
    fn methods_without_streams_can_have_burst_hooks() {
        const HOOKED: ServiceOptions<3> = DECLARED.streaming(&["Watch"]).burst("Get").burst("Put");
        assert_eq!(HOOKED, DECLARED.streaming(&["Watch"]));
    }

    #[test]
    #[should_panic(expected = "this method streams; a burst hook is for")]
    fn a_streaming_method_has_no_burst_hook() {
        let _ = DECLARED.streaming(&["Put", "Watch"]).burst("Watch");
    }

    #[test]
    #[should_panic(expected = "a deadline of zero")]
    fn a_deadline_of_zero_panics() {
        let _ = MethodOptions::new().deadline(Duration::ZERO);
    }
}
