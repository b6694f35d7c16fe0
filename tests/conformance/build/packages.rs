//! The folders into which cargo has unpacked the packages of `Cargo.toml`.

use std::collections::HashMap;
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// The folders of all packages of the lock file, by name.
///
/// The manifest pins one version of each package with `.proto` files, so the names are unique.
pub struct Packages {
    folders: HashMap<String, PathBuf>,
}

impl Packages {
    /// Runs `cargo metadata`, which downloads missing packages. The versions are those of the lock
    /// file.
    pub fn locate() -> Self {
        let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let output = Command::new(cargo)
            .args(["metadata", "--format-version=1", "--locked", "--manifest-path", "Cargo.toml"])
            .output()
            .expect("cargo must start");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "cargo metadata failed: {said}");
        let metadata: Value =
            serde_json::from_slice(&output.stdout).expect("cargo metadata must print JSON");
        let packages = metadata["packages"].as_array().expect("the metadata must contain packages");
        Self { folders: packages.iter().filter_map(folder).collect() }
    }

    /// The folder `below` in `package`.
    ///
    /// # Panics
    /// If the package or the folder does not exist.
    pub fn folder(&self, package: &str, below: &str) -> PathBuf {
        let package_folder = self.folders.get(package);
        let folder = package_folder.unwrap_or_else(|| panic!("there is no package {package}"));
        let folder = folder.join(below);
        assert!(folder.is_dir(), "{} is not a folder of {package}", folder.display());
        folder
    }
}

fn folder(package: &Value) -> Option<(String, PathBuf)> {
    let manifest = Path::new(package["manifest_path"].as_str()?);
    Some((package["name"].as_str()?.to_owned(), manifest.parent()?.to_owned()))
}
