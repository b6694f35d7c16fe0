//! Settings, and the way from files to generated code.

use std::collections::HashSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use prost_types::FileDescriptorSet;
use protox::Compiler;
use quote::ToTokens;

use crate::generator::{Generator, Parts};
use crate::{Error, check};

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
    Builder {
        prost: prost_build::Config::new(),
        parts: Parts { client: true, server: true },
        erpc_path: "::erpc".to_owned(),
        well_known_types: false,
        descriptor_set_path: None,
        rerun_if_changed: env::var_os("CARGO").is_some(),
    }
}

/// Settings of a compilation; made by [`configure`], spent by [`Builder::compile_protos`].
///
/// Paths of messages and fields are matched as in `prost_build`: `.kv.v1` is all of a package,
/// `.kv.v1.PutRequest.value` a field, `PutRequest` a message in any package, `.` everything.
#[must_use]
pub struct Builder {
    prost: prost_build::Config,
    parts: Parts,
    erpc_path: String,
    well_known_types: bool,
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

    /// The folder for the generated files. Default: `OUT_DIR`, where `erpc::include_proto!` looks.
    pub fn out_dir(mut self, folder: impl Into<PathBuf>) -> Self {
        self.prost.out_dir(folder);
        self
    }

    /// Adds an attribute, such as `#[derive(Eq)]`, to the messages and enums that `path` matches.
    pub fn type_attribute(mut self, path: impl AsRef<str>, attribute: impl AsRef<str>) -> Self {
        self.prost.type_attribute(path, attribute);
        self
    }

    /// Adds an attribute to the messages that `path` matches.
    pub fn message_attribute(mut self, path: impl AsRef<str>, attribute: impl AsRef<str>) -> Self {
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

    /// Uses types that exist elsewhere: `.google.type` as `::google_types`.
    pub fn extern_path(
        mut self,
        proto_path: impl Into<String>,
        rust_path: impl Into<String>,
    ) -> Self {
        self.prost.extern_path(proto_path, rust_path);
        self
    }

    /// Makes the `bytes` fields that `path` matches `bytes::Bytes` instead of `Vec<u8>`, which are cloned
    /// without a copy. The crate then depends on `bytes`.
    pub fn bytes(mut self, path: impl AsRef<str>) -> Self {
        self.prost.bytes([path]);
        self
    }

    /// Makes the `map` fields that `path` matches `BTreeMap` instead of `HashMap`.
    pub fn btree_map(mut self, path: impl AsRef<str>) -> Self {
        self.prost.btree_map([path]);
        self
    }

    /// Generates `google.protobuf` too, instead of using the crate `prost_types`.
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

    /// Compiles `.proto` files; see [`compile_protos`](crate::compile_protos).
    ///
    /// # Errors
    /// [`Error`], whose `Debug` is as readable as its `Display`.
    pub fn compile_protos(
        self,
        protos: &[impl AsRef<Path>],
        includes: &[impl AsRef<Path>],
    ) -> Result<(), Error> {
        let mut compiler = Compiler::new(includes).map_err(|error| proto(&error))?;
        compiler.include_imports(true).include_source_info(true);
        let opened = compiler.open_files(protos).map(|_| ());
        if self.rerun_if_changed {
            // Also after an error: the build script is run again once the file is mended.
            let named = protos.iter().map(|path| path.as_ref().to_owned());
            let imported = compiler.files().filter_map(|file| file.path().map(Path::to_owned));
            for path in named.chain(imported).collect::<HashSet<_>>() {
                println!("cargo::rerun-if-changed={}", path.display());
            }
        }
        opened.map_err(|error| proto(&error))?;
        let mut files = compiler.file_descriptor_set();
        if let Some(path) = &self.descriptor_set_path {
            write(path, &compiler.encode_file_descriptor_set())?;
        }
        let named: HashSet<_> = compiler
            .files()
            .filter(|file| !file.is_import())
            .map(|file| file.name().to_owned())
            .collect();
        for file in files.file.iter_mut().filter(|file| !named.contains(file.name())) {
            file.service.clear();
        }
        self.compile_fds(files)
    }

    /// Generates code for what another compiler made of `.proto` files, with all their services.
    ///
    /// Comments become documentation if the set has source information.
    ///
    /// # Errors
    /// [`Error`], whose `Debug` is as readable as its `Display`.
    pub fn compile_fds(mut self, files: FileDescriptorSet) -> Result<(), Error> {
        check::check(&files)?;
        let erpc = path_tokens("erpc_path", &self.erpc_path)?;
        let generator =
            Generator::new(erpc, self.parts, self.well_known_types, check::type_names(&files));
        self.prost.service_generator(Box::new(generator));
        self.prost.compile_fds(files).map_err(Error::Generate)
    }
}

fn proto(error: &protox::Error) -> Error {
    // Its Debug has the line and column, its Display does not.
    Error::Proto(format!("{error:?}"))
}

fn path_tokens(name: &'static str, value: &str) -> Result<proc_macro2::TokenStream, Error> {
    let path: syn::Path =
        syn::parse_str(value).map_err(|_| Error::Setting { name, value: value.to_owned() })?;
    Ok(path.into_token_stream())
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    fs::write(path, bytes).map_err(|source| Error::Write { path: path.to_owned(), source })
}
