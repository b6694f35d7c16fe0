//! Settings, and the way from files to generated code.

use std::collections::HashSet;
use std::env;
use std::path::{Path, PathBuf};
use std::time::Duration;

use prost_types::FileDescriptorSet;
use quote::ToTokens;

use crate::attributes::Attributes;
use crate::generator::{Generator, Parts};
use crate::layout::Layout;
use crate::schema::{Change, Mode, Schema};
use crate::source::{self, Source};
use crate::types::Types;
use crate::{Error, check, comments, finish, options};

/// Settings of a compilation, with their defaults.
///
/// ```no_run
/// // build.rs
/// fn main() -> Result<(), erpc_build::Error> {
///     erpc_build::configure()
///         .build_server(false)
///         .bytes(".kv.v1")
///         .compile_protos(&["proto/kv.proto"], &["proto"])
/// }
/// ```
pub fn configure() -> Builder {
    let builder = Builder {
        prost: prost_build::Config::new(),
        parts: Parts { client: true, server: true },
        erpc_path: String::new(),
        well_known_types: false,
        protoc: false,
        changes: Vec::new(),
        traits: Attributes::new("trait_attribute"),
        clients: Attributes::new("client_attribute"),
        messages: Attributes::new("message_attribute"),
        externs: Vec::new(),
        bytes: Vec::new(),
        btree_maps: Vec::new(),
        out_dir: None,
        descriptor_set_path: None,
        rerun_if_changed: env::var_os("CARGO").is_some(),
    };
    builder.erpc_path("::erpc")
}

/// Settings of a compilation; made by [`configure`], spent by [`Builder::compile_protos`].
///
/// Paths of messages, fields and services are matched as in `prost_build`: `.kv.v1` is all of a package,
/// `.kv.v1.PutRequest.value` a field, `PutRequest` a message in any package, `.` everything.
#[must_use]
pub struct Builder {
    prost: prost_build::Config,
    parts: Parts,
    erpc_path: String,
    well_known_types: bool,
    protoc: bool,
    /// By the methods' full names.
    changes: Vec<(String, Change)>,
    traits: Attributes,
    clients: Attributes,
    /// Of messages, for those that are ours; `prost` has them as well.
    messages: Attributes,
    /// Paths in `.proto` files and in Rust.
    externs: Vec<(String, String)>,
    bytes: Vec<String>,
    btree_maps: Vec<String>,
    out_dir: Option<PathBuf>,
    descriptor_set_path: Option<PathBuf>,
    rerun_if_changed: bool,
}

impl Builder {
    /// Whether clients are generated. Default: yes.
    pub fn build_client(mut self, yes: bool) -> Self {
        self.parts.client = yes;
        self
    }

    /// Whether what servers need is generated: traits, modes and registration. Default: yes.
    pub fn build_server(mut self, yes: bool) -> Self {
        self.parts.server = yes;
        self
    }

    /// Runs a method's handlers in `mode`, whatever its `.proto` file says. The method is named in full:
    /// `"kv.v1.Kv/Scan"`. The last word counts.
    ///
    /// Between dispatch and workers, `#[erpc(worker(Scan))]` in front of an implementation decides as
    /// well. [`Mode::Async`] changes the trait, so it is said here or in the `.proto` file.
    pub fn mode(self, method: impl Into<String>, mode: Mode) -> Self {
        self.change(method, Change::Mode(mode))
    }

    /// Ends a method's calls after that time unless their caller says otherwise, whatever its `.proto` file
    /// says; zero for never. Counts in microseconds, rounded up. Clients go by it.
    pub fn deadline(self, method: impl Into<String>, deadline: Duration) -> Self {
        self.change(method, Change::Deadline(deadline))
    }

    /// Declares that a method's calls may be repeated, or that they may not, whatever its `.proto` file says.
    /// Clients go by it when they retry.
    pub fn idempotent(self, method: impl Into<String>, idempotent: bool) -> Self {
        self.change(method, Change::Idempotent(idempotent))
    }

    /// Most bytes of a method's encoded requests, whatever its `.proto` file says; 0 for what sessions allow.
    /// Clients send no larger ones, servers refuse them.
    pub fn max_request(self, method: impl Into<String>, bytes: u32) -> Self {
        self.change(method, Change::MaxRequest(bytes))
    }

    /// Most bytes of a method's encoded responses, whatever its `.proto` file says; 0 for what sessions
    /// allow. Servers send no larger ones, clients refuse them.
    pub fn max_response(self, method: impl Into<String>, bytes: u32) -> Self {
        self.change(method, Change::MaxResponse(bytes))
    }

    fn change(mut self, method: impl Into<String>, change: Change) -> Self {
        self.changes.push((method.into(), change));
        self
    }

    /// Adds an attribute to the traits of the services that `path` matches, in front of `pub trait`.
    pub fn trait_attribute(
        mut self,
        path: impl Into<String>,
        attribute: impl Into<String>,
    ) -> Self {
        self.traits.add(path.into(), attribute.into());
        self
    }

    /// Adds an attribute to the clients of the services that `path` matches, in front of `pub struct`.
    pub fn client_attribute(
        mut self,
        path: impl Into<String>,
        attribute: impl Into<String>,
    ) -> Self {
        self.clients.add(path.into(), attribute.into());
        self
    }

    /// The folder for the generated files. Default: `OUT_DIR`, where `erpc::include_proto!` looks.
    pub fn out_dir(mut self, folder: impl Into<PathBuf>) -> Self {
        let folder = folder.into();
        self.prost.out_dir(&folder);
        self.out_dir = Some(folder);
        self
    }

    /// Adds an attribute, such as `#[derive(Eq)]`, to the messages and enums that `path` matches.
    pub fn type_attribute(mut self, path: impl AsRef<str>, attribute: impl AsRef<str>) -> Self {
        self.messages.add(path.as_ref().to_owned(), attribute.as_ref().to_owned());
        self.prost.type_attribute(path, attribute);
        self
    }

    /// Adds an attribute to the messages that `path` matches.
    pub fn message_attribute(mut self, path: impl AsRef<str>, attribute: impl AsRef<str>) -> Self {
        self.messages.add(path.as_ref().to_owned(), attribute.as_ref().to_owned());
        self.prost.message_attribute(path, attribute);
        self
    }

    /// Adds an attribute to the enums that `path` matches.
    pub fn enum_attribute(mut self, path: impl AsRef<str>, attribute: impl AsRef<str>) -> Self {
        self.prost.enum_attribute(path, attribute);
        self
    }

    /// Adds an attribute to the fields that `path` matches.
    pub fn field_attribute(mut self, path: impl AsRef<str>, attribute: impl AsRef<str>) -> Self {
        self.prost.field_attribute(path, attribute);
        self
    }

    /// Uses types that exist elsewhere: `.google.type` as `::google_types`. The path is an absolute one:
    /// it starts with a crate's name, with `::` or with `crate::`.
    pub fn extern_path(
        mut self,
        proto_path: impl Into<String>,
        rust_path: impl Into<String>,
    ) -> Self {
        self.externs.push((proto_path.into(), rust_path.into()));
        self
    }

    /// Makes the `bytes` fields that `path` matches `prost::bytes::Bytes` instead of `Vec<u8>`, which are
    /// cloned without a copy. May be said for several paths.
    pub fn bytes(mut self, path: impl AsRef<str>) -> Self {
        self.bytes.push(path.as_ref().to_owned());
        self
    }

    /// Makes the `map` fields that `path` matches `BTreeMap` instead of `HashMap`.
    pub fn btree_map(mut self, path: impl AsRef<str>) -> Self {
        self.btree_maps.push(path.as_ref().to_owned());
        self
    }

    /// Generates `google.protobuf` too, instead of using `erpc::prost_types`.
    pub fn compile_well_known_types(mut self) -> Self {
        self.well_known_types = true;
        self.prost.compile_well_known_types();
        self
    }

    /// Also writes a file of that name, relative to the output folder, that includes all packages in
    /// modules of their names.
    pub fn include_file(mut self, name: impl Into<PathBuf>) -> Self {
        self.prost.include_file(name);
        self
    }

    /// Also writes the encoded `FileDescriptorSet`, as `protoc --descriptor_set_out` does.
    pub fn file_descriptor_set_path(mut self, path: impl Into<PathBuf>) -> Self {
        self.descriptor_set_path = Some(path.into());
        self
    }

    /// The path of the `erpc` crate in generated code, for crates that rename or re-export it. Default:
    /// `::erpc`.
    pub fn erpc_path(mut self, path: impl Into<String>) -> Self {
        self.erpc_path = path.into();
        self.prost.prost_types_path(format!("{}::prost_types", self.erpc_path));
        self
    }

    /// Whether `cargo::rerun-if-changed` is printed for each file that was read. Default: if cargo runs.
    pub fn emit_rerun_if_changed(mut self, yes: bool) -> Self {
        self.rerun_if_changed = yes;
        self
    }

    /// Any other setting that `prost_build` has. The service generator is replaced.
    pub fn prost(mut self, change: impl FnOnce(&mut prost_build::Config)) -> Self {
        change(&mut self.prost);
        self
    }

    /// Has the files read by an installed `protoc` rather than by `protox`, which is part of this crate.
    /// For what only Google's own compiler does. It is looked up in `PATH`, or where the environment's
    /// `PROTOC` or [`prost_build::Config::protoc_executable`] says.
    pub fn use_protoc(mut self) -> Self {
        self.protoc = true;
        self
    }

    /// Compiles `.proto` files; see [`compile_protos`](crate::compile_protos).
    ///
    /// # Errors
    /// [`Error`], whose `Debug` is as readable as its `Display`.
    pub fn compile_protos(
        mut self,
        protos: &[impl AsRef<Path>],
        includes: &[impl AsRef<Path>],
    ) -> Result<(), Error> {
        let protos: Vec<_> = protos.iter().map(|path| path.as_ref().to_owned()).collect();
        let includes: Vec<_> = includes.iter().map(|path| path.as_ref().to_owned()).collect();
        let mut paths: HashSet<_> = protos.iter().cloned().collect();
        let source = if self.protoc {
            let scratch = self.out_folder()?;
            source::read_with_protoc(&mut self.prost, &protos, &includes, &scratch, &mut paths)
        } else {
            source::read(&protos, &includes, &mut paths)
        };
        if self.rerun_if_changed {
            // Also after an error: the build script is run again once the file is mended.
            for path in paths {
                println!("cargo::rerun-if-changed={}", path.display());
            }
        }
        self.generate(&source?)
    }

    /// Generates code for what another compiler made of `.proto` files, with all their services: an
    /// encoded `FileDescriptorSet` with imports, such as `protoc --include_imports --include_source_info
    /// --descriptor_set_out` writes, which makes documentation of comments.
    ///
    /// Not a `prost_types::FileDescriptorSet`, because that has lost the options of erpc.
    ///
    /// # Errors
    /// [`Error`], whose `Debug` is as readable as its `Display`.
    pub fn compile_descriptor_set(self, encoded: &[u8]) -> Result<(), Error> {
        let source = source::decode_set(encoded)?;
        self.generate(&source)
    }

    fn generate(mut self, source: &Source) -> Result<(), Error> {
        let out_dir = self.out_folder()?;
        if let Some(path) = &self.descriptor_set_path {
            source::write(path, &source.pool.encode_to_vec())?;
        }
        let mut files = files(source);
        if !self.parts.client && !self.parts.server {
            // Of a package that has services and nothing else, `prost_build` expects that code is made.
            files.file.iter_mut().for_each(|file| file.service.clear());
        }
        let schema = Schema::new(source, &self.changes)?;
        let types = Types::new(self.externs.clone());
        let views = schema.messages(&source.pool).filter(|(message, layout)| {
            *layout == Layout::View && !types.is_extern(message.full_name())
        });
        let views: Vec<_> = views.map(|(message, _)| message).collect();
        let type_names = check::check(&files, &views)?;
        // `prost` leaves out what it is told to find elsewhere, and these are not its own.
        for (message, layout) in schema.messages(&source.pool) {
            if layout == Layout::Fixed && !types.is_extern(message.full_name()) {
                let path = format!(".{}", message.full_name());
                self.prost.extern_path(path, message.name());
            }
        }
        for (proto, rust) in self.externs {
            self.prost.extern_path(proto, rust);
        }
        let generator = Generator {
            erpc: path_tokens("erpc_path", &self.erpc_path)?,
            parts: self.parts,
            traits: self.traits.parse()?,
            clients: self.clients.parse()?,
            messages: self.messages.parse()?,
            well_known_types: self.well_known_types,
            type_names,
            types,
            schema,
            pool: source.pool.clone(),
            files: Generator::order(&files),
        };
        // Each would forget what was set before, so all at once; and not if somebody has set theirs.
        if !self.bytes.is_empty() {
            self.prost.bytes(self.bytes);
        }
        if !self.btree_maps.is_empty() {
            self.prost.btree_map(self.btree_maps);
        }
        self.prost.service_generator(Box::new(generator));
        let names: HashSet<_> = files.file.iter().map(|file| file_name(file.package())).collect();
        self.prost.compile_fds(files).map_err(Error::Generate)?;
        names.iter().try_for_each(|name| finish::finish(&out_dir.join(name), &self.erpc_path))
    }

    /// The output folder.
    fn out_folder(&self) -> Result<PathBuf, Error> {
        let out_dir = self.out_dir.clone().or_else(|| env::var_os("OUT_DIR").map(PathBuf::from));
        out_dir.ok_or_else(|| {
            Error::Generate(std::io::Error::other(
                "there is no OUT_DIR outside of build scripts; set out_dir(..)",
            ))
        })
    }
}

/// What `prost` is to generate: all files but our own, services only of those that were asked for.
fn files(source: &Source) -> FileDescriptorSet {
    const DESCRIPTOR: &str = "google/protobuf/descriptor.proto";
    let mut file: Vec<_> = source.pool.file_descriptor_protos().cloned().collect();
    file.retain(|file| file.name() != options::FILE_NAME);
    if !file.iter().any(|file| file.dependency.iter().any(|name| name == DESCRIPTOR)) {
        file.retain(|file| file.name() != DESCRIPTOR || source.named.contains(DESCRIPTOR));
    }
    for file in file.iter_mut().filter(|file| !source.named.contains(file.name())) {
        file.service.clear();
    }
    file.iter_mut().for_each(comments::complete);
    FileDescriptorSet { file }
}

/// The file that `prost_build` writes for a package, in the output folder.
fn file_name(package: &str) -> String {
    prost_build::Module::from_protobuf_package_name(package).to_file_name_or("_")
}

fn path_tokens(name: &'static str, value: &str) -> Result<proc_macro2::TokenStream, Error> {
    let path: syn::Path =
        syn::parse_str(value).map_err(|_| Error::Setting { name, value: value.to_owned() })?;
    Ok(path.into_token_stream())
}
