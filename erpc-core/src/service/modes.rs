//! Where the methods of one service run.

use super::Mode;

/// The modes of a service's methods, as far as they can be chosen: of `N` methods whose handlers are
/// plain functions, in the order of the service. Generated code has one constant per service, with the
/// modes that its `.proto` file declares, and `#[derive(Service)]` changes it at compile time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Modes<const N: usize> {
    /// What to say about a method that does not exist.
    unknown: &'static str,
    methods: [(&'static str, Mode); N],
    /// Methods whose handlers are asynchronous.
    asynchronous: &'static [&'static str],
}

impl<const N: usize> Modes<N> {
    /// The modes of `methods`, named as in the `.proto` file; `unknown` lists all methods for those who
    /// name another, and `asynchronous` those that have no mode to choose.
    #[must_use]
    pub const fn new(
        unknown: &'static str,
        methods: [(&'static str, Mode); N],
        asynchronous: &'static [&'static str],
    ) -> Self {
        Self { unknown, methods, asynchronous }
    }

    /// The mode of the method at `index`, counting those that can be chosen.
    ///
    /// # Panics
    /// If there are no more than `index` such methods.
    #[must_use]
    pub const fn at(&self, index: usize) -> Mode {
        self.methods[index].1
    }

    /// All methods in one mode.
    #[must_use]
    pub const fn all(mut self, mode: Mode) -> Self {
        let mut index = 0;
        while index < N {
            self.methods[index].1 = mode;
            index += 1;
        }
        self
    }

    /// The same but for `method`, named as in the `.proto` file.
    ///
    /// # Panics
    /// If there is no such method, or its handler is asynchronous. In a constant that is an error at
    /// compile time.
    #[must_use]
    #[track_caller]
    pub const fn with(mut self, method: &str, mode: Mode) -> Self {
        let mut index = 0;
        while index < N {
            if equal(self.methods[index].0, method) {
                self.methods[index].1 = mode;
                return self;
            }
            index += 1;
        }
        let mut index = 0;
        while index < self.asynchronous.len() {
            assert!(
                !equal(self.asynchronous[index], method),
                "this method's handler is asynchronous and runs in the event loop: do not list it here. A method that \
                 does not stream runs on a worker with `option (erpc.method).mode = WORKER;` in the .proto file, or with \
                 `.mode(\"package.Service/Method\", Mode::Worker)` in the build script, and a plain `fn`"
            );
            index += 1;
        }
        panic!("{}", self.unknown)
    }
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

    const MODES: Modes<2> = Modes::new(
        "kv.v1.Kv has no such method; it has: Get, Put, Watch",
        [("Get", Mode::Dispatch), ("Put", Mode::Worker)],
        &["Watch"],
    );

    #[test]
    fn methods_change_by_name_and_all_at_once() {
        assert_eq!((MODES.at(0), MODES.at(1)), (Mode::Dispatch, Mode::Worker));
        const CHANGED: Modes<2> = MODES.all(Mode::Worker).with("Get", Mode::Dispatch);
        assert_eq!(CHANGED, MODES);
        assert_eq!(MODES.with("Get", Mode::Worker), MODES.all(Mode::Worker));
    }

    #[test]
    #[should_panic(expected = "it has: Get, Put, Watch")]
    fn a_method_that_does_not_exist_is_told_from_those_that_do() {
        let _ = MODES.with("Got", Mode::Worker);
    }

    #[test]
    #[should_panic(expected = "this method's handler is asynchronous")]
    fn an_asynchronous_method_has_no_mode() {
        let _ = MODES.with("Watch", Mode::Worker);
    }
}
