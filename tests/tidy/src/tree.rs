//! The files of a crate as modules, and the names in each module.

use std::collections::HashMap;
use std::path::Path;
use std::{fmt, fs};

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::{Ident, Item, UseTree, Visibility};

use crate::cfg::is_test_only;

/// A file of a crate.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FileId(usize);

/// A module of a crate.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ModuleId(usize);

/// The modules of a crate, without modules that exist only in tests.
pub struct SourceTree {
    files: Vec<String>,
    modules: Vec<Module>,
}

/// A module: a file, or a `mod` block in a file.
pub struct Module {
    /// The names of the modules from the root of the crate to this one.
    pub path: Vec<String>,
    /// The file that contains the module.
    pub file: FileId,
    /// The module that contains this module; `None` for the root.
    pub parent: Option<ModuleId>,
    /// The items of the module, in order, without modules and items that exist only in tests.
    pub items: Vec<Item>,
    /// The names of the public modules in this module.
    pub public_children: Vec<(String, ModuleId)>,
    pub(crate) scope: Scope,
}

/// The names of a module or of a block.
#[derive(Default)]
pub(crate) struct Scope {
    pub(crate) names: HashMap<String, Vec<Binding>>,
    /// Paths of `use path::*`.
    pub(crate) globs: Vec<Vec<String>>,
}

/// The meaning of a name.
#[derive(Clone)]
pub(crate) enum Binding {
    Module(ModuleId),
    /// Index into [`Module::items`]; `None` if a macro makes the item, or if it is in a block.
    Item(Option<usize>),
    /// A path, relative to the module of the name.
    Import(Vec<String>),
}

/// One name, or one glob, of a `use`.
pub(crate) struct Import {
    /// The path, without the `*` of a glob.
    pub(crate) path: Vec<String>,
    /// The imported name, after `as` if there is one; `None` for globs.
    pub(crate) name: Option<String>,
    pub(crate) line: usize,
}

/// Why a crate cannot be read.
#[derive(Debug)]
pub struct Unreadable(String);

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unreadable {}

impl SourceTree {
    /// Reads the crate whose `lib.rs` is in `folder`.
    ///
    /// # Errors
    /// If a file is missing, or is not valid Rust.
    pub fn load(folder: &Path) -> Result<Self, Unreadable> {
        Self::read(&|path| fs::read_to_string(folder.join(path)).ok())
    }

    /// Reads a crate from files with these paths and texts; one path is `lib.rs`.
    ///
    /// # Errors
    /// If a file is missing, or is not valid Rust.
    pub fn of_texts(files: &[(&str, &str)]) -> Result<Self, Unreadable> {
        Self::read(&|path| {
            files.iter().find(|(name, _)| *name == path).map(|(_, text)| (*text).to_owned())
        })
    }

    fn read(text_of: &dyn Fn(&str) -> Option<String>) -> Result<Self, Unreadable> {
        let mut tree = Self { files: Vec::new(), modules: Vec::new() };
        tree.add_file("lib.rs", "", Vec::new(), None, text_of)?;
        Ok(tree)
    }

    /// Adds the module of a file, and the modules in it. `folder` is the folder for the files of
    /// its child modules.
    fn add_file(
        &mut self,
        file: &str,
        folder: &str,
        path: Vec<String>,
        parent: Option<ModuleId>,
        text_of: &dyn Fn(&str) -> Option<String>,
    ) -> Result<ModuleId, Unreadable> {
        let text = text_of(file).ok_or_else(|| Unreadable(format!("there is no {file}")))?;
        let syntax = syn::parse_file(&text).map_err(|error| {
            Unreadable(format!("{file}:{}: {error}", error.span().start().line))
        })?;
        self.files.push(file.to_owned());
        let place = Module {
            path,
            file: FileId(self.files.len() - 1),
            parent,
            items: Vec::new(),
            public_children: Vec::new(),
            scope: Scope::default(),
        };
        self.add_module(place, folder, syntax.items, text_of)
    }

    fn add_module(
        &mut self,
        module: Module,
        folder: &str,
        items: Vec<Item>,
        text_of: &dyn Fn(&str) -> Option<String>,
    ) -> Result<ModuleId, Unreadable> {
        let (id, file, path) = (ModuleId(self.modules.len()), module.file, module.path.clone());
        self.modules.push(module);
        for item in items {
            if attributes(&item).is_some_and(is_test_only) {
                continue;
            }
            let Item::Mod(child) = item else {
                self.export_macro(id, &item);
                self.modules[id.0].add_item(item);
                continue;
            };
            let name = child.ident.to_string();
            let path = [path.clone(), vec![name.clone()]].concat();
            let below = format!("{folder}{name}/");
            let parent = Some(id);
            let is_public = matches!(child.vis, Visibility::Public(_));
            let child = match child.content {
                Some((_, items)) => {
                    let module = Module {
                        path,
                        file,
                        parent,
                        items: vec![],
                        public_children: vec![],
                        scope: Scope::default(),
                    };
                    self.add_module(module, &below, items, text_of)?
                }
                None => {
                    let inside = format!("{below}mod.rs");
                    let beside = format!("{folder}{name}.rs");
                    let file = if text_of(&inside).is_some() { inside } else { beside };
                    self.add_file(&file, &below, path, parent, text_of)?
                }
            };
            let module = &mut self.modules[id.0];
            if is_public {
                module.public_children.push((name.clone(), child));
            }
            module.scope.add(name, Binding::Module(child));
        }
        Ok(id)
    }

    /// Adds the name of an exported macro to the root module.
    fn export_macro(&mut self, module: ModuleId, item: &Item) {
        let Item::Macro(syn::ItemMacro { ident: Some(ident), attrs, .. }) = item else { return };
        if module != self.root() && attrs.iter().any(|attr| attr.path().is_ident("macro_export")) {
            let name = ident.to_string();
            let path = std::iter::once("crate".to_owned())
                .chain(self.module(module).path.iter().cloned())
                .chain([name.clone()]);
            let binding = Binding::Import(path.collect());
            let root = self.root();
            self.modules[root.0].scope.add(name, binding);
        }
    }

    /// All modules.
    pub fn modules(&self) -> impl Iterator<Item = ModuleId> {
        (0..self.modules.len()).map(ModuleId)
    }

    /// A module.
    #[must_use]
    pub fn module(&self, id: ModuleId) -> &Module {
        &self.modules[id.0]
    }

    /// The module of `lib.rs`.
    #[must_use]
    pub fn root(&self) -> ModuleId {
        ModuleId(0)
    }

    /// All files.
    pub fn files(&self) -> impl Iterator<Item = FileId> {
        (0..self.files.len()).map(FileId)
    }

    /// A file's path below the folder of `lib.rs`.
    #[must_use]
    pub fn path(&self, file: FileId) -> &str {
        &self.files[file.0]
    }
}

impl Module {
    fn add_item(&mut self, item: Item) {
        self.scope.add_item(&item, Some(self.items.len()));
        self.items.push(item);
    }
}

impl Scope {
    fn add(&mut self, name: String, binding: Binding) {
        self.names.entry(name).or_default().push(binding);
    }

    /// Adds the names that an item defines or imports.
    pub(crate) fn add_item(&mut self, item: &Item, index: Option<usize>) {
        match item {
            Item::Use(import) => {
                for Import { path, name, .. } in imports_of(import) {
                    match name {
                        Some(name) => self.add(name, Binding::Import(path)),
                        None => self.globs.push(path),
                    }
                }
            }
            Item::Macro(makes) => {
                let own = makes.ident.as_ref().map(|name| (name.to_string(), index));
                let made = made_names(makes.mac.tokens.clone());
                for (name, index) in
                    own.into_iter().chain(made.into_iter().map(|name| (name, None)))
                {
                    self.add(name, Binding::Item(index));
                }
            }
            item => {
                if let Some(name) = name(item) {
                    self.add(name.to_string(), Binding::Item(index));
                }
            }
        }
    }
}

/// The names and globs of a `use`. Empty for a path that starts with `::`, which is of another
/// crate.
pub(crate) fn imports_of(import: &syn::ItemUse) -> Vec<Import> {
    let mut imports = Vec::new();
    if import.leading_colon.is_none() {
        flatten(&import.tree, &mut Vec::new(), &mut imports);
    }
    imports
}

fn flatten(tree: &UseTree, path: &mut Vec<String>, imports: &mut Vec<Import>) {
    let mut add = |last: Option<&Ident>, name: Option<&Ident>, line| {
        // `a::{self}` means `a`.
        let last = last.filter(|last| *last != "self" || path.is_empty()).map(Ident::to_string);
        let path: Vec<_> = path.iter().cloned().chain(last).collect();
        let name = match name {
            Some(name) if name == "self" => path.last().cloned(),
            name => name.map(Ident::to_string),
        };
        imports.push(Import { path, name, line });
    };
    match tree {
        UseTree::Path(inner) => {
            path.push(inner.ident.to_string());
            flatten(&inner.tree, path, imports);
            path.pop();
        }
        UseTree::Name(name) => {
            add(Some(&name.ident), Some(&name.ident), name.ident.span().start().line);
        }
        UseTree::Rename(rename) => {
            add(Some(&rename.ident), Some(&rename.rename), rename.ident.span().start().line);
        }
        UseTree::Glob(glob) => add(None, None, glob.star_token.spans[0].start().line),
        UseTree::Group(group) => group.items.iter().for_each(|tree| flatten(tree, path, imports)),
    }
}

/// Names of the items that the tokens of a macro declare. The tokens are the argument of a macro
/// call, or the body of a macro definition.
fn made_names(tokens: TokenStream) -> Vec<String> {
    let mut names = Vec::new();
    // `declares`: the next identifier is the name of an item. `in_item`: the tokens belong to an
    // item.
    let (mut declares, mut in_item) = (false, false);
    for token in tokens {
        match token {
            TokenTree::Ident(ident) => match &*ident.to_string() {
                "struct" | "enum" | "union" | "trait" | "type" | "fn" | "const" | "static" => {
                    (declares, in_item) = (true, true);
                }
                "impl" | "mod" => (declares, in_item) = (false, true),
                "ref" | "mut" | "unsafe" => {}
                name if declares => {
                    names.push(name.to_owned());
                    declares = false;
                }
                _ => {}
            },
            TokenTree::Group(group) => {
                declares = false;
                if !in_item {
                    names.extend(made_names(group.stream()));
                } else if group.delimiter() == Delimiter::Brace {
                    in_item = false;
                }
            }
            TokenTree::Punct(punct) if punct.as_char() == ';' => in_item = false,
            TokenTree::Punct(_) | TokenTree::Literal(_) => declares = false,
        }
    }
    names
}

/// The name of an item; `None` if it has none, such as an `impl` block.
#[must_use]
pub fn name(item: &Item) -> Option<&Ident> {
    match item {
        Item::Const(item) => Some(&item.ident),
        Item::Enum(item) => Some(&item.ident),
        Item::Fn(item) => Some(&item.sig.ident),
        Item::Macro(item) => item.ident.as_ref(),
        Item::Mod(item) => Some(&item.ident),
        Item::Static(item) => Some(&item.ident),
        Item::Struct(item) => Some(&item.ident),
        Item::Trait(item) => Some(&item.ident),
        Item::TraitAlias(item) => Some(&item.ident),
        Item::Type(item) => Some(&item.ident),
        Item::Union(item) => Some(&item.ident),
        _ => None,
    }
}

/// The visibility of an item; `None` if this kind of item has no visibility.
#[must_use]
pub fn visibility(item: &Item) -> Option<&Visibility> {
    match item {
        Item::Const(item) => Some(&item.vis),
        Item::Enum(item) => Some(&item.vis),
        Item::Fn(item) => Some(&item.vis),
        Item::Mod(item) => Some(&item.vis),
        Item::Static(item) => Some(&item.vis),
        Item::Struct(item) => Some(&item.vis),
        Item::Trait(item) => Some(&item.vis),
        Item::TraitAlias(item) => Some(&item.vis),
        Item::Type(item) => Some(&item.vis),
        Item::Union(item) => Some(&item.vis),
        Item::Use(item) => Some(&item.vis),
        _ => None,
    }
}

/// The attributes of an item; `None` if `syn` does not know the item's syntax.
#[must_use]
pub fn attributes(item: &Item) -> Option<&[syn::Attribute]> {
    Some(match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::TraitAlias(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => return None,
    })
}
