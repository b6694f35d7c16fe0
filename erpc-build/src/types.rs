//! The Rust paths of types, for the code that this crate generates. The rules are those of `prost`.

use heck::{ToSnakeCase, ToUpperCamelCase};
use proc_macro2::TokenStream;
use protox::prost_reflect::{EnumDescriptor, MessageDescriptor};

use crate::attributes::matches;

/// The types that exist elsewhere (`extern_path`). All other types are in modules with the names of
/// their packages.
pub(crate) struct Types {
    /// A type's or a package's path in `.proto` files, which starts with a dot, and its path in
    /// Rust.
    externs: Vec<(String, String)>,
}

impl Types {
    pub(crate) fn new(externs: Vec<(String, String)>) -> Self {
        Self { externs }
    }

    /// Whether the type with the name `full_name` exists elsewhere, so that it is not generated.
    pub(crate) fn is_extern(&self, full_name: &str) -> bool {
        self.extern_of(full_name).is_some()
    }

    /// The path of a message, relative to the module of `package`.
    pub(crate) fn message(&self, package: &str, message: &MessageDescriptor) -> TokenStream {
        tokens(&self.path(package, message.full_name()))
    }

    /// The path of an enum, relative to the module of `package`.
    pub(crate) fn enumeration(&self, package: &str, of: &EnumDescriptor) -> TokenStream {
        tokens(&self.path(package, of.full_name()))
    }

    /// The path of a message's view, relative to the module of `package`.
    pub(crate) fn view(&self, package: &str, message: &MessageDescriptor) -> TokenStream {
        if self.is_extern(message.full_name()) {
            return tokens(&format!("{}View", self.path(package, message.full_name())));
        }
        let home = message.package_name();
        let sibling = if home.is_empty() { String::new() } else { format!("{home}.") };
        tokens(&self.path(package, &format!("{sibling}{}", view_name(message))))
    }

    fn extern_of(&self, full_name: &str) -> Option<&(String, String)> {
        let matching = self.externs.iter().filter(|(path, _)| matches(path, full_name));
        matching.max_by_key(|(path, _)| path.len())
    }

    fn path(&self, package: &str, full_name: &str) -> String {
        let Some((proto, rust)) = self.extern_of(full_name) else {
            return relative(package, full_name);
        };
        match full_name.strip_prefix(proto.trim_start_matches('.')) {
            None | Some("") => rust.clone(),
            Some(rest) => {
                format!("{rust}::{}", in_modules(rest.trim_start_matches('.').split('.')))
            }
        }
    }
}

/// The name of a message's view. All views of a package are in the package's module; the view of a
/// nested message has the names of the outer messages in its name.
pub(crate) fn view_name(message: &MessageDescriptor) -> String {
    let name = message.full_name();
    let nested = name.strip_prefix(message.package_name()).unwrap_or(name);
    let names = nested.split('.').map(ToUpperCamelCase::to_upper_camel_case);
    format!("{}View", names.collect::<String>())
}

fn relative(package: &str, full_name: &str) -> String {
    let mut from = package.split('.').filter(|module| !module.is_empty()).peekable();
    let mut to = full_name.split('.').peekable();
    while from.peek().is_some() && from.peek() == to.peek() {
        from.next();
        to.next();
    }
    format!("{}{}", "super::".repeat(from.count()), in_modules(to))
}

/// A path of `names`: the last is a type, all others are modules.
fn in_modules<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<_> = names.collect();
    let Some((last, modules)) = names.split_last() else { return String::new() };
    let modules = modules.iter().map(|module| escaped(module.to_snake_case()));
    modules.chain([escaped(last.to_upper_camel_case())]).collect::<Vec<_>>().join("::")
}

/// The name as `prost` writes it: a keyword gets `r#` or an underscore.
pub(crate) fn escaped(name: String) -> String {
    match name.as_str() {
        "self" | "super" | "crate" | "extern" | "Self" | "_" => format!("{name}_"),
        _ if syn::parse_str::<syn::Ident>(&name).is_err() => format!("r#{name}"),
        _ => name,
    }
}

fn tokens(path: &str) -> TokenStream {
    path.parse().unwrap_or_else(|_| {
        let message =
            format!("`{path}` is not a Rust path; correct `extern_path` in the build script");
        quote::quote!(::std::compile_error!(#message))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_go_through_the_packages_modules() {
        for (package, name, path) in [
            ("a.b", "a.b.M", "M"),
            ("a.b", "a.b.outer.M", "outer::M"),
            ("a.b", "a.c.M", "super::c::M"),
            ("a.b", "d.M", "super::super::d::M"),
            ("", "M", "M"),
            ("", "a.M", "a::M"),
            ("a", "M", "super::M"),
            ("a", "a.Outer.type.M", "outer::r#type::M"),
            ("a", "a.super.Self", "super_::Self_"),
        ] {
            assert_eq!(relative(package, name), path, "{name} from {package}");
        }
    }

    #[test]
    fn a_type_elsewhere_is_found_by_the_longest_matching_path() {
        let externs = [(".a", "::a"), (".a.b", "::b::b"), (".a.b.Own", "crate::Mine")];
        let types = Types::new(externs.map(|(a, b)| (a.to_owned(), b.to_owned())).to_vec());
        assert_eq!(types.path("x", "a.M"), "::a::M");
        assert_eq!(types.path("x", "a.b.M.Inner"), "::b::b::m::Inner");
        assert_eq!(types.path("x", "a.b.Own"), "crate::Mine");
        assert!(!types.is_extern("ab.M"));
    }
}
