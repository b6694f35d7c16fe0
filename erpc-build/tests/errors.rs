//! What a build that fails says.

use std::fs;
use std::path::Path;

use erpc_build::{Builder, Error, Mode};

/// Compiles one file with this content.
fn compile(case: &str, proto: &str) -> Error {
    compile_with(case, proto, erpc_build::configure())
}

fn compile_with(case: &str, proto: &str, builder: Builder) -> Error {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(case);
    fs::create_dir_all(&folder).unwrap();
    let file = folder.join("test.proto");
    fs::write(&file, format!("syntax = \"proto3\";\npackage p;\nmessage M {{}}\n{proto}")).unwrap();
    let builder = builder.emit_rerun_if_changed(false).out_dir(&folder);
    builder.compile_protos(&[file], &[folder]).unwrap_err()
}

#[test]
fn a_mistake_in_a_file_is_shown_with_its_place() {
    let error = compile("syntax", "message N { Missing field = 1; }");
    assert!(matches!(error, Error::Proto(_)));
    assert_eq!(error.to_string(), "test.proto:4:13: name 'Missing' is not defined");
    assert_eq!(format!("{error:?}"), error.to_string(), "unwrapping shows the same");
}

#[test]
fn a_missing_import_is_shown_with_its_place() {
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
fn options_that_cannot_be_are_named_all_at_once() {
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
fn editions_are_refused_by_name() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("editions");
    fs::create_dir_all(&folder).unwrap();
    let file = folder.join("test.proto");
    fs::write(&file, "// New.\nedition = \"2023\";\nmessage M {}").unwrap();
    let builder = erpc_build::configure().emit_rerun_if_changed(false).out_dir(&folder);
    let error = builder.compile_protos(&[file], &[folder]).unwrap_err();
    assert!(matches!(&error, Error::Edition { file } if file == "test.proto"), "{error}");
}

#[test]
fn two_methods_with_one_id_are_named() {
    // Found by search.
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("ids");
    fs::create_dir_all(&folder).unwrap();
    let file = folder.join("test.proto");
    let service = "service Math { rpc M21631(M) returns (M); rpc M61262(M) returns (M); }";
    fs::write(&file, format!("syntax = \"proto3\";\npackage test;\nmessage M {{}}\n{service}"))
        .unwrap();
    let builder = erpc_build::configure().emit_rerun_if_changed(false).out_dir(&folder);
    let error = builder.compile_protos(&[file], &[folder]).unwrap_err();
    let Error::MethodCollision { first, second } = error else { panic!("{error}") };
    assert_eq!((first.as_str(), second.as_str()), ("test.Math/M21631", "test.Math/M61262"));
}

#[test]
fn two_methods_with_one_rust_name_are_named() {
    let error =
        compile("snake", "service S { rpc GetAll(M) returns (M); rpc get_all(M) returns (M); }");
    assert_eq!(
        error.to_string(),
        "GetAll and get_all of service S are both called `get_all` in Rust; rename one of them"
    );
}

#[test]
fn a_service_that_meets_a_message_in_rust_is_named() {
    let error = compile("module", "message KvService { message N {} } service Kv {}");
    assert_eq!(
        error.to_string(),
        "message KvService and service Kv are both called `kv_service` in Rust; rename one of them"
    );
}

#[test]
fn a_setting_that_is_no_rust_is_named() {
    let error = compile_with("setting", "", erpc_build::configure().erpc_path("not a path"));
    assert_eq!(error.to_string(), "erpc_path is set to `not a path`, which is not Rust");
}
