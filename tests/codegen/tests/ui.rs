//! What the compiler says about mistakes, word by word; `TRYBUILD=overwrite` writes the files anew.

#[test]
fn mistakes_are_told_with_what_to_write() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/ui/derive/*.rs");
    cases.compile_fail("tests/ui/handlers/*.rs");
    cases.compile_fail("tests/ui/fixed_layout/*.rs");
}
