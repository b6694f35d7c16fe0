//! The public items of a crate, one line each.
//!
//! Re-exports are followed into the crates of the workspace. Items of other crates are only named.
//! An item with several public paths is described under the shortest one.

use std::collections::{HashMap, VecDeque};

use quote::{ToTokens, quote};
use syn::{Attribute, Fields, ImplItem, Item, TraitItem, Type, Visibility};

use crate::cfg::is_test_only;
use crate::resolve::Target;
use crate::tree::{ModuleId, SourceTree, attributes, imports_of, name, visibility};

/// A crate of the workspace.
pub struct Crate<'a> {
    /// The crate's name in paths.
    pub name: &'a str,
    /// The crate's source.
    pub tree: &'a SourceTree,
}

/// A public item. `Known`: index of its crate, and the item. `Foreign`: path of an item of another
/// crate.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Public {
    Known(usize, Target),
    Foreign(String),
}

/// The public items of the first crate, sorted by path, each followed by its fields, methods and
/// implementations. The first crate may re-export items of the other crates.
#[must_use]
pub fn surface(crates: &[Crate<'_>]) -> Vec<String> {
    let mut walk =
        Walk { crates, found: Vec::new(), shortest: HashMap::new(), open: VecDeque::new() };
    let root = crates[0].tree.root();
    walk.reach(crates[0].name.to_owned(), Public::Known(0, Target::Module(root)), String::new());
    while let Some((path, krate, module)) = walk.open.pop_front() {
        walk.module(&path, krate, module);
    }
    let impls: Vec<_> = crates.iter().map(|krate| impls(krate.tree)).collect();
    walk.found.sort_by(|(path, ..), (other, ..)| path.cmp(other));
    let mut lines = Vec::new();
    for (path, public, cfg) in &walk.found {
        let shortest = &walk.shortest[public];
        let mut described = match public {
            _ if path != shortest => vec![format!("use {path} = {shortest}")],
            Public::Foreign(foreign) => vec![format!("use {path} = {foreign}")],
            Public::Known(krate, target) => {
                describe(path, &crates[*krate], *target, &impls[*krate])
            }
        };
        described[1..].sort();
        lines.extend(described.into_iter().map(|line| format!("{cfg}{line}")));
    }
    lines.dedup();
    lines
}

/// The walk through the public modules, starting at the root (breadth first).
struct Walk<'a> {
    crates: &'a [Crate<'a>],
    /// Path, item, and the `cfg` of its re-export.
    found: Vec<(String, Public, String)>,
    /// The path under which each item is described.
    shortest: HashMap<Public, String>,
    /// Modules that are still to visit: path, crate and id.
    open: VecDeque<(String, usize, ModuleId)>,
}

impl Walk<'_> {
    fn reach(&mut self, path: String, public: Public, cfg: String) {
        if let Public::Known(krate, Target::Module(module)) = public
            && !self.shortest.contains_key(&public)
        {
            self.open.push_back((path.clone(), krate, module));
        }
        let shortest = self.shortest.entry(public.clone()).or_insert_with(|| path.clone());
        if (path.len(), &path) < (shortest.len(), shortest)
            && !matches!(public, Public::Known(_, Target::Module(_)))
        {
            shortest.clone_from(&path);
        }
        self.found.push((path, public, cfg));
    }

    fn module(&mut self, path: &str, krate: usize, id: ModuleId) {
        let tree = self.crates[krate].tree;
        let module = tree.module(id);
        for item in &module.items {
            let attributes = attributes(item).unwrap_or_default();
            let is_exported =
                attributes.iter().any(|attribute| attribute.path().is_ident("macro_export"));
            if !is_exported && !matches!(visibility(item), Some(Visibility::Public(_))) {
                continue;
            }
            if let Item::Use(import) = item {
                for import in imports_of(import) {
                    let Some(name) = import.name else { continue };
                    for public in self.resolve(krate, id, &import.path) {
                        self.reach(format!("{path}::{name}"), public, cfg(attributes));
                    }
                }
            } else if let Some(name) = name(item) {
                let name = name.to_string();
                for target in tree.resolve(id, &["self".to_owned(), name.clone()]) {
                    self.reach(
                        format!("{path}::{name}"),
                        Public::Known(krate, target),
                        cfg(attributes),
                    );
                }
            }
        }
        for (name, child) in &module.public_children {
            let child = Public::Known(krate, Target::Module(*child));
            self.reach(format!("{path}::{name}"), child, String::new());
        }
    }

    fn resolve(&self, krate: usize, module: ModuleId, path: &[String]) -> Vec<Public> {
        if let Some(other) = self.crates.iter().position(|krate| krate.name == path[0]) {
            let inside: Vec<_> =
                ["crate".to_owned()].into_iter().chain(path[1..].iter().cloned()).collect();
            let root = self.crates[other].tree.root();
            return self.resolve(other, root, &inside);
        }
        let known = |target| match target {
            Target::Other { .. } => {
                Public::Foreign(path.join("::").trim_start_matches("crate::").to_owned())
            }
            target => Public::Known(krate, target),
        };
        self.crates[krate].tree.resolve(module, path).into_iter().map(known).collect()
    }
}

/// The `impl` blocks of each type.
type Impls<'a> = HashMap<Target, Vec<&'a syn::ItemImpl>>;

fn impls(tree: &SourceTree) -> Impls<'_> {
    let mut impls = Impls::new();
    for id in tree.modules() {
        for item in &tree.module(id).items {
            let Item::Impl(block) = item else { continue };
            let Type::Path(of) = &*block.self_ty else { continue };
            let path: Vec<_> =
                of.path.segments.iter().map(|segment| segment.ident.to_string()).collect();
            for target in tree.resolve(id, &path) {
                impls.entry(target).or_default().push(block);
            }
        }
    }
    impls
}

/// The lines of one item.
fn describe(path: &str, krate: &Crate<'_>, target: Target, impls: &Impls<'_>) -> Vec<String> {
    let (module, index) = match target {
        Target::Module(_) => return vec![format!("mod {path}")],
        Target::Item { module, index } => (module, index),
        Target::Other { .. } => return vec![format!("use {path}")],
    };
    let items = &krate.tree.module(module).items;
    let mut lines = match index {
        Some(index) => item_lines(path, &items[index]),
        None => vec![format!("made by a macro: {path}")],
    };
    for block in impls.get(&target).into_iter().flatten() {
        impl_lines(path, block, &mut lines);
    }
    // Add the arguments of all macro calls in the module. A call can make the item or add something
    // to it; the syntax does not tell to which item it belongs.
    for item in items {
        if let Item::Macro(makes) = item
            && makes.ident.is_none()
        {
            let (name, tokens) =
                (text(&makes.mac.path), text(&without_docs(makes.mac.tokens.clone())));
            let file = krate.tree.path(krate.tree.module(module).file);
            lines.push(format!("made by a macro, in {file}: {name}! {{ {tokens} }}"));
        }
    }
    lines
}

fn item_lines(path: &str, item: &Item) -> Vec<String> {
    let mark = item_mark(attributes(item).unwrap_or_default());
    let mut lines = Vec::new();
    match item {
        Item::Const(item) => lines.push(format!("{mark}const {path}: {}", text(&item.ty))),
        Item::Static(item) => lines.push(format!("{mark}static {path}: {}", text(&item.ty))),
        Item::Fn(item) => lines.push(format!("{mark}{}", signature(path, &item.sig))),
        Item::Macro(_) => lines.push(format!("{mark}macro {path}!")),
        Item::Type(item) => {
            lines.push(format!("{mark}type {path}{} = {}", text(&item.generics), text(&item.ty)));
        }
        Item::Struct(item) => {
            let bounds = text(&item.generics.where_clause);
            lines.push(
                format!("{mark}struct {path}{} {bounds}", text(&item.generics))
                    .trim_end()
                    .to_owned(),
            );
            for (index, field) in item.fields.iter().enumerate() {
                if matches!(field.vis, Visibility::Public(_)) {
                    let name = field.ident.as_ref().map_or(index.to_string(), ToString::to_string);
                    lines.push(format!("field {path}.{name}: {}", text(&field.ty)));
                }
            }
        }
        Item::Enum(item) => {
            lines.push(format!("{mark}enum {path}{}", text(&item.generics)));
            for variant in &item.variants {
                let mark = item_mark(&variant.attrs);
                lines.push(format!(
                    "{mark}variant {path}::{}{}",
                    variant.ident,
                    fields(&variant.fields)
                ));
            }
        }
        Item::Trait(item) => {
            let (generics, bounds) = (&item.generics, &item.supertraits);
            let bounds =
                if bounds.is_empty() { String::new() } else { format!(": {}", text(bounds)) };
            lines.push(format!("{mark}trait {path}{}{bounds}", text(generics)));
            lines.extend(item.items.iter().filter_map(|item| trait_item(path, item)));
        }
        _ => lines.push(format!("{mark}{path}")),
    }
    lines
}

fn trait_item(path: &str, item: &TraitItem) -> Option<String> {
    Some(match item {
        TraitItem::Fn(item) => {
            let provided = if item.default.is_some() { "provided " } else { "required " };
            let mark = item_mark(&item.attrs);
            format!(
                "{mark}{provided}{}",
                signature(&format!("{path}::{}", item.sig.ident), &item.sig)
            )
        }
        TraitItem::Type(item) => {
            let bounds = &item.bounds;
            let bounds =
                if bounds.is_empty() { String::new() } else { format!(": {}", text(bounds)) };
            format!("required type {path}::{}{bounds}", item.ident)
        }
        TraitItem::Const(item) => {
            let provided = if item.default.is_some() { "provided" } else { "required" };
            format!("{provided} const {path}::{}: {}", item.ident, text(&item.ty))
        }
        _ => return None,
    })
}

fn impl_lines(path: &str, block: &syn::ItemImpl, lines: &mut Vec<String>) {
    let cfg = cfg(&block.attrs);
    let (generics, of) = (&block.generics, &block.self_ty);
    if let Some((_, implemented, _)) = &block.trait_ {
        let bounds = &generics.where_clause;
        lines.push(text(&quote!(impl #generics #implemented for #of #bounds)).replacen(
            "impl",
            &format!("{cfg}impl"),
            1,
        ));
        return;
    }
    for item in &block.items {
        match item {
            ImplItem::Fn(item)
                if matches!(item.vis, Visibility::Public(_)) && !is_test_only(&item.attrs) =>
            {
                let path = format!("{path}::{}", item.sig.ident);
                lines.push(format!(
                    "{cfg}{}{}",
                    item_mark(&item.attrs),
                    signature(&path, &item.sig)
                ));
            }
            ImplItem::Const(item) if matches!(item.vis, Visibility::Public(_)) => {
                lines.push(format!("{cfg}const {path}::{}: {}", item.ident, text(&item.ty)));
            }
            _ => {}
        }
    }
}

/// The signature of a function, with its path instead of its name.
fn signature(path: &str, signature: &syn::Signature) -> String {
    let name = signature.ident.to_string();
    let text = text(signature);
    match text.split_once(&format!("fn {name}")) {
        Some((before, after)) => format!("{before}fn {path}{after}"),
        None => text,
    }
}

fn fields(fields: &Fields) -> String {
    match fields {
        Fields::Unit => String::new(),
        Fields::Unnamed(fields) => {
            let types: Vec<_> = fields.unnamed.iter().map(|field| text(&field.ty)).collect();
            format!("({})", types.join(", "))
        }
        Fields::Named(fields) => {
            let named = |field: &syn::Field| format!("{}: {}", text(&field.ident), text(&field.ty));
            format!(" {{ {} }}", fields.named.iter().map(named).collect::<Vec<_>>().join(", "))
        }
    }
}

/// The attributes that users depend on, as text before an item.
fn item_mark(attributes: &[Attribute]) -> String {
    let mut mark = cfg(attributes);
    for attribute in attributes {
        let path = attribute.path();
        if path.is_ident("non_exhaustive") || path.is_ident("deprecated") || path.is_ident("derive")
        {
            mark += &format!("{} ", text(attribute));
        } else if path.is_ident("doc")
            && matches!(&attribute.meta, syn::Meta::List(list) if text(&list.tokens) == "hidden")
        {
            mark += "#[doc(hidden)] ";
        }
    }
    mark
}

fn cfg(attributes: &[Attribute]) -> String {
    attributes
        .iter()
        .filter(|attribute| attribute.path().is_ident("cfg"))
        .map(|attribute| format!("{} ", text(attribute)))
        .collect()
}

/// Removes doc comments from a macro's argument.
fn without_docs(tokens: proc_macro2::TokenStream) -> proc_macro2::TokenStream {
    use proc_macro2::{Group, TokenTree};
    let mut out: Vec<TokenTree> = Vec::new();
    for token in tokens {
        match token {
            TokenTree::Group(group) => {
                let is_doc = group.stream().to_string().starts_with("doc ")
                    && matches!(out.last(), Some(TokenTree::Punct(punct)) if punct.as_char() == '#');
                if is_doc {
                    out.pop();
                } else {
                    out.push(Group::new(group.delimiter(), without_docs(group.stream())).into());
                }
            }
            token => out.push(token),
        }
    }
    out.into_iter().collect()
}

/// Tokens as text, with spaces roughly as in formatted code.
fn text(tokens: &impl ToTokens) -> String {
    let mut text = tokens.to_token_stream().to_string().replace('\n', " ");
    let spaces = [
        (" :: ", "::"),
        (":: ", "::"),
        (" ::", "::"),
        (" <", "<"),
        ("< ", "<"),
        (" >", ">"),
        (" ,", ","),
        (" :", ":"),
        ("& ", "&"),
        (" (", "("),
        ("( ", "("),
        (" )", ")"),
        (" ;", ";"),
        ("[ ", "["),
        (" ]", "]"),
        (" ?", "?"),
        ("? ", "?"),
        (" !", "!"),
        ("# [", "#["),
        (",)", ")"),
        (",>", ">"),
        ("=>", " =>"),
        ("fn(", "fn("),
        ("->", " -> "),
        ("  ", " "),
        ("  ", " "),
    ];
    for (from, to) in spaces {
        text = text.replace(from, to);
    }
    text.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_made_by_a_macro_is_described_by_the_macros_arguments_and_its_methods() {
        let stats = "macro_rules! counters { ($($name:ident,)*) => { pub struct Stats { $(pub $name: u64,)* } }; }
            counters! { /// Comment.\n received, sent, } impl Stats { pub fn lost(&self) -> u64 { 0 } }";
        let tree = SourceTree::of_texts(&[
            ("lib.rs", "mod stats; pub use stats::Stats;"),
            ("stats.rs", stats),
        ])
        .unwrap();
        assert_eq!(
            surface(&[Crate { name: "face", tree: &tree }]),
            [
                "mod face",
                "made by a macro: face::Stats",
                "fn face::Stats::lost(&self) -> u64",
                "made by a macro, in stats.rs: counters! { received, sent, }",
            ]
        );
    }

    #[test]
    fn reexports_are_followed_into_other_crates() {
        let core = SourceTree::of_texts(&[
            ("lib.rs", "pub mod a; mod hidden;"),
            ("a.rs", "pub use crate::hidden::Thing; pub fn free<T: Copy>(x: &T, y: Vec<u8>) -> Option<T> { None } fn private() {}"),
            (
                "hidden.rs",
                "#[derive(Clone)] #[non_exhaustive] pub struct Thing { pub size: u32, secret: u8 }
                 impl Thing { pub const MAX: u32 = 1; pub fn new() -> Self { todo!() } fn inner(&self) {} pub(crate) fn local(&self) {} }
                 impl From<u8> for Thing { fn from(_: u8) -> Self { todo!() } }
                 #[doc = \"Not hidden.\"] pub enum Kind { A, B(u32), C { x: u8 } }
                 pub trait Act: Send { type Of; fn act(&self); fn more(&self) {} }",
            ),
        ])
        .unwrap();
        let facade = SourceTree::of_texts(&[(
            "lib.rs",
            "pub use core_crate::a::{self, Thing}; pub use core_crate::hidden::{Act, Kind}; pub use bytes::Bytes;
             #[cfg(feature = \"x\")] pub use core_crate::a::free; #[doc(hidden)] #[macro_export] macro_rules! m { () => {} }",
        )])
        .unwrap();
        let crates =
            [Crate { name: "face", tree: &facade }, Crate { name: "core_crate", tree: &core }];
        assert_eq!(
            surface(&crates),
            [
                "mod face",
                "trait face::Act: Send",
                "provided fn face::Act::more(&self)",
                "required fn face::Act::act(&self)",
                "required type face::Act::Of",
                "use face::Bytes = bytes::Bytes",
                "enum face::Kind",
                "variant face::Kind::A",
                "variant face::Kind::B(u32)",
                "variant face::Kind::C { x: u8 }",
                "#[derive(Clone)] #[non_exhaustive] struct face::Thing",
                "const face::Thing::MAX: u32",
                "field face::Thing.size: u32",
                "fn face::Thing::new() -> Self",
                "impl From<u8> for Thing",
                "mod face::a",
                "use face::a::Thing = face::Thing",
                "use face::a::free = face::free",
                "#[cfg(feature = \"x\")] fn face::free<T: Copy>(x: &T, y: Vec<u8>) -> Option<T>",
                "#[doc(hidden)] macro face::m!",
            ]
        );
    }
}
