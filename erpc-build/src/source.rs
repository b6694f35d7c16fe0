//! From files to descriptors: by `protox`, by `protoc`, or as another compiler has left them.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use prost_types::FileDescriptorSet;
use protox::Compiler;
use protox::file::{
    ChainFileResolver, File, FileResolver, GoogleFileResolver, IncludeFileResolver,
};
use protox::prost_reflect::DescriptorPool;

use crate::{Error, options};

/// What was read.
pub(crate) struct Source {
    pub(crate) pool: DescriptorPool,
    /// The files that were asked for, rather than imported; their services are generated.
    pub(crate) named: HashSet<String>,
}

/// The files behind a [`Source`], for cargo to watch. Known also if reading failed.
pub(crate) type Paths = HashSet<PathBuf>;

/// Reads with `protox`.
pub(crate) fn read(
    protos: &[PathBuf],
    includes: &[PathBuf],
    paths: &mut Paths,
) -> Result<Source, Error> {
    let mut included = ChainFileResolver::new();
    for include in includes {
        included.add(IncludeFileResolver::new(include.clone()));
    }
    let mut resolver = ChainFileResolver::new();
    resolver.add(Included(included));
    resolver.add(GoogleFileResolver::new());
    resolver.add(OwnFiles);
    let mut compiler = Compiler::with_file_resolver(resolver);
    let opened = compiler.open_files(protos).map(|_| ());
    paths.extend(compiler.files().filter_map(|file| file.path().map(Path::to_owned)));
    opened.map_err(|error| proto_error(&error, includes))?;
    let files = compiler.files().filter(|file| !file.is_import());
    let named = files.map(|file| file.name().to_owned()).collect();
    Ok(Source { pool: compiler.descriptor_pool(), named })
}

/// Reads with `protoc`, which is found as `prost_build` finds it. `scratch` is a folder of our own.
pub(crate) fn read_with_protoc(
    protoc: &mut prost_build::Config,
    protos: &[PathBuf],
    includes: &[PathBuf],
    scratch: &Path,
    paths: &mut Paths,
) -> Result<Source, Error> {
    let own = scratch.join("erpc-build");
    let set = own.join("files.bin");
    write(&own.join(options::FILE_NAME), options::FILE.as_bytes())?;
    let with_own: Vec<_> = includes.iter().cloned().chain([own.clone()]).collect();
    let read = protoc
        .file_descriptor_set_path(&set)
        .load_fds(protos, &with_own)
        .map_err(|error| Error::Proto(error.to_string()))?;
    let found =
        |name: &str| includes.iter().map(|include| include.join(name)).find(|path| path.exists());
    let mut named = HashSet::new();
    for file in &read.file {
        let path = found(file.name());
        if path
            .as_ref()
            .is_some_and(|path| protos.iter().any(|proto| same_file(proto, path, includes)))
        {
            named.insert(file.name().to_owned());
        }
        paths.extend(path);
    }
    // Again, because `prost_types` keeps no options of others.
    let encoded = fs::read(&set).map_err(|source| Error::Read { path: set, source })?;
    Ok(Source { pool: decode(&encoded)?, named })
}

/// Takes an encoded `FileDescriptorSet`; every file counts as asked for.
pub(crate) fn decode_set(encoded: &[u8]) -> Result<Source, Error> {
    let pool = decode(encoded)?;
    let named = pool.files().map(|file| file.name().to_owned()).collect();
    Ok(Source { pool, named })
}

fn decode(encoded: &[u8]) -> Result<DescriptorPool, Error> {
    use prost::Message;
    let set =
        FileDescriptorSet::decode(encoded).map_err(|error| Error::Proto(error.to_string()))?;
    if let Some(file) = set.file.iter().find(|file| file.syntax() == "editions") {
        return Err(Error::Edition { file: file.name().to_owned() });
    }
    DescriptorPool::decode(encoded).map_err(|error| Error::Proto(format!("{error:?}")))
}

/// Whether the file that was asked for as `proto` is the one at `path`.
fn same_file(proto: &Path, path: &Path, includes: &[PathBuf]) -> bool {
    let Ok(path) = path.canonicalize() else { return false };
    let included = includes.iter().map(|include| include.join(proto));
    [proto.to_owned()]
        .into_iter()
        .chain(included)
        .any(|place| place.canonicalize().is_ok_and(|place| place == path))
}

/// The include folders. People have copies of Google's own files in them, with words that are too new
/// for `protox`; such a copy gives way to what `protox` brings along.
struct Included(ChainFileResolver);

impl FileResolver for Included {
    fn resolve_path(&self, path: &Path) -> Option<String> {
        self.0.resolve_path(path)
    }

    fn open_file(&self, name: &str) -> Result<File, protox::Error> {
        self.0.open_file(name).or_else(|error| match error.is_parse() {
            true => GoogleFileResolver::new().open_file(name).map_err(|_| error),
            false => Err(error),
        })
    }
}

/// `erpc/options.proto`, which nobody needs to have.
struct OwnFiles;

impl FileResolver for OwnFiles {
    fn open_file(&self, name: &str) -> Result<File, protox::Error> {
        match name {
            options::FILE_NAME => File::from_source(name, options::FILE),
            _ => Err(protox::Error::file_not_found(name)),
        }
    }
}

fn proto_error(error: &protox::Error, includes: &[PathBuf]) -> Error {
    // A parser that does not know editions trips over the first word.
    if let Some(name) = error.file().filter(|_| error.is_parse()) {
        let text = includes.iter().find_map(|include| fs::read_to_string(include.join(name)).ok());
        if text.is_some_and(|text| text.lines().any(|line| line.starts_with("edition"))) {
            return Error::Edition { file: name.to_owned() };
        }
    }
    // Its Debug has the line and column, its Display does not.
    let text = format!("{error:?}");
    let hint = options::hint(&text);
    Error::Proto(hint.map_or(text.clone(), |hint| format!("{text}; {hint}")))
}

/// Writes a file, and makes the folder that it is in.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let folder = path.parent().map_or(Ok(()), fs::create_dir_all);
    folder
        .and_then(|()| fs::write(path, bytes))
        .map_err(|source| Error::Write { path: path.to_owned(), source })
}
