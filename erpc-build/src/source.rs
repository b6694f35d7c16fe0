//! Turns files into descriptors: with `protox`, with `protoc`, or from the output of another
//! compiler.

use std::cell::RefCell;
use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use prost_types::FileDescriptorSet;
use protox::Compiler;
use protox::file::{
    ChainFileResolver, File, FileResolver, GoogleFileResolver, IncludeFileResolver,
};
use protox::prost_reflect::DescriptorPool;

use crate::edition::{self, Refusal};
use crate::{Error, options};

/// The files of a build.
pub(crate) struct Source {
    pub(crate) pool: DescriptorPool,
    /// Names of the files that the build script listed. Services are generated only for these, not
    /// for imported files.
    pub(crate) named: HashSet<String>,
}

/// Paths of the files of a [`Source`], for cargo to watch. If reading fails, contains the files
/// that were read before the error.
pub(crate) type Paths = HashSet<PathBuf>;

/// Reads with `protox`.
pub(crate) fn read(
    protos: &[PathBuf],
    includes: &[PathBuf],
    paths: &mut Paths,
) -> Result<Source, Error> {
    let mut files = ChainFileResolver::new();
    for include in includes {
        files.add(IncludeFileResolver::new(include.clone()));
    }
    let lowered = Rc::new(RefCell::new(Lowered::default()));
    let mut resolver = ChainFileResolver::new();
    resolver.add(Included { files, includes: includes.to_vec(), lowered: Rc::clone(&lowered) });
    resolver.add(GoogleFileResolver::new());
    resolver.add(OwnFiles);
    let mut compiler = Compiler::with_file_resolver(resolver);
    let opened = compiler.open_files(protos).map(|_| ());
    paths.extend(compiler.files().filter_map(|file| file.path().map(Path::to_owned)));
    let Lowered { paths: of_editions, refused } = lowered.take();
    paths.extend(of_editions);
    if let Some((file, problem)) = refused {
        return Err(Error::Edition { file, problem });
    }
    opened.map_err(|error| proto_error(&error))?;
    let files = compiler.files().filter(|file| !file.is_import());
    let named = files.map(|file| file.name().to_owned()).collect();
    Ok(Source { pool: compiler.descriptor_pool(), named })
}

/// Reads with `protoc`, which `prost_build` finds. `scratch` is a folder for temporary files.
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
    // The set is decoded a second time, from its bytes, because `prost_types` drops the options of
    // erpc.
    let encoded = fs::read(&set).map_err(|source| Error::Read { path: set, source })?;
    Ok(Source { pool: decode(&encoded)?, named })
}

/// Decodes a `FileDescriptorSet`. All its files count as named, so all services are generated.
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
        let problem = "uses an edition, which only the compiler inside erpc-build can read; remove `use_protoc` or \
                       `compile_descriptor_set` from the build script, or replace the edition by `syntax = \"proto3\";` \
                       (or \"proto2\") and remove `features`";
        return Err(Error::Edition { file: file.name().to_owned(), problem: problem.to_owned() });
    }
    DescriptorPool::decode(encoded).map_err(|error| Error::Proto(format!("{error:?}")))
}

/// Whether `proto`, a path from the build script, is the file at `path`.
fn same_file(proto: &Path, path: &Path, includes: &[PathBuf]) -> bool {
    let Ok(path) = path.canonicalize() else { return false };
    let included = includes.iter().map(|include| include.join(proto));
    [proto.to_owned()]
        .into_iter()
        .chain(included)
        .any(|place| place.canonicalize().is_ok_and(|place| place == path))
}

/// The include folders. `protox` does not support editions, so files with an edition are read as
/// proto3. Include folders often contain copies of Google's own files, with syntax that is too new
/// for `protox`; in place of such a copy, the file inside `protox` is used.
struct Included {
    files: ChainFileResolver,
    includes: Vec<PathBuf>,
    lowered: Rc<RefCell<Lowered>>,
}

/// The files with an edition.
#[derive(Default)]
struct Lowered {
    /// Paths of all such files.
    paths: Vec<PathBuf>,
    /// A file that cannot be read as proto3, and why.
    refused: Option<(String, Refusal)>,
}

impl Included {
    /// Reads a file that `protox` cannot parse. `None`: the file has no edition, or is not text.
    fn with_edition(&self, name: &str) -> Option<Result<File, protox::Error>> {
        let mut paths = self.includes.iter().map(|include| include.join(name));
        let path = paths.find(|path| path.exists())?;
        let read = edition::read(name, &fs::read_to_string(&path).ok()?)?;
        let mut lowered = self.lowered.borrow_mut();
        lowered.paths.push(path);
        Some(read.and_then(|file| {
            file.map_err(|refusal| {
                lowered.refused = Some((name.to_owned(), refusal.clone()));
                protox::Error::new(refusal)
            })
        }))
    }
}

impl FileResolver for Included {
    fn resolve_path(&self, path: &Path) -> Option<String> {
        self.files.resolve_path(path)
    }

    fn open_file(&self, name: &str) -> Result<File, protox::Error> {
        self.files.open_file(name).or_else(|error| match error.is_parse() {
            true => self
                .with_edition(name)
                .unwrap_or_else(|| GoogleFileResolver::new().open_file(name).map_err(|_| error)),
            false => Err(error),
        })
    }
}

/// Provides `erpc/options.proto`, so that users need no copy.
struct OwnFiles;

impl FileResolver for OwnFiles {
    fn open_file(&self, name: &str) -> Result<File, protox::Error> {
        match name {
            options::FILE_NAME => File::from_source(name, options::FILE),
            _ => Err(protox::Error::file_not_found(name)),
        }
    }
}

fn proto_error(error: &protox::Error) -> Error {
    // The Debug of the error contains the line and column, its Display does not.
    let text = format!("{error:?}");
    let hint = options::hint(&text);
    Error::Proto(hint.map_or(text.clone(), |hint| format!("{text}; {hint}")))
}

/// Writes a file, and creates its folder if necessary.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let folder = path.parent().map_or(Ok(()), fs::create_dir_all);
    folder
        .and_then(|()| fs::write(path, bytes))
        .map_err(|source| Error::Write { path: path.to_owned(), source })
}
