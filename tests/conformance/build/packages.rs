//! Where cargo has unpacked the packages that this one names.

use std::collections::HashMap;
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// The folders of all packages of the lock file, by name.
///
/// The names in question have one version each, as the manifest pins it.
pub struct Packages {
    folders: HashMap<String, PathBuf>,
}

impl Packages {
    /// Asks cargo, which downloads what is missing. The versions are those of the lock file.
    pub fn locate() -> Self {
        let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let output = Command::new(cargo)
            .args(["metadata", "--format-version=1", "--locked", "--manifest-path", "Cargo.toml"])
            .output()
            .expect("cargo runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "cargo metadata failed: {said}");
        let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo prints JSON");
        let packages = metadata["packages"].as_array().expect("packages are listed");
        Self { folders: packages.iter().filter_map(folder).collect() }
    }

    /// The folder `below` in the package.
    ///
    /// # Panics
    /// If there is no such package, or no such folder in it.
    pub fn folder(&self, package: &str, below: &str) -> PathBuf {
        let package_folder = self.folders.get(package);
        let folder = package_folder.unwrap_or_else(|| panic!("no package is called {package}"));
        let folder = folder.join(below);
        assert!(folder.is_dir(), "{} is no folder of {package}", folder.display());
        folder
    }
}

fn folder(package: &Value) -> Option<(String, PathBuf)> {
    let manifest = Path::new(package["manifest_path"].as_str()?);
    Some((package["name"].as_str()?.to_owned(), manifest.parent()?.to_owned()))
}
