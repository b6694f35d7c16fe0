//! Finds code that exists only in tests, by its attributes.

use syn::punctuated::Punctuated;
use syn::{Attribute, Meta, Token};

/// Whether an item with these attributes exists only in tests.
pub(crate) fn is_test_only(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("test")
            || attribute.path().is_ident("cfg")
                && attribute.parse_args::<Meta>().is_ok_and(|meta| holds(&meta) == Some(false))
    })
}

/// Whether a `cfg` predicate is true outside of tests; `None` if it depends on something else.
fn holds(predicate: &Meta) -> Option<bool> {
    match predicate {
        Meta::Path(path) if path.is_ident("test") => Some(false),
        Meta::List(list) => {
            let parts =
                list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated).ok()?;
            let parts: Vec<_> = parts.iter().map(holds).collect();
            if list.path.is_ident("not") {
                parts[0].map(|part| !part)
            } else if list.path.is_ident("all") {
                if parts.contains(&Some(false)) {
                    Some(false)
                } else {
                    parts.iter().all(|part| *part == Some(true)).then_some(true)
                }
            } else if parts.contains(&Some(true)) {
                Some(true)
            } else {
                parts.iter().all(|part| *part == Some(false)).then_some(false)
            }
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn predicates_that_are_false_outside_of_tests_are_found() {
        let is_test_only = |predicate: &str| {
            let item: syn::ItemMod =
                syn::parse_str(&format!("#[cfg({predicate})] mod a;")).unwrap();
            is_test_only(&item.attrs)
        };
        for predicate in
            ["test", "all(test, loom)", "all(loom, test)", "any(test)", "not(not(test))"]
        {
            assert!(is_test_only(predicate), "{predicate}");
        }
        for predicate in
            ["loom", "not(test)", "any(test, loom)", "all(loom, unix)", "not(all(test, loom))"]
        {
            assert!(!is_test_only(predicate), "{predicate}");
        }
    }
}
