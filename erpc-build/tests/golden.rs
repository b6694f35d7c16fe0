//! Compares generated code with golden files, byte by byte.
//!
//! After an intended change, `UPDATE_GOLDEN=1 cargo test -p erpc-build` writes the golden files;
//! review the difference.

use std::fs;
use std::path::{Path, PathBuf};

use erpc_build::{Builder, Mode};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name)
}

/// Generates code with `builder` and compares each package's file with its file in `tests/golden`.
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
fn names_that_collide_with_others() {
    check("odd", erpc_build::configure(), &["odd/names.proto"], &["odd.names", "odd.imported"]);
}

#[test]
fn a_file_with_few_comments() {
    check("bare", erpc_build::configure(), &["odd/bare.proto"], &["odd.bare"]);
}

#[test]
fn names_that_are_keywords() {
    check("keywords", erpc_build::configure(), &["odd/keywords.proto"], &["odd.r#type.r#match"]);
}

#[test]
fn modes_and_other_options_of_methods() {
    let builder = erpc_build::configure()
        .trait_attribute(".modes.v1.Store", "#[diagnostic::on_unimplemented(note = \"a note\")]")
        .client_attribute("Store", "#[doc(alias = \"shop\")]")
        .client_attribute(".other", "#[not_here]")
        .mode("modes.v1.Store/Fetch", Mode::Worker);
    check("modes", builder, &["modes.proto"], &["modes.v1"]);
}

#[test]
fn handlers_in_tokio() {
    let builder = erpc_build::configure().default_mode(Mode::Tokio);
    check("tokio", builder, &["tokio.proto"], &["tokio.v1"]);
}

#[test]
fn streams() {
    check("streams", erpc_build::configure(), &["streams.proto"], &["streams.v1"]);
}

#[test]
fn messages_with_fixed_layouts_and_views() {
    let builder = erpc_build::configure().type_attribute("Receipt", "#[doc(alias = \"slip\")]");
    check("layouts", builder, &["layouts.proto"], &["layouts.v1"]);
}

#[test]
fn proto2() {
    check("proto2", erpc_build::configure(), &["proto2.proto"], &["old.v1"]);
}

#[test]
fn types_from_other_crates() {
    let builder = erpc_build::configure()
        .extern_path(".shared.v1", "crate::shared")
        .bytes(".known.v1.Everything.cheap")
        .bytes("nothing")
        .btree_map("sorted")
        .btree_map("nothing");
    check("known", builder, &["known.proto"], &["known.v1"]);
}

#[test]
fn types_for_other_crates() {
    check("shared", erpc_build::configure(), &["shared.proto"], &["shared.v1"]);
}
