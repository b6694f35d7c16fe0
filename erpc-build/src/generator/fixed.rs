//! Messages with a fixed layout: structs that are their own bytes.

use std::collections::HashSet;

use proc_macro2::{Ident, Literal, TokenStream};
use protox::prost_reflect::{FieldDescriptor, Kind, MessageDescriptor};
use quote::{format_ident, quote};

use super::docs;
use super::names::{free, ident, plain};
use super::{Generator, package_type};
use crate::options::field_size;
use crate::types::escaped;

/// A field on both of its sides: in the struct, and in the functions that set and get it.
struct Field {
    name: Ident,
    getter: Ident,
    setter: Ident,
    docs: TokenStream,
    /// Bytes.
    size: u64,
    /// In the struct.
    stored: TokenStream,
    /// The stored zero.
    zero: TokenStream,
    /// What is set.
    native: TokenStream,
    /// From `native`, in a variable of the field's name, to `stored`.
    store: TokenStream,
    /// What the getter returns, and how: `const` or not.
    read_type: TokenStream,
    read: TokenStream,
    is_const: bool,
}

impl Generator {
    pub(super) fn fixed(&self, message: &MessageDescriptor) -> TokenStream {
        let erpc = &self.erpc;
        let name = package_type(message.name());
        let mut taken: HashSet<String> = ["new", "unused"].map(String::from).into();
        let mut fields: Vec<_> = message.fields().collect();
        fields.sort_by_key(FieldDescriptor::number);
        let fields: Vec<_> =
            fields.iter().map(|field| self.fixed_field(field, &mut taken)).collect();
        let size: u64 = fields.iter().map(|field| field.size).sum();
        let layout = format!("{size} bytes, the fields in the order of their numbers.");
        let fallback = format!("`{}`.", message.full_name());
        let docs = docs::docs_or(
            &docs::comments(&message.parent_file(), message.path()),
            &fallback,
            &[&layout],
        );
        let attributes = self.messages.of(message.full_name());
        let zerocopy = format!("{erpc}::zerocopy").replace(' ', "");
        let derives = ["FromBytes", "IntoBytes", "KnownLayout", "Immutable", "Unaligned"];
        let derives = derives.map(|name| {
            let name = ident(name);
            quote!(#erpc::zerocopy::#name)
        });
        let stored = fields.iter().map(|Field { name, stored, .. }| quote!(#name: #stored));
        let zeros = fields.iter().map(|Field { name, zero, .. }| quote!(#name: #zero));
        let functions = fields.iter().map(Field::functions);
        let new_docs = docs::docs(&["All fields zero."]);
        let unused_docs = docs::docs(&["Unused itself, as is expected above."]);
        quote! {
            #docs
            #attributes
            #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, #(#derives),*)]
            #[zerocopy(crate = #zerocopy)]
            #[repr(C)]
            pub struct #name { #(#stored),* }
            #[expect(dead_code, reason = "a program seldom uses all of a message")]
            impl #name {
                #unused_docs
                fn unused() {}
                #new_docs
                #[must_use]
                pub const fn new() -> Self {
                    Self { #(#zeros),* }
                }
                #(#functions)*
            }
            impl ::core::default::Default for #name {
                fn default() -> Self {
                    Self::new()
                }
            }
            impl #erpc::service::FixedLayout for #name {}
        }
    }

    fn fixed_field(&self, field: &FieldDescriptor, taken: &mut HashSet<String>) -> Field {
        let name = ident(&escaped(heck::ToSnakeCase::to_snake_case(field.name())));
        let text = name.to_string();
        let getter = free(&text, taken);
        let setter = free(&format!("with_{}", plain(&text)), taken);
        let fallback = format!("`{}`.", field.name());
        let comments = docs::comments(&field.parent_message().parent_file(), field.path());
        let docs = docs::docs_or(&comments, &fallback, &[]);
        let number = |size: u64, prefix: &str| {
            let (stored, native) = (format_ident!("{prefix}{}", size * 8), native(prefix, size));
            let erpc = &self.erpc;
            let stored = quote!(#erpc::zerocopy::little_endian::#stored);
            Field {
                size,
                zero: quote!(#stored::ZERO),
                store: quote!(#stored::new(#name)),
                read: quote!(self.#name.get()),
                read_type: quote!(#native),
                native: quote!(#native),
                stored,
                is_const: true,
                name: name.clone(),
                getter: getter.clone(),
                setter: setter.clone(),
                docs: docs.clone(),
            }
        };
        let package = field.parent_message().package_name().to_owned();
        match field.kind() {
            Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => number(4, "I"),
            Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => number(8, "I"),
            Kind::Uint32 | Kind::Fixed32 => number(4, "U"),
            Kind::Uint64 | Kind::Fixed64 => number(8, "U"),
            Kind::Float => number(4, "F"),
            Kind::Double => number(8, "F"),
            Kind::Bool => Field {
                size: 1,
                stored: quote!(u8),
                zero: quote!(0),
                native: quote!(bool),
                store: quote!(#name as u8),
                read_type: quote!(bool),
                read: quote!(self.#name != 0),
                ..number(4, "U")
            },
            Kind::Enum(of) => {
                let of = self.types.enumeration(&package, &of);
                let stored = number(4, "I");
                let store = &stored.stored;
                Field {
                    store: quote!(#store::new(#name as i32)),
                    read: quote!(#of::try_from(self.#name.get()).ok()),
                    read_type: quote!(::core::option::Option<#of>),
                    native: of,
                    is_const: false,
                    ..number(4, "I")
                }
            }
            Kind::Message(of) => {
                let size = fixed_size(&of);
                let of = self.types.message(&package, &of);
                Field {
                    size,
                    zero: quote!(#of::new()),
                    store: quote!(#name),
                    read: quote!(&self.#name),
                    read_type: quote!(&#of),
                    native: of.clone(),
                    stored: of,
                    ..number(4, "U")
                }
            }
            // Bytes; others have been refused.
            _ => {
                let size = field_size(field);
                let count = Literal::u32_unsuffixed(size);
                let of = quote!([u8; #count]);
                Field {
                    size: size.into(),
                    zero: quote!([0; #count]),
                    store: quote!(#name),
                    read: quote!(&self.#name),
                    read_type: quote!(&#of),
                    native: of.clone(),
                    stored: of,
                    ..number(4, "U")
                }
            }
        }
    }
}

impl Field {
    fn functions(&self) -> TokenStream {
        let Self { name, getter, setter, docs, native, store, read_type, read, .. } = self;
        let is_const = self.is_const.then(|| quote!(const));
        let setter_docs =
            docs::docs(&[&format!("The same with another `{}`.", plain(&getter.to_string()))]);
        let unknown =
            (!self.is_const).then(|| docs::docs(&["", "`None` for a value of a later version."]));
        quote! {
            #docs
            #unknown
            #[must_use]
            pub #is_const fn #getter(&self) -> #read_type {
                #read
            }
            #setter_docs
            #[must_use]
            pub const fn #setter(mut self, #name: #native) -> Self {
                self.#name = #store;
                self
            }
        }
    }
}

fn native(prefix: &str, size: u64) -> Ident {
    format_ident!("{}{}", prefix.to_lowercase(), size * 8)
}

/// Bytes of a message with a fixed layout.
fn fixed_size(message: &MessageDescriptor) -> u64 {
    let size = |field: FieldDescriptor| match field.kind() {
        Kind::Bool => 1,
        Kind::Double
        | Kind::Int64
        | Kind::Sint64
        | Kind::Sfixed64
        | Kind::Uint64
        | Kind::Fixed64 => 8,
        Kind::Bytes => field_size(&field).into(),
        Kind::Message(of) => fixed_size(&of),
        _ => 4,
    };
    message.fields().map(size).sum()
}
