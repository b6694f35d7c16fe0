//! Resolves every path of every file.

use std::collections::HashMap;

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Block, Item, Stmt, Visibility};

use crate::cfg::is_test_only;
use crate::resolve::Target;
use crate::tree::{FileId, Module, ModuleId, Scope, SourceTree, attributes, imports_of};

/// A path in one file that names an item of another file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PathUse {
    /// The file with the path.
    pub from: FileId,
    /// The line of the path.
    pub line: usize,
    /// The path as in the source, without generic arguments.
    pub path: String,
    /// The file that defines the item.
    pub to: FileId,
}

/// The resolved paths of a crate.
#[derive(Default, Debug)]
pub struct PathUses {
    /// Paths that name an item of another file, in the order of files and lines. Does not contain
    /// the re-exports of a module from modules below it, which are its table of contents.
    pub crossing: Vec<PathUse>,
    /// File, line and path of globs, except globs of items that the same file defines.
    pub globs: Vec<(FileId, usize, String)>,
    /// File, line and path of paths that start with `crate`, `self` or `super` and name nothing.
    pub unresolved: Vec<(FileId, usize, String)>,
}

impl SourceTree {
    /// The paths of all code, without code that exists only in tests.
    #[must_use]
    pub fn path_uses(&self) -> PathUses {
        let mut uses = PathUses::default();
        let methods = self.methods();
        for id in self.modules() {
            let module = self.module(id);
            let mut visitor = Visitor {
                tree: self,
                methods: &methods,
                id,
                module,
                of: Vec::new(),
                blocks: Vec::new(),
                uses: &mut uses,
            };
            for item in &module.items {
                visitor.visit_item(item);
            }
        }
        uses.crossing.sort_by_key(|path| (path.from, path.line));
        uses.crossing.dedup();
        uses
    }

    fn methods(&self) -> Methods {
        let mut methods = Methods::new();
        for id in self.modules() {
            for item in &self.module(id).items {
                let Item::Impl(block) = item else { continue };
                if block.trait_.is_some() {
                    continue;
                }
                for of in self.implementor(id, block) {
                    for item in &block.items {
                        let name = match item {
                            syn::ImplItem::Fn(item) if !is_test_only(&item.attrs) => {
                                &item.sig.ident
                            }
                            syn::ImplItem::Const(item) => &item.ident,
                            _ => continue,
                        };
                        methods.entry((of, name.to_string())).or_default().push(id);
                    }
                }
            }
        }
        methods
    }

    /// The type of an `impl` block in a module.
    pub(crate) fn implementor(&self, module: ModuleId, block: &syn::ItemImpl) -> Vec<Target> {
        let syn::Type::Path(of) = &*block.self_ty else { return Vec::new() };
        let path: Vec<_> =
            of.path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        let mut found = self.resolve(module, &path);
        found.retain(|target| matches!(target, Target::Item { .. }));
        found
    }
}

/// For each type and name, the modules that define an inherent method or associated constant of the
/// type with this name.
type Methods = HashMap<(Target, String), Vec<ModuleId>>;

struct Visitor<'a> {
    tree: &'a SourceTree,
    methods: &'a Methods,
    id: ModuleId,
    module: &'a Module,
    /// The types of `Self` at the current place, the innermost last.
    of: Vec<Vec<Target>>,
    /// The names of the blocks around the current place, the innermost last.
    blocks: Vec<Scope>,
    uses: &'a mut PathUses,
}

impl Visitor<'_> {
    fn resolve(&self, path: &[String]) -> Vec<Target> {
        let found = self.tree.resolve_within(self.id, &self.blocks, path);
        // After `use join::join`, the name `join` may mean the module or the item in it. Here it
        // means the item.
        if found.iter().any(|target| matches!(target, Target::Item { .. })) {
            return found
                .into_iter()
                .filter(|target| !matches!(target, Target::Module(_)))
                .collect();
        }
        found
    }

    /// Records a path in the module.
    fn path(&mut self, path: &[String], line: usize) {
        let found = self.resolve(path);
        if found.is_empty() && matches!(&*path[0], "crate" | "self" | "super") {
            self.uses.unresolved.push((self.module.file, line, path.join("::")));
        }
        found.into_iter().for_each(|target| self.crossing(target, path, line));
    }

    fn crossing(&mut self, target: Target, path: &[String], line: usize) {
        let Some(to) = self.tree.file_of(target) else { return };
        if to != self.module.file {
            let from = self.module.file;
            self.uses.crossing.push(PathUse { from, line, path: path.join("::"), to });
        }
    }

    /// Records a path to a method of one of the types `of`.
    fn method(&mut self, of: &[Target], name: &str, path: &str, line: usize) {
        let methods = self.methods;
        for of in of {
            for module in methods.get(&(*of, name.to_owned())).into_iter().flatten() {
                self.crossing(Target::Module(*module), &[path.to_owned()], line);
            }
        }
    }

    /// Whether a target is in a module below this one.
    fn is_below(&self, target: Target) -> bool {
        let (Target::Module(module)
        | Target::Item { module, .. }
        | Target::Other { importer: Some(module) }) = target
        else {
            return false;
        };
        let path = &self.tree.module(module).path;
        path.len() > self.module.path.len() && path.starts_with(&self.module.path)
    }

    /// Records the paths in a macro's argument: names with `::` between them. The syntax of the
    /// argument is unknown.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let (mut line, mut colons, mut dot) = (0, 0, false);
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    if colons != 2 {
                        self.token_path(&mut path, line);
                        line = ident.span().start().line;
                        if dot {
                            // After a dot, the name is a field or a method, not a path.
                            dot = false;
                            continue;
                        }
                    }
                    path.push(ident.to_string());
                    colons = 0;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' && !path.is_empty() => {
                    colons += 1
                }
                other => {
                    self.token_path(&mut path, line);
                    colons = 0;
                    dot = matches!(&other, TokenTree::Punct(punct) if punct.as_char() == '.');
                    if let TokenTree::Group(group) = other {
                        self.tokens(group.stream());
                    }
                }
            }
        }
        self.token_path(&mut path, line);
    }

    fn token_path(&mut self, path: &mut Vec<String>, line: usize) {
        let path = std::mem::take(path);
        if path.len() > 1 {
            for target in self.resolve(&path) {
                // If the argument names only a module, the macro may append an item's name. Which
                // item that is, is unknown here.
                if !matches!(target, Target::Module(_)) {
                    self.crossing(target, &path, line);
                }
            }
        }
    }
}

impl<'ast> Visit<'ast> for Visitor<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if !attributes(item).is_some_and(is_test_only) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_impl(&mut self, block: &'ast syn::ItemImpl) {
        self.of.push(self.tree.implementor(self.id, block));
        visit::visit_item_impl(self, block);
        self.of.pop();
    }

    fn visit_impl_item(&mut self, item: &'ast syn::ImplItem) {
        let attributes = match item {
            syn::ImplItem::Const(item) => &*item.attrs,
            syn::ImplItem::Fn(item) => &item.attrs,
            syn::ImplItem::Type(item) => &item.attrs,
            syn::ImplItem::Macro(item) => &item.attrs,
            _ => &[],
        };
        if !is_test_only(attributes) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if !is_test_only(&item.attrs) {
            visit::visit_trait_item_fn(self, item);
        }
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        if !is_test_only(&field.attrs) {
            visit::visit_field(self, field);
        }
    }

    fn visit_field_value(&mut self, field: &'ast syn::FieldValue) {
        if !is_test_only(&field.attrs) {
            visit::visit_field_value(self, field);
        }
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        if !is_test_only(&arm.attrs) {
            visit::visit_arm(self, arm);
        }
    }

    fn visit_local(&mut self, local: &'ast syn::Local) {
        if !is_test_only(&local.attrs) {
            visit::visit_local(self, local);
        }
    }

    fn visit_stmt_macro(&mut self, statement: &'ast syn::StmtMacro) {
        if !is_test_only(&statement.attrs) {
            visit::visit_stmt_macro(self, statement);
        }
    }

    fn visit_expr_block(&mut self, block: &'ast syn::ExprBlock) {
        if !is_test_only(&block.attrs) {
            visit::visit_expr_block(self, block);
        }
    }

    fn visit_block(&mut self, block: &'ast Block) {
        let mut scope = Scope::default();
        for statement in &block.stmts {
            if let Stmt::Item(item) = statement {
                scope.add_item(item, None);
            }
        }
        self.blocks.push(scope);
        visit::visit_block(self, block);
        self.blocks.pop();
    }

    fn visit_item_use(&mut self, import: &'ast syn::ItemUse) {
        let is_reexport = !matches!(import.vis, Visibility::Inherited);
        // Resolves the imports of a block without the names of that block. Otherwise, in an import
        // such as `use join::join`, the first `join` would be the import itself. Rust also allows
        // an import from an item of the same block; such an import is not resolved.
        let block = self.blocks.pop();
        for import in imports_of(import) {
            let path = &import.path;
            if import.name.is_none() {
                let file = self.module.file;
                let is_own = |target: &Target| self.tree.file_of(*target) == Some(file);
                if !self.resolve(path).iter().all(is_own) {
                    self.uses.globs.push((file, import.line, format!("{}::*", path.join("::"))));
                }
            }
            if is_reexport && self.resolve(path).iter().any(|target| self.is_below(*target)) {
                continue;
            }
            self.path(path, import.line);
        }
        self.blocks.extend(block);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() {
            let line = path.segments[0].ident.span().start().line;
            let segments: Vec<_> =
                path.segments.iter().map(|segment| segment.ident.to_string()).collect();
            self.path(&segments, line);
            if let [of @ .., name] = &*segments
                && !of.is_empty()
            {
                let types = match of {
                    [only] if only == "Self" => self.of.last().cloned().unwrap_or_default(),
                    of => self.resolve(of),
                };
                self.method(&types, name, &segments.join("::"), line);
            }
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, makes: &'ast syn::Macro) {
        visit::visit_macro(self, makes);
        self.tokens(makes.tokens.clone());
    }

    // `pub(in path)` imports nothing. Paths in an attribute belong to the crate that defines it.
    fn visit_visibility(&mut self, _visibility: &'ast Visibility) {}

    fn visit_attribute(&mut self, _attribute: &'ast syn::Attribute) {}
}
