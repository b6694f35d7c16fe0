//! The errors of builds that fail.

use std::fs;
use std::path::Path;

use erpc_build::{Builder, Error, Mode};

/// Compiles one file: a proto3 header with a message `M`, then `proto`.
fn compile(case: &str, proto: &str) -> Error {
    compile_with(case, proto, erpc_build::configure())
}

fn compile_with(case: &str, proto: &str, builder: Builder) -> Error {
    let text = format!("syntax = \"proto3\";\npackage p;\nmessage M {{}}\n{proto}");
    compile_text(case, &text, builder)
}

/// Compiles one file with the content `text`.
fn compile_text(case: &str, text: &str, builder: Builder) -> Error {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(case);
    fs::create_dir_all(&folder).unwrap();
    let file = folder.join("test.proto");
    fs::write(&file, text).unwrap();
    let builder = builder.emit_rerun_if_changed(false).out_dir(&folder);
    builder.compile_protos(&[file], &[folder]).unwrap_err()
}

#[test]
fn a_mistake_in_a_file_is_reported_with_its_place() {
    let error = compile("syntax", "message N { Missing field = 1; }");
    assert!(matches!(error, Error::Proto(_)));
    assert_eq!(error.to_string(), "test.proto:4:13: name 'Missing' is not defined");
    assert_eq!(format!("{error:?}"), error.to_string(), "Debug must equal Display");
}

#[test]
fn a_missing_import_is_reported_with_its_place() {
    let error = compile("import", "import \"gone.proto\";");
    assert_eq!(error.to_string(), "test.proto:4:1: import 'gone.proto' not found");
}

#[test]
fn a_missing_file_is_named() {
    let error = erpc_build::configure()
        .emit_rerun_if_changed(false)
        .compile_protos(&["no/such.proto"], &["."])
        .unwrap_err();
    assert!(error.to_string().contains("no/such.proto"), "{error}");
}

#[test]
fn all_wrong_options_are_reported_together() {
    let service = "service S { \
        rpc A(M) returns (stream M) { option (erpc.method).mode = WORKER; } \
        rpc B(stream M) returns (M) { option (erpc.method).mode = DISPATCH; } }";
    let builder = erpc_build::configure().mode("p.S/C", Mode::Async);
    let error =
        compile_with("modes", &format!("import \"erpc/options.proto\"; {service}"), builder);
    let Error::Options(misuses) = &error else { panic!("{error}") };
    let at: Vec<_> = misuses.iter().map(|misuse| misuse.at.as_str()).collect();
    assert_eq!(at, ["method p.S/A", "method p.S/B", "Builder::mode(\"p.S/C\", ..)"]);
    assert_eq!(
        error.to_string().lines().last(),
        Some("Builder::mode(\"p.S/C\", ..): there is no such method; there are: p.S/A, p.S/B")
    );
}

#[test]
fn an_error_about_an_unknown_service_lists_the_services() {
    let builder = erpc_build::configure().mode("p.T/A", Mode::Async);
    let error = compile_with("service", "service S { rpc A(M) returns (M); }", builder);
    assert_eq!(
        error.to_string(),
        "Builder::mode(\"p.T/A\", ..): there is no such service; there are: p.S"
    );
}

/// The lines of the error for messages with layouts.
fn layout_errors(case: &str, proto: &str) -> Vec<String> {
    let error = compile(case, &format!("import \"erpc/options.proto\"; {proto}"));
    assert!(matches!(error, Error::Options(_)), "{error}");
    error.to_string().lines().map(str::to_owned).collect()
}

/// Asserts for each line that it starts with the place and contains the text.
fn assert_lines(lines: &[String], expected: &[(&str, &str)]) {
    assert_eq!(lines.len(), expected.len(), "{lines:#?}");
    for (line, (place, text)) in lines.iter().zip(expected) {
        assert!(
            line.starts_with(&format!("{place}: ")) && line.contains(text),
            "{line}\n  is not {place}: {text}"
        );
    }
}

#[test]
fn an_error_names_the_fields_that_a_fixed_layout_cannot_have() {
    let lines = layout_errors(
        "fixed",
        "message F { option (erpc.message).layout = FIXED; \
            string a = 1; bytes b = 2; repeated uint32 c = 3; map<uint32, uint32> d = 4; \
            optional uint32 e = 5; M f = 6; oneof g { uint32 h = 7; } \
            uint32 i = 8 [(erpc.field).size = 4]; bytes good = 9 [(erpc.field).size = 4]; }",
    );
    let expected = [
        ("field p.F.a", "write `bytes` with `[(erpc.field).size = 16]`"),
        ("field p.F.b", "`bytes` without a size; write `[(erpc.field).size = 16]`"),
        ("field p.F.c", "is repeated"),
        ("field p.F.d", "is repeated"),
        ("field p.F.e", "remove `optional`"),
        (
            "field p.F.f",
            "is a p.M, which has no fixed layout; write `option (erpc.message).layout = FIXED;` in that message, too",
        ),
        ("field p.F.h", "is in a oneof"),
        ("field p.F.i", "has a size, which only `bytes` fields"),
    ];
    assert_lines(&lines, &expected);
}

#[test]
fn an_error_names_the_messages_that_cannot_have_a_fixed_layout() {
    let fixed = "option (erpc.message).layout = FIXED;";
    let lines = layout_errors(
        "fixed-messages",
        &format!(
            "message Empty {{ {fixed} }} \
             message Both {{ {fixed} option (erpc.message).view = true; uint32 a = 1; }} \
             message Outer {{ message Inner {{ {fixed} uint32 a = 1; }} Inner inner = 1; }} \
             message Holder {{ {fixed} enum E {{ ZERO = 0; }} E e = 1; }} \
             message Self {{ {fixed} Self self = 1; }}"
        ),
    );
    let expected = [
        ("message p.Both", "remove `view`"),
        ("message p.Empty", "no fields; remove the option"),
        ("message p.Outer.Inner", "move it to the top level of the file"),
        ("message p.Holder", "move them to the top level of the file"),
        ("message p.Self", "contains itself"),
        ("field p.Outer.inner", "can only be part of messages with `layout: FIXED`"),
    ];
    let (mut lines, mut expected) = (lines, expected);
    lines.sort_unstable();
    expected.sort_unstable();
    assert_lines(&lines, &expected);
}

#[test]
fn an_error_names_the_fields_that_a_view_cannot_have() {
    let view = "option (erpc.message).view = true;";
    let lines = layout_errors(
        "view",
        &format!(
            "import \"google/protobuf/timestamp.proto\"; \
             message V {{ {view} repeated uint32 a = 1; map<uint32, uint32> b = 2; M c = 3; \
             oneof d {{ uint32 e = 4; }} google.protobuf.Timestamp f = 5; \
             bytes g = 6 [(erpc.field).size = 4]; optional string good = 7; V h = 8; }} \
             message Empty {{ {view} }}"
        ),
    );
    let expected = [
        ("message p.V", "contains itself"),
        ("field p.V.a", "is repeated, which views do not support; remove `view`"),
        ("field p.V.b", "is a map"),
        (
            "field p.V.c",
            "is a p.M, which has no view; write `option (erpc.message).view = true;` in that message, too",
        ),
        ("field p.V.e", "is in a oneof"),
        ("field p.V.f", "is a google.protobuf.Timestamp, which has no view"),
        ("field p.V.g", "has a size"),
        ("message p.Empty", "remove `view`"),
    ];
    assert_lines(&lines, &expected);
}

#[test]
fn an_error_names_the_proto2_fields_that_layouts_do_not_support() {
    let text = "syntax = \"proto2\"; package p; import \"erpc/options.proto\"; \
        message F { option (erpc.message).layout = FIXED; \
            optional uint32 a = 1; required uint32 b = 2 [default = 3]; } \
        enum One { ONE = 1; } enum Zero { ZERO = 0; } \
        message V { option (erpc.message).view = true; \
            optional uint32 a = 1 [default = 3]; optional group G = 2 { optional uint32 c = 1; } \
            required One d = 3; required Zero e = 4; optional One f = 5; }";
    let error = compile_text("layouts2", text, erpc_build::configure()).to_string();
    let lines: Vec<_> = error.lines().map(str::to_owned).collect();
    let expected = [
        ("field p.F.a", "(in proto2: write `required`)"),
        ("field p.F.b", "has a default"),
        ("field p.V.a", "has a default"),
        ("field p.V.g", "is a group"),
        ("field p.V.d", "is required, and its enum does not begin with 0"),
    ];
    assert_lines(&lines, &expected);
}

#[test]
fn a_view_with_the_name_of_a_message_is_refused() {
    let messages = "import \"erpc/options.proto\"; message NoteView {} \
        message Note { option (erpc.message).view = true; string text = 1; }";
    assert_eq!(
        compile("view-name", messages).to_string(),
        "message NoteView and the view of message p.Note are both called `NoteView` in Rust; rename one \
         of them"
    );
}

#[test]
fn a_copy_of_the_options_file_in_an_include_folder_is_used() {
    // Users of other compilers copy `erpc/options.proto`. The copy in an include folder comes
    // before the built-in file.
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("copied");
    fs::create_dir_all(folder.join("erpc")).unwrap();
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("proto/erpc/options.proto");
    fs::copy(own, folder.join("erpc/options.proto")).unwrap();
    let file = folder.join("test.proto");
    let text = "syntax = \"proto3\"; package p; import \"erpc/options.proto\"; message M {} \
        service S { rpc A(M) returns (M) { option (erpc.method).mode = WORKER; } }";
    fs::write(&file, text).unwrap();
    let builder = erpc_build::configure().emit_rerun_if_changed(false).out_dir(&folder);
    builder.compile_protos(&[&file], &[&folder]).unwrap();
    let generated = fs::read_to_string(folder.join("p.rs")).unwrap();
    assert!(generated.contains("[(\"A\", Some(::erpc::service::Mode::Worker))]"), "{generated}");
    assert!(!folder.join("erpc.rs").exists(), "no code is generated for the options");
}

#[test]
fn an_edition_that_proto3_cannot_express_is_refused() {
    for (text, problem) in [
        (
            "// New.\nedition = \"2024\";\nmessage M {}",
            "uses edition 2024, but only edition 2023 is supported; write `edition = \"2023\";` or `syntax = \"proto3\";`",
        ),
        (
            "edition = \"2023\"; option features.enum_type = CLOSED;",
            "sets `features.enum_type = CLOSED`, which proto3 cannot express; remove it, or replace the edition by \
             `syntax = \"proto2\";`",
        ),
    ] {
        let error = compile_text("editions", text, erpc_build::configure());
        assert!(matches!(error, Error::Edition { .. }));
        assert_eq!(error.to_string(), format!("test.proto {problem}"));
    }
}

#[test]
fn two_methods_with_the_same_id_are_refused() {
    // A search over names found this collision.
    let text = "syntax = \"proto3\"; package test; message M {} \
        service Math { rpc M21631(M) returns (M); rpc M61262(M) returns (M); }";
    let error = compile_text("ids", text, erpc_build::configure());
    let Error::MethodCollision { first, second } = error else { panic!("{error}") };
    assert_eq!((first.as_str(), second.as_str()), ("test.Math/M21631", "test.Math/M61262"));
}

#[test]
fn two_methods_with_the_same_rust_name_are_refused() {
    let error =
        compile("snake", "service S { rpc GetAll(M) returns (M); rpc get_all(M) returns (M); }");
    assert_eq!(
        error.to_string(),
        "GetAll of service S and get_all of service S are both called `get_all` in Rust; rename one of them"
    );
}

#[test]
fn other_items_with_the_same_rust_name_are_refused() {
    for (case, proto, named) in [
        (
            "types",
            "message FooBar {} enum Foo_Bar { ZERO = 0; }",
            "enum Foo_Bar and message FooBar are both called `FooBar`",
        ),
        (
            "clients",
            "service Kv {} service KvClient {}",
            "the client of service Kv and service KvClient are both called `KvClient`",
        ),
        (
            "local",
            "service Kv {} service LocalKvClient {}",
            "the local client of service Kv and service LocalKvClient are both called `LocalKvClient`",
        ),
        (
            "traits",
            "service Kv {} service kv {}",
            "the client of service Kv and the client of service kv are both called `KvClient`",
        ),
    ] {
        let error = compile(case, proto).to_string();
        assert_eq!(error, format!("{named} in Rust; rename one of them"));
    }
}

#[test]
fn a_service_whose_module_has_the_name_of_a_messages_module_is_refused() {
    let error = compile("module", "message KvService { message N {} } service Kv {}");
    assert_eq!(
        error.to_string(),
        "message KvService and service Kv are both called `kv_service` in Rust; rename one of them"
    );
}

#[test]
fn a_setting_that_is_not_valid_rust_is_refused() {
    let error = compile_with("setting", "", erpc_build::configure().erpc_path("not a path"));
    assert_eq!(
        error.to_string(),
        "erpc_path is set to `not a path`, which is not valid Rust; correct it in the build script"
    );
}

#[test]
fn an_error_about_options_without_the_import_says_what_to_import() {
    for (case, proto, name) in [
        (
            "forgotten",
            "service S { rpc A(M) returns (M) { option (erpc.method).mode = ASYNC; } }",
            "method",
        ),
        ("forgotten_field", "message N { bytes x = 1 [(erpc.field).size = 8]; }", "field"),
    ] {
        let error = compile(case, proto).to_string();
        let expected =
            format!("name 'erpc.{name}' is not defined; add `import \"erpc/options.proto\";`");
        assert!(error.ends_with(&expected), "{error}");
    }
}

#[test]
fn an_error_about_a_misspelt_option_lists_the_options() {
    let method = "(erpc.method) has mode: DISPATCH or WORKER or ASYNC or TOKIO, deadline_us: uint64, idempotent: bool, \
                  max_request: uint32, max_response: uint32";
    let of_method =
        |option: &str| format!("service S {{ rpc A(M) returns (M) {{ option {option}; }} }}");
    for (case, proto, hint) in [
        ("braces", of_method("(erpc.method) = { mod: ASYNC }"), method),
        ("value", of_method("(erpc.method) = { mode: ASYNK }"), method),
        ("dotted", of_method("(erpc.method).mod = ASYNC"), method),
        ("dotted_value", of_method("(erpc.method).mode = ASYNK"), method),
        (
            "metod",
            of_method("(erpc.metod).mode = ASYNC"),
            "there are (erpc.method), (erpc.message), (erpc.field)",
        ),
        (
            "layot",
            "message N { option (erpc.message).layot = FIXED; }".to_owned(),
            "(erpc.message) has layout: PROTOBUF or FIXED, view: bool",
        ),
    ] {
        let error = compile(case, &format!("import \"erpc/options.proto\"; {proto}")).to_string();
        assert!(error.ends_with(&format!("; {hint}")), "{error}");
    }
}
