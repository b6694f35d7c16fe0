//! Finds the file that defines the item of a path.

use std::collections::HashSet;

use syn::Item;

use crate::tree::{Binding, FileId, ModuleId, Scope, SourceTree};

/// The item that a path names.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Target {
    /// A module.
    Module(ModuleId),
    /// An item of a module, or a part of an item: a variant or an associated function.
    Item {
        /// The module that defines the item.
        module: ModuleId,
        /// Index into the module's items; `None` if a macro makes the item.
        index: Option<usize>,
    },
    /// An item of another crate, or of the language.
    Other {
        /// The module that imports the item; `None` if the path itself names the other crate.
        importer: Option<ModuleId>,
    },
}

/// The names whose lookup is in progress. They stop endless lookups in a cycle of re-exports.
type Visited = HashSet<(ModuleId, String)>;

impl SourceTree {
    /// The items that `path` names in `module`. Empty if the path is wrong or a macro makes the
    /// item. Several items if they have the same name or exist in different configurations.
    #[must_use]
    pub fn resolve(&self, module: ModuleId, path: &[String]) -> Vec<Target> {
        self.walk(module, path, &mut Visited::new())
    }

    /// As [`SourceTree::resolve`], within blocks that have names of their own, the innermost last.
    pub(crate) fn resolve_within(
        &self,
        module: ModuleId,
        blocks: &[Scope],
        path: &[String],
    ) -> Vec<Target> {
        let Some((first, rest)) = path.split_first() else { return Vec::new() };
        for (index, block) in blocks.iter().enumerate().rev() {
            let Some(bindings) = block.names.get(first) else { continue };
            return bindings
                .iter()
                .flat_map(|binding| match binding {
                    Binding::Import(import) => {
                        let path: Vec<_> = import.iter().chain(rest).cloned().collect();
                        // The name of the import itself is not visible in its path.
                        self.resolve_within(module, &blocks[..index], &path)
                    }
                    Binding::Module(_) | Binding::Item(_) => {
                        vec![Target::Item { module, index: None }]
                    }
                })
                .collect();
        }
        self.resolve(module, path)
    }

    /// The file that defines a target or, for an item of another crate, the file that imports it.
    /// `None` if the path itself names the other crate.
    #[must_use]
    pub fn file_of(&self, target: Target) -> Option<FileId> {
        let module = match target {
            Target::Module(module) | Target::Item { module, .. } => module,
            Target::Other { importer } => importer?,
        };
        Some(self.module(module).file)
    }

    fn walk(&self, module: ModuleId, path: &[String], visited: &mut Visited) -> Vec<Target> {
        let Some((first, mut rest)) = path.split_first() else { return Vec::new() };
        let mut found = match &**first {
            "crate" => vec![Target::Module(self.root())],
            "self" => vec![Target::Module(module)],
            "super" => self.module(module).parent.map(Target::Module).into_iter().collect(),
            first => {
                let found = self.look_up(module, first, visited);
                if found.is_empty() { vec![Target::Other { importer: None }] } else { found }
            }
        };
        while let Some((next, beyond)) = rest.split_first() {
            let inner: Vec<_> = found
                .iter()
                .flat_map(|target| match *target {
                    Target::Module(module) if next == "super" => {
                        self.module(module).parent.map(Target::Module).into_iter().collect()
                    }
                    Target::Module(module) => self.look_up(module, next, visited),
                    // A part of an item counts as defined in the item's file. The syntax does not
                    // tell where it is really defined.
                    Target::Item { .. } | Target::Other { .. } => vec![*target],
                })
                .collect();
            (found, rest) = (inner, beyond);
        }
        found.sort_by_key(|target| self.file_of(*target));
        found.dedup();
        found
    }

    /// The items with the name `name` in a module.
    fn look_up(&self, module: ModuleId, name: &str, visited: &mut Visited) -> Vec<Target> {
        if !visited.insert((module, name.to_owned())) {
            return Vec::new();
        }
        let scope = &self.module(module).scope;
        let imported = |path: &[String], visited: &mut Visited| {
            let mut found = self.walk(module, path, visited);
            for target in &mut found {
                if let Target::Other { importer: importer @ None } = target {
                    *importer = Some(module);
                }
            }
            found
        };
        let mut found = Vec::new();
        for binding in scope.names.get(name).into_iter().flatten() {
            match binding {
                Binding::Module(child) => found.push(Target::Module(*child)),
                Binding::Item(index) => found.push(Target::Item { module, index: *index }),
                Binding::Import(path) => found.extend(imported(path, visited)),
            }
        }
        if found.is_empty() {
            for glob in &scope.globs {
                for target in self.walk(module, glob, visited) {
                    match target {
                        Target::Module(other) => found.extend(self.look_up(other, name, visited)),
                        Target::Item { .. } if self.has_variant(target, name) => found.push(target),
                        Target::Item { .. } | Target::Other { .. } => {}
                    }
                }
            }
        }
        visited.remove(&(module, name.to_owned()));
        found
    }

    fn has_variant(&self, target: Target, name: &str) -> bool {
        let Target::Item { module, index: Some(index) } = target else { return false };
        matches!(&self.module(module).items[index],
            Item::Enum(item) if item.variants.iter().any(|variant| variant.ident == name))
    }
}
