//! Compares the compiler's errors about mistakes with `.stderr` files. `TRYBUILD=overwrite` writes
//! the files again.

#[test]
fn errors_about_mistakes_say_what_to_write() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/ui/derive/*.rs");
    cases.compile_fail("tests/ui/dropped/*.rs");
    cases.compile_fail("tests/ui/handlers/*.rs");
    cases.compile_fail("tests/ui/fixed_layout/*.rs");
    cases.compile_fail("tests/ui/tokio/*.rs");
}
