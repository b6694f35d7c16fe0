//! Every path of every file, resolved.

use std::collections::HashMap;

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Block, Item, Stmt, Visibility};

use crate::cfg::is_test_only;
use crate::resolve::Target;
use crate::tree::{FileId, Module, ModuleId, Scope, SourceTree, attributes, imports_of};

/// A path in one file that names something of another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PathUse {
    /// The file with the path.
    pub from: FileId,
    /// Its line.
    pub line: usize,
    /// The path as it is written, without generic arguments.
    pub path: String,
    /// The file that defines what it names.
    pub to: FileId,
}

/// What the paths of a crate name.
#[derive(Default, Debug)]
pub struct PathUses {
    /// Paths that name something of another file, in the order of files and lines. Left out is what a module re-exports
    /// of modules below it: that is its table of contents.
    pub crossing: Vec<PathUse>,
    /// File, line and path of globs, but for those of what their own file defines.
    pub globs: Vec<(FileId, usize, String)>,
    /// File, line and path of what begins with `crate`, `self` or `super` and names nothing.
    pub unresolved: Vec<(FileId, usize, String)>,
}

impl SourceTree {
    /// The paths of all code that does not exist in tests alone.
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

    /// The type that a block in a module implements something for.
    pub(crate) fn implementor(&self, module: ModuleId, block: &syn::ItemImpl) -> Vec<Target> {
        let syn::Type::Path(of) = &*block.self_ty else { return Vec::new() };
        let path: Vec<_> =
            of.path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        let mut found = self.resolve(module, &path);
        found.retain(|target| matches!(target, Target::Item { .. }));
        found
    }
}

/// By type and name, the modules that define a method or an associated constant of the type itself.
type Methods = HashMap<(Target, String), Vec<ModuleId>>;

struct Visitor<'a> {
    tree: &'a SourceTree,
    methods: &'a Methods,
    id: ModuleId,
    module: &'a Module,
    /// The types that `Self` means around the place of the visit, the innermost last.
    of: Vec<Vec<Target>>,
    blocks: Vec<Scope>,
    uses: &'a mut PathUses,
}

impl Visitor<'_> {
    fn resolve(&self, path: &[String]) -> Vec<Target> {
        let found = self.tree.resolve_within(self.id, &self.blocks, path);
        // An item hides the module of the same name: `use join::join`.
        if found.iter().any(|target| matches!(target, Target::Item { .. })) {
            return found
                .into_iter()
                .filter(|target| !matches!(target, Target::Module(_)))
                .collect();
        }
        found
    }

    /// Records a path that stands somewhere in the module.
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

    /// Records that a method of one of these types is named.
    fn method(&mut self, of: &[Target], name: &str, path: &str, line: usize) {
        let methods = self.methods;
        for of in of {
            for module in methods.get(&(*of, name.to_owned())).into_iter().flatten() {
                self.crossing(Target::Module(*module), &[path.to_owned()], line);
            }
        }
    }

    /// Whether a target stands in a module below this one.
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

    /// Records the paths in a macro's argument, of which the syntax is unknown: names with `::` between them.
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
                            // A field or a method.
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
                // A path to a module alone goes on with something that the macro puts in.
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
        // A block's own names are not seen by its imports.
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

    // `pub(in path)` imports nothing, and attributes are left to the crates that define them.
    fn visit_visibility(&mut self, _visibility: &'ast Visibility) {}

    fn visit_attribute(&mut self, _attribute: &'ast syn::Attribute) {}
}
