//! Files read by `protoc`. A script replaces `protoc`, so the tests do not need it. If `PROTOC`
//! names a real `protoc`, one test uses that.

#![cfg(unix)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use erpc_build::Error;

const PROTO: &str = "syntax = \"proto3\";\npackage p;\nimport \"erpc/options.proto\";\nimport \"imported.proto\";\n\
    // A message.\nmessage M {}\n\
    service S { rpc A(M) returns (i.Thing) { option (erpc.method).mode = ASYNC; } }\n";
const IMPORTED: &str = "syntax = \"proto3\";\npackage i;\nmessage Thing {}\n\
    service Elsewhere { rpc A(Thing) returns (Thing); }\n";

/// Creates a folder with the two files.
fn folder(case: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("protoc").join(case);
    fs::create_dir_all(folder.join("out")).unwrap();
    fs::write(folder.join("test.proto"), PROTO).unwrap();
    fs::write(folder.join("imported.proto"), IMPORTED).unwrap();
    folder
}

/// Creates a script in `folder` that replaces `protoc` and runs `lines`; `$out` is the output file.
fn stand_in(folder: &Path, lines: &str) -> PathBuf {
    let program = folder.join("protoc");
    let text = format!(
        "#!/bin/sh\necho \"$@\" > {}/arguments\nwhile [ \"$1\" != -o ]; do shift; done\nout=$2\n{lines}\n",
        folder.display()
    );
    fs::write(&program, text).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    program
}

fn compile(folder: &Path, protoc: &Path) -> Result<String, Error> {
    let builder = erpc_build::configure()
        .use_protoc()
        .prost(|prost| {
            prost.protoc_executable(protoc);
        })
        .emit_rerun_if_changed(false)
        .out_dir(folder.join("out"));
    // The file name is relative to an include folder; `protoc` allows this.
    builder.compile_protos(&["test.proto"], &[folder])?;
    Ok(fs::read_to_string(folder.join("out/p.rs")).unwrap())
}

fn assert_generated(folder: &Path, generated: &str) {
    assert!(generated.contains("/// A message."), "{generated}");
    let served = "routes.unary_async(options.method(0, methods::A), service, S::a)?;";
    assert!(generated.contains(served), "{generated}");
    let imported = fs::read_to_string(folder.join("out/i.rs")).unwrap();
    assert!(imported.contains("pub struct Thing") && !imported.contains("elsewhere"), "{imported}");
    assert!(!folder.join("out/erpc.rs").exists(), "no code is generated for the options");
}

#[test]
fn options_are_read_from_what_protoc_writes() {
    let folder = folder("options");
    let set = folder.join("set.bin");
    erpc_build::configure()
        .emit_rerun_if_changed(false)
        .out_dir(&folder)
        .file_descriptor_set_path(&set)
        .compile_protos(&[folder.join("test.proto")], &[&folder])
        .unwrap();
    let protoc = stand_in(&folder, &format!("cp {} \"$out\"", set.display()));
    let generated = compile(&folder, &protoc).unwrap();
    assert_generated(&folder, &generated);
    let arguments = fs::read_to_string(folder.join("arguments")).unwrap();
    let own = folder.join("out/erpc-build");
    assert!(arguments.contains(&format!("-I {}", own.display())), "{arguments}");
    assert!(own.join("erpc/options.proto").exists(), "protoc needs the file for the import");
}

#[test]
fn a_descriptor_set_generates_the_same_code_as_the_files() {
    let folder = folder("set");
    let set = folder.join("set.bin");
    let builder = || erpc_build::configure().emit_rerun_if_changed(false);
    builder()
        .out_dir(&folder)
        .file_descriptor_set_path(&set)
        .compile_protos(&[folder.join("test.proto")], &[&folder])
        .unwrap();
    let out = folder.join("out");
    builder().out_dir(&out).compile_descriptor_set(&fs::read(set).unwrap()).unwrap();
    let [file, again] =
        [&folder, &out].map(|folder| fs::read_to_string(folder.join("p.rs")).unwrap());
    assert_eq!(file, again);
    let error = builder().out_dir(&out).compile_descriptor_set(b"no set").unwrap_err();
    assert!(matches!(error, Error::Proto(_)), "{error}");
}

#[test]
fn an_error_contains_the_message_of_protoc() {
    let folder = folder("complaint");
    let protoc = stand_in(&folder, "echo 'test.proto:1:1: no good' >&2\nexit 1");
    let error = compile(&folder, &protoc).unwrap_err();
    assert!(
        matches!(&error, Error::Proto(text) if text.contains("test.proto:1:1: no good")),
        "{error}"
    );
}

#[test]
fn an_edition_in_the_output_of_protoc_is_refused() {
    let folder = folder("editions");
    let set = folder.join("set.bin");
    // A set of one file with two fields: its name (1) and its syntax (12).
    fs::write(&set, b"\x0a\x16\x0a\x0atest.proto\x62\x08editions").unwrap();
    let protoc = stand_in(&folder, &format!("cp {} \"$out\"", set.display()));
    let error = compile(&folder, &protoc).unwrap_err();
    assert!(matches!(&error, Error::Edition { file, .. } if file == "test.proto"), "{error}");
}

#[test]
fn a_missing_protoc_is_reported() {
    let folder = folder("missing");
    let error = compile(&folder, &folder.join("gone")).unwrap_err();
    assert!(error.to_string().contains("Could not find `protoc`"), "{error}");
}

#[test]
fn a_real_protoc_generates_the_same_code() {
    let Some(protoc) = std::env::var_os("PROTOC") else {
        println!("SKIPPED: PROTOC is not set");
        return;
    };
    let folder = folder("real");
    let generated = compile(&folder, Path::new(&protoc)).unwrap();
    assert_generated(&folder, &generated);
}
