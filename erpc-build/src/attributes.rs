//! Attributes that the build script adds to generated items.

use proc_macro2::TokenStream;
use quote::quote;
use syn::Attribute;
use syn::parse::Parser;

use crate::Error;

/// Attributes as the build script set them, with the paths of the items that get them.
pub(crate) struct Attributes {
    /// Name of the builder's function, for errors.
    setting: &'static str,
    /// Path and attribute.
    entries: Vec<(String, String)>,
}

impl Attributes {
    /// An empty list for the builder's function with the name `setting`.
    pub(crate) fn new(setting: &'static str) -> Self {
        Self { setting, entries: Vec::new() }
    }

    pub(crate) fn add(&mut self, path: String, attribute: String) {
        self.entries.push((path, attribute));
    }

    pub(crate) fn parse(self) -> Result<ParsedAttributes, Error> {
        let parse = |(path, text): (String, String)| match Attribute::parse_outer.parse_str(&text) {
            Ok(attributes) if !attributes.is_empty() => Ok((path, quote!(#(#attributes)*))),
            _ => Err(Error::Setting { name: self.setting, value: text }),
        };
        Ok(ParsedAttributes {
            entries: self.entries.into_iter().map(parse).collect::<Result<_, _>>()?,
        })
    }
}

/// [`Attributes`] parsed as Rust.
pub(crate) struct ParsedAttributes {
    entries: Vec<(String, TokenStream)>,
}

impl ParsedAttributes {
    /// The attributes of the item with the name `full_name`.
    pub(crate) fn of(&self, full_name: &str) -> TokenStream {
        let matching = self.entries.iter().filter(|(path, _)| matches(path, full_name));
        matching.map(|(_, attribute)| attribute.clone()).collect()
    }
}

/// Whether the path of a setting matches `full_name`, by the rules of `prost_build`. A path that
/// starts with a dot is absolute and matches that item and everything below it. Any other path
/// matches as a suffix.
pub(crate) fn matches(path: &str, full_name: &str) -> bool {
    let Some(prefix) = path.strip_prefix('.') else {
        return full_name == path
            || full_name.strip_suffix(path).is_some_and(|rest| rest.ends_with('.'));
    };
    prefix.is_empty()
        || full_name == prefix
        || full_name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_match_by_the_rules_of_prost() {
        for path in [".", ".kv", ".kv.v1", ".kv.v1.Kv", "v1.Kv", "Kv", "kv.v1.Kv"] {
            assert!(matches(path, "kv.v1.Kv"), "{path}");
        }
        for path in [".k", ".kv.v", "v", "1.Kv", ".v1.Kv", ".kv.v1.Kv.Get", ""] {
            assert!(!matches(path, "kv.v1.Kv"), "{path}");
        }
    }

    #[test]
    fn a_text_that_is_not_an_attribute_is_refused() {
        for text in ["derive(Debug)", "", "#[", "struct S;"] {
            let mut attributes = Attributes::new("trait_attribute");
            attributes.add(".".to_owned(), text.to_owned());
            assert!(matches!(
                attributes.parse(),
                Err(Error::Setting { name: "trait_attribute", .. })
            ));
        }
    }
}
