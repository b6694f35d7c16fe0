//! For each system, finds its `.proto` files, compiles them with `erpc_build`, and writes a server
//! and a client that together use all generated functions.

mod harness;
mod modes;
mod names;
mod packages;
mod systems;

use std::env;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use prost_reflect::{DescriptorPool, ServiceDescriptor};

use names::Names;
use packages::Packages;
use systems::{SYSTEMS, System};

/// Name of the file with the encoded `FileDescriptorSet` of a system.
const DESCRIPTORS: &str = "descriptors.bin";

fn main() {
    println!("cargo::rerun-if-changed=Cargo.lock");
    println!("cargo::rerun-if-changed=proto");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let packages = Packages::locate();
    let build = |system: &System| {
        let failed = |error: Box<dyn Error>| format!("{}: {error}", system.name);
        build(system, &packages, &out.join(system.name)).map_err(failed).err()
    };
    let failures: Vec<String> = SYSTEMS.iter().filter_map(build).collect();
    assert!(failures.is_empty(), "{} systems fail:\n\n{}", failures.len(), failures.join("\n\n"));
}

fn build(system: &System, packages: &Packages, out: &Path) -> Result<(), Box<dyn Error>> {
    fs::create_dir_all(out)?;
    let (files, includes) = sources(system, packages)?;
    // The first compilation finds the methods, because `Builder::mode` needs their names.
    let builder = configured(system, out).build_client(false).build_server(false);
    builder.compile_protos(&files, &includes)?;
    let pool = DescriptorPool::decode(&fs::read(out.join(DESCRIPTORS))?[..])?;
    let is_ours =
        |service: &ServiceDescriptor| files.iter().any(|file| file == service.parent_file().name());
    let services: Vec<_> = pool.services().filter(is_ours).collect();
    let mut builder = configured(system, out);
    for method in services.iter().flat_map(ServiceDescriptor::methods) {
        if let Some(mode) = modes::mode(&method) {
            builder = builder.mode(names::full_name(&method), mode);
        }
    }
    builder.compile_protos(&files, &includes)?;
    let names = Names { well_known: system.well_known };
    Ok(fs::write(out.join("harness.rs"), harness::harness(&services, &files, names))?)
}

fn configured(system: &System, out: &Path) -> erpc_build::Builder {
    let mut builder = erpc_build::configure()
        .out_dir(out)
        .include_file("mod.rs")
        .file_descriptor_set_path(out.join(DESCRIPTORS))
        .emit_rerun_if_changed(false);
    if system.bytes {
        builder = builder.bytes(".").btree_map(".");
    }
    if system.well_known {
        builder = builder.compile_well_known_types();
    }
    builder
}

/// The files to compile, and the folders with these files and their imports.
fn sources(
    system: &System,
    packages: &Packages,
) -> Result<(Vec<String>, Vec<PathBuf>), Box<dyn Error>> {
    let folder = |(package, below): &(&str, &str)| packages.folder(package, below);
    let mut includes: Vec<PathBuf> = system.roots.iter().map(folder).collect();
    let mut files = Vec::new();
    for root in &includes[..system.own] {
        collect(root, root, &mut files)?;
    }
    let is_of = |file: &String, beginnings: &[&str]| {
        beginnings.iter().any(|beginning| file.starts_with(beginning))
    };
    files.retain(|file| is_of(file, system.files) && !is_of(file, system.except));
    files.sort();
    if let Some(ours) = system.ours {
        files.push(ours.to_owned());
        includes.push("proto".into());
    }
    Ok((files, includes))
}

/// Adds the `.proto` files below `folder`, with their paths relative to `root`.
fn collect(root: &Path, folder: &Path, files: &mut Vec<String>) -> Result<(), Box<dyn Error>> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(root, &path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "proto") {
            files.push(path.strip_prefix(root)?.to_string_lossy().into_owned());
        }
    }
    Ok(())
}
