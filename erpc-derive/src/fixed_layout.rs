//! `#[derive(FixedLayout)]`: the `impl`, and checks with clearer errors than those of `zerocopy`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Error, Fields, Path, Result, Type, parse_quote};

/// Types that are not the same bytes on every machine, and their replacements.
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
        let text = "a fixed layout must be a struct, because not every sequence of bytes is a value of an enum or a \
                    union; write a number, and a function that interprets it";
        return Err(Error::new(input.ident.span(), text));
    };
    if !input.generics.params.is_empty() {
        let text = "a fixed layout is always the same, so it cannot have generic parameters; write one struct for \
                    each type";
        return Err(Error::new(input.generics.span(), text));
    }
    if !has_fixed_repr(input)? {
        let text = "a fixed layout needs its fields in a fixed order; add `#[repr(C)]` in front of the struct";
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
        return Err(Error::new(input.ident.span(), "a fixed layout needs at least one field"));
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
                return Err(meta.error("unknown key; the only key is `crate = path`"));
            }
            path = meta.value()?.parse()?;
            Ok(())
        })?;
    }
    Ok(path)
}

/// Whether the type has `#[repr(C)]` or `#[repr(transparent)]`, also together with `packed`.
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

/// The error for a field's type, if its name alone shows that it is wrong. The derives of
/// `zerocopy` check the rest.
fn check(of: &Type) -> Option<Error> {
    match of {
        Type::Array(array) => check(&array.elem),
        Type::Reference(_) | Type::Ptr(_) => {
            let text = "a fixed layout cannot contain a reference or a pointer; write the value, or `[u8; N]`";
            Some(Error::new(of.span(), text))
        }
        Type::Path(path) => {
            let name = path.path.segments.last()?.ident.to_string();
            if matches!(name.as_str(), "String" | "Vec" | "Box" | "Option") {
                let text = format!(
                    "a fixed layout cannot contain a `{name}`, which has no fixed bytes; write `[u8; N]`, and a field \
                     with the number of bytes in use"
                );
                return Some(Error::new(of.span(), text));
            }
            let found = path
                .path
                .is_ident(&name)
                .then(|| REPLACEMENTS.iter().find(|(native, _)| *native == name));
            let (_, replacement) = found??;
            let text = format!(
                "a `{name}` is not the same bytes on every machine and at every address; write `{replacement}` instead"
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
        let error = expand(input).expect_err("the struct cannot have a fixed layout");
        error.into_iter().map(|error| error.to_string()).collect()
    }

    #[test]
    fn bytes_and_numbers_of_zerocopy_are_accepted() {
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
    fn every_field_without_a_fixed_layout_is_reported() {
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
            "a `u64` is not the same bytes on every machine and at every address; write \
             `erpc::zerocopy::little_endian::U64` instead",
            "a `f64` is not the same bytes on every machine and at every address; write \
             `erpc::zerocopy::little_endian::F64` instead",
            "a fixed layout cannot contain a `String`, which has no fixed bytes; write `[u8; N]`, and a field with the \
             number of bytes in use",
            "a fixed layout cannot contain a reference or a pointer; write the value, or `[u8; N]`",
            "a `bool` is not the same bytes on every machine and at every address; write `u8` instead",
        ];
        assert_eq!(errors, expected);
    }

    #[test]
    fn a_type_that_is_not_a_struct_with_a_fixed_order_is_refused() {
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
            .contains("a fixed layout must be a struct")
        );
        assert!(
            one(parse_quote!(
                #[repr(C)]
                struct Of<T> {
                    a: T,
                }
            ))
            .contains("cannot have generic parameters")
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
