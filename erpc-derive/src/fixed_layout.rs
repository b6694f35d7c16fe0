//! `#[derive(FixedLayout)]`: the checks whose messages would otherwise be `zerocopy`'s, and the promise.

use proc_macro2::TokenStream;
use quote::quote;
use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Error, Fields, Path, Result, Type, parse_quote};

/// Types that are not the same bytes everywhere, and what to write in their place.
const REPLACEMENTS: [(&str, &str); 14] = [
    ("u16", "erpc::zerocopy::little_endian::U16"),
    ("u32", "erpc::zerocopy::little_endian::U32"),
    ("u64", "erpc::zerocopy::little_endian::U64"),
    ("u128", "erpc::zerocopy::little_endian::U128"),
    ("usize", "erpc::zerocopy::little_endian::U64"),
    ("i16", "erpc::zerocopy::little_endian::I16"),
    ("i32", "erpc::zerocopy::little_endian::I32"),
    ("i64", "erpc::zerocopy::little_endian::I64"),
    ("i128", "erpc::zerocopy::little_endian::I128"),
    ("isize", "erpc::zerocopy::little_endian::I64"),
    ("f32", "erpc::zerocopy::little_endian::F32"),
    ("f64", "erpc::zerocopy::little_endian::F64"),
    ("bool", "u8"),
    ("char", "erpc::zerocopy::little_endian::U32"),
];

pub(crate) fn expand(input: &DeriveInput) -> Result<TokenStream> {
    let erpc = crate_path(input)?;
    let Data::Struct(data) = &input.data else {
        let text = "a fixed layout is a struct: of an enum or a union, not every sequence of bytes is a value; write a \
                    number, and a function that interprets it";
        return Err(Error::new(input.ident.span(), text));
    };
    if !input.generics.params.is_empty() {
        let text = "a fixed layout is the same everywhere, so it has no type parameters";
        return Err(Error::new(input.generics.span(), text));
    }
    if !has_fixed_repr(input)? {
        let text = "a fixed layout needs its fields to stay where they are: add `#[repr(C)]` in front of the struct";
        return Err(Error::new(input.ident.span(), text));
    }
    let errors = data.fields.iter().filter_map(|field| check(&field.ty));
    if let Some(error) = errors.reduce(|mut all, next| {
        all.combine(next);
        all
    }) {
        return Err(error);
    }
    if matches!(data.fields, Fields::Unit) {
        return Err(Error::new(input.ident.span(), "a fixed layout has at least one field"));
    }
    let name = &input.ident;
    Ok(quote! {
        #[automatically_derived]
        impl #erpc::FixedLayout for #name {}
    })
}

fn crate_path(input: &DeriveInput) -> Result<Path> {
    let mut path = parse_quote!(::erpc);
    for attribute in input.attrs.iter().filter(|attribute| attribute.path().is_ident("erpc")) {
        attribute.parse_nested_meta(|meta| {
            if !meta.path.is_ident("crate") {
                return Err(meta.error("unknown key; there is `crate = path`"));
            }
            path = meta.value()?.parse()?;
            Ok(())
        })?;
    }
    Ok(path)
}

/// `#[repr(C)]` or `#[repr(transparent)]`, also with `packed`.
fn has_fixed_repr(input: &DeriveInput) -> Result<bool> {
    let mut fixed = false;
    for attribute in input.attrs.iter().filter(|attribute| attribute.path().is_ident("repr")) {
        attribute.parse_nested_meta(|meta| {
            fixed |= meta.path.is_ident("C") || meta.path.is_ident("transparent");
            if meta.input.peek(syn::token::Paren) {
                let arguments;
                syn::parenthesized!(arguments in meta.input);
                arguments.parse::<TokenStream>()?;
            }
            Ok(())
        })?;
    }
    Ok(fixed)
}

/// What is wrong with a field's type, as far as its name tells. `zerocopy` has the last word.
fn check(of: &Type) -> Option<Error> {
    match of {
        Type::Array(array) => check(&array.elem),
        Type::Reference(_) | Type::Ptr(_) => {
            let text =
                "a fixed layout holds values, not where they are; write the value, or `[u8; N]`";
            Some(Error::new(of.span(), text))
        }
        Type::Path(path) => {
            let name = path.path.segments.last()?.ident.to_string();
            if matches!(name.as_str(), "String" | "Vec" | "Box" | "Option") {
                let text = format!(
                    "a fixed layout cannot hold a `{name}`, which is not in one place; write `[u8; N]`, and a field that \
                     says how much of it counts"
                );
                return Some(Error::new(of.span(), text));
            }
            let found = path
                .path
                .is_ident(&name)
                .then(|| REPLACEMENTS.iter().find(|(native, _)| *native == name));
            let (_, replacement) = found??;
            let text = format!(
                "a `{name}` is not the same bytes on every machine and at every address; write `{replacement}`"
            );
            Some(Error::new(of.span(), text))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(input: &DeriveInput) -> Vec<String> {
        let error = expand(input).expect_err("the struct is no fixed layout");
        error.into_iter().map(|error| error.to_string()).collect()
    }

    #[test]
    fn bytes_and_numbers_of_zerocopy_are_good() {
        let input = parse_quote! {
            #[repr(C, align(1))]
            #[erpc(crate = my::erpc)]
            struct Quote {
                price: U64,
                flags: u8,
                small: i8,
                name: [u8; 8],
                levels: [[little_endian::F64; 2]; 4],
            }
        };
        let expanded = expand(&input).unwrap().to_string();
        assert!(expanded.contains("impl my :: erpc :: FixedLayout for Quote"), "{expanded}");
    }

    #[test]
    fn every_field_that_is_not_is_named() {
        let errors = errors(&parse_quote! {
            #[repr(C)]
            struct Quote {
                price: u64,
                good: U64,
                bids: [f64; 2],
                name: String,
                of: &'static u8,
                live: bool,
            }
        });
        let expected = [
            "a `u64` is not the same bytes on every machine and at every address; write `erpc::zerocopy::little_endian::U64`",
            "a `f64` is not the same bytes on every machine and at every address; write `erpc::zerocopy::little_endian::F64`",
            "a fixed layout cannot hold a `String`, which is not in one place; write `[u8; N]`, and a field that says how \
             much of it counts",
            "a fixed layout holds values, not where they are; write the value, or `[u8; N]`",
            "a `bool` is not the same bytes on every machine and at every address; write `u8`",
        ];
        assert_eq!(errors, expected);
    }

    #[test]
    fn what_is_no_struct_with_an_order_is_refused() {
        let one = |input: DeriveInput| errors(&input).remove(0);
        assert!(
            one(parse_quote!(
                struct Quote {
                    a: u8,
                }
            ))
            .contains("add `#[repr(C)]`")
        );
        assert!(
            one(parse_quote!(
                #[repr(u8)]
                enum Side {
                    A,
                }
            ))
            .contains("a fixed layout is a struct")
        );
        assert!(
            one(parse_quote!(
                #[repr(C)]
                struct Of<T> {
                    a: T,
                }
            ))
            .contains("no type parameters")
        );
        assert!(
            one(parse_quote!(
                #[repr(C)]
                struct Nothing;
            ))
            .contains("at least one field")
        );
        assert!(
            one(parse_quote!(
                #[repr(C)]
                #[erpc(service = Kv)]
                struct A(u8);
            ))
            .contains("`crate = path`")
        );
    }
}
