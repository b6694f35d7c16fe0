//! Settings whose effect is not visible in the golden files.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use erpc_build::{Builder, Mode};

fn protos() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/proto")
}

/// Compiles and returns the output folder.
fn compile(case: &str, builder: Builder, proto: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("settings").join(case);
    fs::create_dir_all(&folder).unwrap();
    let builder = builder.emit_rerun_if_changed(false).out_dir(&folder);
    builder.compile_protos(&[protos().join(proto)], &[protos()]).unwrap();
    folder
}

#[test]
fn well_known_types_can_be_generated() {
    let builder = erpc_build::configure().compile_well_known_types();
    let folder = compile("known", builder, "known.proto");
    let own = fs::read_to_string(folder.join("google.protobuf.rs")).unwrap();
    assert!(own.contains("pub struct Timestamp"));
    let generated = fs::read_to_string(folder.join("known.v1.rs")).unwrap();
    assert!(
        generated.contains("super::super::super::super::google::protobuf::Timestamp,"),
        "{generated}"
    );
    // `shared.proto` imports the options of erpc, which import `descriptor.proto`. No other file
    // imports `descriptor.proto`, so it is not generated.
    assert!(!own.contains("pub struct FileDescriptorSet"));
}

#[test]
fn an_include_file_includes_all_packages() {
    let builder = erpc_build::configure().include_file("all.rs");
    let folder = compile("include", builder, "known.proto");
    let all = fs::read_to_string(folder.join("all.rs")).unwrap();
    assert!(
        all.contains("include!(\"known.v1.rs\");") && all.contains("include!(\"shared.v1.rs\");")
    );
    assert!(!all.contains("erpc"), "{all}");
}

#[test]
fn a_package_with_only_services_can_be_left_without_code() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("settings/neither");
    fs::create_dir_all(&folder).unwrap();
    let file = folder.join("neither.proto");
    let text = "syntax = \"proto3\";\npackage neither;\nimport \"google/protobuf/empty.proto\";\n\
                service S { rpc A(google.protobuf.Empty) returns (google.protobuf.Empty); }\n";
    fs::write(&file, text).unwrap();
    let builder = erpc_build::configure().build_client(false).build_server(false);
    let builder = builder.emit_rerun_if_changed(false).out_dir(&folder);
    builder.compile_protos(&[file], &[&folder]).unwrap();
    assert!(!folder.join("neither.rs").exists());
}

/// Include folders of users contain copies of Google's own files that are newer than the compiler.
#[test]
fn a_copy_of_googles_file_that_is_too_new_is_replaced_by_the_built_in_one() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("settings/new");
    fs::create_dir_all(folder.join("google/protobuf")).unwrap();
    let copy = "syntax = \"proto2\";\npackage google.protobuf;\nmessage FileDescriptorSet {\n\
                extensions 536000000 [declaration = { number: 536000000 }];\n}\n";
    fs::write(folder.join("google/protobuf/descriptor.proto"), copy).unwrap();
    let file = folder.join("new.proto");
    let text = "syntax = \"proto3\";\npackage new;\nimport \"google/protobuf/descriptor.proto\";\n\
                extend google.protobuf.FieldOptions { bool sweet = 50000; }\n\
                message M { bool cake = 1 [(sweet) = true]; }\n";
    fs::write(&file, text).unwrap();
    let builder = erpc_build::configure().emit_rerun_if_changed(false).out_dir(&folder);
    builder.compile_protos(&[file], &[&folder]).unwrap();
    assert!(fs::read_to_string(folder.join("new.rs")).unwrap().contains("pub cake: bool"));
}

#[test]
fn the_last_mode_counts() {
    let builder = erpc_build::configure()
        .mode("hello.v1.Greeter/Greet", Mode::Async)
        .mode("hello.v1.Greeter/Greet", Mode::Worker);
    let folder = compile("mode", builder, "hello.proto");
    let generated = fs::read_to_string(folder.join("hello.v1.rs")).unwrap();
    let served = "[(\"Greet\", Some(::erpc::service::Mode::Worker))]";
    assert!(generated.contains(served), "{generated}");
}

#[test]
fn the_default_mode_is_that_of_methods_without_a_mode() {
    let words = |mode, proto: &str, package: &str| {
        let builder = erpc_build::configure().default_mode(mode);
        let folder = compile(&format!("default-{mode:?}-{package}"), builder, proto);
        let generated = fs::read_to_string(folder.join(format!("{package}.rs"))).unwrap();
        generated.split_whitespace().collect::<String>()
    };
    let worker = words(Mode::Worker, "modes.proto", "modes.v1");
    let mode = "Some(::erpc::service::Mode::Worker)";
    let served =
        format!("(\"Get\",{mode}),(\"Compact\",{mode}),(\"Await\",None),(\"Fetch\",{mode})");
    assert!(worker.contains(&served), "{worker}");
    let asynchronous = words(Mode::Async, "modes.proto", "modes.v1");
    let served = format!("(\"Get\",None),(\"Compact\",{mode}),(\"Await\",None),(\"Fetch\",None)");
    assert!(asynchronous.contains(&served), "{asynchronous}");
    assert!(asynchronous.contains("routes.unary_async(options.method(0,"), "{asynchronous}");
    // Streams are asynchronous in any case.
    let streams = words(Mode::Worker, "streams.proto", "streams.v1");
    assert!(streams.contains("(\"Watch\",None)"), "{streams}");
    assert!(streams.contains("out:::erpc::Outgoing<super::FeedEntry>"), "{streams}");
}

/// A user who cannot edit a `.proto` file needs this.
#[test]
fn the_build_script_overrides_the_options_of_a_method() {
    let (get, compact) = ("modes.v1.Store/Get", "modes.v1.Store/Compact");
    let builder = erpc_build::configure()
        .deadline(get, Duration::ZERO)
        .idempotent(get, false)
        .max_request(get, 0)
        .max_response(get, 512)
        .deadline(compact, Duration::from_secs(1))
        .deadline(compact, Duration::from_nanos(1))
        .idempotent(compact, true)
        .max_request(compact, 1_000);
    let folder = compile("changes", builder, "modes.proto");
    let generated = fs::read_to_string(folder.join("modes.v1.rs")).unwrap();
    let words: String = generated.split_whitespace().collect();
    for declared in [
        "Method::new(\"modes.v1.Store/Get\").max_response(512);",
        "Method::new(\"modes.v1.Store/Compact\").idempotent()\
         .deadline(::std::time::Duration::from_micros(1)).max_request(1_000);",
    ] {
        assert!(words.contains(declared), "{generated}");
    }
}

/// [`cargo_learns_which_files_were_read`] runs itself in a child process, to read what it prints.
/// This environment variable names the child's output folder.
const CHILD: &str = "ERPC_BUILD_TEST_CHILD";

#[test]
fn cargo_learns_which_files_were_read() {
    if let Some(folder) = std::env::var_os(CHILD) {
        let builder = erpc_build::configure().emit_rerun_if_changed(true).out_dir(folder);
        builder.compile_protos(&[protos().join("known.proto")], &[protos()]).unwrap();
        return;
    }
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "cargo_learns_which_files_were_read", "--nocapture"])
        .env(CHILD, env!("CARGO_TARGET_TMPDIR"))
        .output()
        .unwrap();
    assert!(child.status.success());
    let printed = String::from_utf8(child.stdout).unwrap();
    let mut files: Vec<_> =
        printed.lines().filter_map(|line| line.strip_prefix("cargo::rerun-if-changed=")).collect();
    files.sort_unstable();
    let [known, shared] = ["known.proto", "shared.proto"].map(|name| protos().join(name));
    assert_eq!(files, [known.to_str().unwrap(), shared.to_str().unwrap()], "{printed}");
}

#[test]
fn a_file_of_edition_2023_is_read_as_proto3() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("settings/edition");
    fs::create_dir_all(&folder).unwrap();
    let imported = "edition = \"2023\";\npackage i;\noption features.field_presence = IMPLICIT;\n\
                    // A thing.\nmessage Thing {\n  // Its size.\n  int32 size = 1;\n}\n";
    fs::write(folder.join("imported.proto"), imported).unwrap();
    let file = folder.join("edition.proto");
    let text = "// A licence.\nedition = \"2023\";\npackage e;\nimport \"imported.proto\";\n\
                import \"erpc/options.proto\";\n\
                message M {\n  int32 set = 1;\n  i.Thing thing = 2;\n  repeated int32 all = 3 [deprecated = true];\n}\n\
                service S { rpc A(M) returns (i.Thing) { option (erpc.method).mode = WORKER; } }\n";
    fs::write(&file, text).unwrap();
    let builder = erpc_build::configure().emit_rerun_if_changed(false).out_dir(&folder);
    builder.compile_protos(&[file], &[&folder]).unwrap();
    let generated = fs::read_to_string(folder.join("e.rs")).unwrap();
    let words: String = generated.split_whitespace().collect();
    for part in [
        "#[prost(int32,optional,tag=\"1\")]pubset:::core::option::Option<i32>,",
        "pubthing:::core::option::Option<super::i::Thing>,",
        "#[deprecated]#[prost(int32,repeated,",
        "(\"A\",Some(::erpc::service::Mode::Worker))",
    ] {
        assert!(words.contains(part), "no {part} in {generated}");
    }
    let imported = fs::read_to_string(folder.join("i.rs")).unwrap();
    assert!(
        imported.contains("/// Its size.") && imported.contains("pub size: i32,"),
        "{imported}"
    );
}
