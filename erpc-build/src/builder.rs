//! The settings of a build, and the steps from files to generated code.

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

/// Returns the default settings of a compilation.
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
        default_mode: Mode::Dispatch,
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

/// Settings of a compilation. [`configure`] creates them, [`Builder::compile_protos`] consumes
/// them.
///
/// Paths of messages, fields and services match as in `prost_build`: `.kv.v1` is a whole package,
/// `.kv.v1.PutRequest.value` a field, `PutRequest` a message in any package, `.` everything.
#[must_use]
pub struct Builder {
    prost: prost_build::Config,
    parts: Parts,
    erpc_path: String,
    well_known_types: bool,
    protoc: bool,
    default_mode: Mode,
    /// Full name of a method, and the change.
    changes: Vec<(String, Change)>,
    traits: Attributes,
    clients: Attributes,
    /// Attributes of messages with a fixed layout, which this crate generates. `prost` has the same
    /// attributes for all other messages.
    messages: Attributes,
    /// Path in `.proto` files, and path in Rust.
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

    /// Whether the server's half is generated: traits, modes and registration. Default: yes.
    pub fn build_server(mut self, yes: bool) -> Self {
        self.parts.server = yes;
        self
    }

    /// Runs the handlers of all methods in `mode` whose mode is set neither in the `.proto` file
    /// nor by [`Builder::mode`]. Default: [`Mode::Dispatch`]. For a service whose handlers are all
    /// `async fn`s, such as one that moves here from tonic, set [`Mode::Tokio`] or [`Mode::Async`].
    ///
    /// Methods that stream are always asynchronous: [`Mode::Tokio`] if that is the default mode,
    /// and otherwise [`Mode::Async`].
    pub fn default_mode(mut self, mode: Mode) -> Self {
        self.default_mode = mode;
        self
    }

    /// Runs a method's handlers in `mode`; overrides the `.proto` file. `method` is the full name:
    /// `"kv.v1.Kv/Scan"`. The last call for a method counts.
    ///
    /// A server can still choose between dispatch and workers with `#[erpc(worker(Scan))]` on its
    /// implementation. [`Mode::Async`] and [`Mode::Tokio`] change the trait, so they can be set
    /// only here or in the `.proto` file.
    pub fn mode(self, method: impl Into<String>, mode: Mode) -> Self {
        self.change(method, Change::Mode(mode))
    }

    /// The default deadline of a method's calls, which a caller can override; overrides the
    /// `.proto` file. Zero: no deadline. Rounded up to microseconds. The generated client applies
    /// it to its calls.
    pub fn deadline(self, method: impl Into<String>, deadline: Duration) -> Self {
        self.change(method, Change::Deadline(deadline))
    }

    /// Declares whether a method's calls may be retried; overrides the `.proto` file. Clients read
    /// this when they decide about a retry.
    pub fn idempotent(self, method: impl Into<String>, idempotent: bool) -> Self {
        self.change(method, Change::Idempotent(idempotent))
    }

    /// Maximum size of a method's encoded requests, in bytes; overrides the `.proto` file. 0: the
    /// limit of the session. Clients do not send larger requests, and servers refuse them.
    pub fn max_request(self, method: impl Into<String>, bytes: u32) -> Self {
        self.change(method, Change::MaxRequest(bytes))
    }

    /// Maximum size of a method's encoded responses, in bytes; overrides the `.proto` file. 0: the
    /// limit of the session. Servers do not send larger responses, and clients refuse them.
    pub fn max_response(self, method: impl Into<String>, bytes: u32) -> Self {
        self.change(method, Change::MaxResponse(bytes))
    }

    fn change(mut self, method: impl Into<String>, change: Change) -> Self {
        self.changes.push((method.into(), change));
        self
    }

    /// Adds an attribute in front of `pub trait`, for the services that `path` matches.
    pub fn trait_attribute(
        mut self,
        path: impl Into<String>,
        attribute: impl Into<String>,
    ) -> Self {
        self.traits.add(path.into(), attribute.into());
        self
    }

    /// Adds an attribute in front of the client's `pub struct`, for the services that `path`
    /// matches.
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

    /// Adds an attribute, such as `#[derive(Eq)]`, to the messages, enums and oneofs that `path`
    /// matches.
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

    /// Adds an attribute to the enums and oneofs that `path` matches.
    pub fn enum_attribute(mut self, path: impl AsRef<str>, attribute: impl AsRef<str>) -> Self {
        self.prost.enum_attribute(path, attribute);
        self
    }

    /// Adds an attribute to the fields that `path` matches. Fields of messages with a fixed layout,
    /// and fields of views, get none.
    pub fn field_attribute(mut self, path: impl AsRef<str>, attribute: impl AsRef<str>) -> Self {
        self.prost.field_attribute(path, attribute);
        self
    }

    /// Uses existing types instead of generating them: for example `.google.type` as
    /// `::google_types`. `rust_path` is absolute: it starts with a crate's name, with `::` or with
    /// `crate::`.
    pub fn extern_path(
        mut self,
        proto_path: impl Into<String>,
        rust_path: impl Into<String>,
    ) -> Self {
        self.externs.push((proto_path.into(), rust_path.into()));
        self
    }

    /// Uses the type `prost::bytes::Bytes` instead of `Vec<u8>` for the `bytes` fields that `path`
    /// matches. Cloning `Bytes` copies no data. Can be called for several paths.
    pub fn bytes(mut self, path: impl AsRef<str>) -> Self {
        self.bytes.push(path.as_ref().to_owned());
        self
    }

    /// Uses the type `BTreeMap` instead of `HashMap` for the `map` fields that `path` matches. Can
    /// be called for several paths.
    pub fn btree_map(mut self, path: impl AsRef<str>) -> Self {
        self.btree_maps.push(path.as_ref().to_owned());
        self
    }

    /// Generates the package `google.protobuf`, instead of using `erpc::prost_types`.
    pub fn compile_well_known_types(mut self) -> Self {
        self.well_known_types = true;
        self.prost.compile_well_known_types();
        self
    }

    /// Also writes the file `name`, relative to the output folder. It includes all packages, each
    /// in a module with the package's name.
    pub fn include_file(mut self, name: impl Into<PathBuf>) -> Self {
        self.prost.include_file(name);
        self
    }

    /// Also writes the encoded `FileDescriptorSet`, as `protoc --descriptor_set_out` does.
    pub fn file_descriptor_set_path(mut self, path: impl Into<PathBuf>) -> Self {
        self.descriptor_set_path = Some(path.into());
        self
    }

    /// The path of the `erpc` crate in generated code, for crates that rename or re-export it.
    /// Default: `::erpc`.
    pub fn erpc_path(mut self, path: impl Into<String>) -> Self {
        self.erpc_path = path.into();
        self.prost.prost_types_path(format!("{}::prost_types", self.erpc_path));
        // The derives of `prost` then call the functions of erpc for the fields of messages.
        self.prost.prost_path(format!("{}::protobuf", self.erpc_path));
        self
    }

    /// Whether `cargo::rerun-if-changed` is printed for each file that was read. Default: yes if
    /// the environment variable `CARGO` is set.
    pub fn emit_rerun_if_changed(mut self, yes: bool) -> Self {
        self.rerun_if_changed = yes;
        self
    }

    /// Changes any other setting of `prost_build`. A service generator set here has no effect: erpc
    /// sets its own.
    pub fn prost(mut self, change: impl FnOnce(&mut prost_build::Config)) -> Self {
        change(&mut self.prost);
        self
    }

    /// Reads the files with an installed `protoc` instead of `protox`, which is part of this crate.
    /// Use it for features that only Google's own compiler supports. `protoc` is found in `PATH`,
    /// or at the path in the environment variable `PROTOC` or in
    /// [`prost_build::Config::protoc_executable`].
    pub fn use_protoc(mut self) -> Self {
        self.protoc = true;
        self
    }

    /// Compiles `.proto` files; see [`compile_protos`](crate::compile_protos).
    ///
    /// # Errors
    /// [`Error`]. Its `Debug` is the same text as its `Display`.
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
            // Paths are printed after an error as well, so that cargo runs the build script again
            // when the file changes.
            for path in paths {
                println!("cargo::rerun-if-changed={}", path.display());
            }
        }
        self.generate(&source?)
    }

    /// Generates code for all messages and all services of `.proto` files that another compiler has
    /// read. `encoded` is an encoded `FileDescriptorSet` with imports, such as `protoc
    /// --include_imports --include_source_info --descriptor_set_out` writes.
    /// `--include_source_info` keeps the comments, which become documentation.
    ///
    /// The parameter is not a `prost_types::FileDescriptorSet`, because that type drops the options
    /// of erpc.
    ///
    /// # Errors
    /// [`Error`]. Its `Debug` is the same text as its `Display`.
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
            // Services are removed here, not skipped in the generator: `prost_build` panics if a
            // package has services but no generated code.
            files.file.iter_mut().for_each(|file| file.service.clear());
        }
        let schema = Schema::new(source, self.default_mode, &self.changes)?;
        let types = Types::new(self.externs.clone());
        let views = schema.messages(&source.pool).filter(|(message, layout)| {
            *layout == Layout::View && !types.is_extern(message.full_name())
        });
        let views: Vec<_> = views.map(|(message, _)| message).collect();
        let type_names = check::check(&files, &views)?;
        // This crate generates the messages with a fixed layout. An extern path keeps `prost` from
        // generating them as well.
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
        // Each call of `Config::bytes` or `Config::btree_map` replaces the earlier paths, so one
        // call sets all paths. Without paths there is no call, so that paths set through
        // `Builder::prost` remain.
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

    fn out_folder(&self) -> Result<PathBuf, Error> {
        let out_dir = self.out_dir.clone().or_else(|| env::var_os("OUT_DIR").map(PathBuf::from));
        out_dir.ok_or_else(|| {
            Error::Generate(std::io::Error::other(
                "`OUT_DIR` is not set (cargo sets it only for build scripts); call `Builder::out_dir(..)`",
            ))
        })
    }
}

/// The input of `prost`: all files except `erpc/options.proto`. `descriptor.proto` is left out as
/// well if only `erpc/options.proto` imports it and the build script does not list it. Only files
/// that the build script lists (`Source::named`) keep their services.
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

/// The name of the file that `prost_build` writes for a package, in the output folder.
fn file_name(package: &str) -> String {
    prost_build::Module::from_protobuf_package_name(package).to_file_name_or("_")
}

fn path_tokens(name: &'static str, value: &str) -> Result<proc_macro2::TokenStream, Error> {
    let path: syn::Path =
        syn::parse_str(value).map_err(|_| Error::Setting { name, value: value.to_owned() })?;
    Ok(path.into_token_stream())
}
