//! The rule for nested modules: a module with children is `name/mod.rs`, not `name.rs` beside
//! `name/`.

use std::path::{Path, PathBuf};
use std::{fs, io};

/// The files below `folder` that break the rule, sorted: files of modules beside the folder of
/// their children. Skips folders with the name `target` and hidden folders.
///
/// # Errors
/// If a folder cannot be read.
pub fn beside_their_children(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            found.extend(beside_their_children(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let children = path.with_extension("");
            let declares = |child: &str| {
                children.join(format!("{child}.rs")).exists()
                    || children.join(child).join("mod.rs").exists()
            };
            if children.is_dir() && child_modules(&path)?.iter().any(|child| declares(child)) {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Names of the child modules that a file declares without a block, so that they have their own
/// files.
fn child_modules(path: &Path) -> io::Result<Vec<String>> {
    let Ok(syntax) = syn::parse_file(&fs::read_to_string(path)?) else { return Ok(Vec::new()) };
    Ok(syntax
        .items
        .iter()
        .filter_map(|item| match item {
            syn::Item::Mod(module) if module.content.is_none() => Some(module.ident.to_string()),
            _ => None,
        })
        .collect())
}
