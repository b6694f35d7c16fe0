//! What is generated, word by word.
//!
//! After a change that is meant, `UPDATE_GOLDEN=1 cargo test -p erpc-build` writes the files; review the difference.

use std::fs;
use std::path::{Path, PathBuf};

use erpc_build::Builder;

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name)
}

/// Generates with `builder` and compares the file of each package with the one in `tests/golden`.
fn check(case: &str, builder: Builder, protos: &[&str], packages: &[&str]) {
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(case);
    fs::create_dir_all(&out).unwrap();
    let protos: Vec<_> = protos.iter().map(|proto| folder("proto").join(proto)).collect();
    let builder = builder.emit_rerun_if_changed(false).out_dir(&out);
    builder.compile_protos(&protos, &[folder("proto")]).unwrap();
    for package in packages {
        let generated = fs::read_to_string(out.join(format!("{package}.rs"))).unwrap();
        let golden = folder("golden").join(case).join(format!("{package}.rs"));
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::create_dir_all(golden.parent().unwrap()).unwrap();
            fs::write(&golden, &generated).unwrap();
        }
        let expected = fs::read_to_string(&golden).unwrap();
        assert!(
            generated == expected,
            "{} differs; UPDATE_GOLDEN=1 accepts this:\n{generated}",
            golden.display()
        );
    }
}

#[test]
fn a_plain_service() {
    check("plain", erpc_build::configure(), &["hello.proto"], &["hello.v1"]);
}

#[test]
fn only_a_client() {
    check("client", erpc_build::configure().build_server(false), &["hello.proto"], &["hello.v1"]);
}

#[test]
fn only_a_server_under_another_path() {
    let builder = erpc_build::configure().build_client(false).erpc_path("crate::rpc");
    check("server", builder, &["hello.proto"], &["hello.v1"]);
}

#[test]
fn names_that_meet_others() {
    check("odd", erpc_build::configure(), &["odd/names.proto"], &["odd.names", "odd.imported"]);
}

#[test]
fn a_method_of_each_kind() {
    check("modes", erpc_build::configure(), &["modes.proto"], &["modes.v1"]);
}

#[test]
fn messages_that_are_read_where_they_lie() {
    check("layouts", erpc_build::configure(), &["layouts.proto"], &["layouts.v1"]);
}
