//! Messages with a fixed layout: structs whose bytes are their encoding.

use std::collections::HashSet;

use proc_macro2::{Ident, Literal, TokenStream};
use protox::prost_reflect::{FieldDescriptor, Kind, MessageDescriptor};
use quote::{format_ident, quote};

use super::docs;
use super::names::{free, ident, plain};
use super::{Generator, package_type};
use crate::options::field_size;
use crate::types::escaped;

/// A field of a struct with a fixed layout, and its functions.
struct Field {
    name: Ident,
    getter: Ident,
    setter: Ident,
    docs: TokenStream,
    form: Form,
}

/// A field's types in the struct and in its getter and setter, and the conversions between them.
struct Form {
    /// Size in bytes.
    size: u64,
    /// Type in the struct.
    stored: TokenStream,
    /// Zero as a `stored` value.
    zero: TokenStream,
    /// Parameter type of the setter.
    native: TokenStream,
    /// Expression that converts the setter's parameter, which has the field's name, to `stored`.
    store: TokenStream,
    /// Return type of the getter.
    read_type: TokenStream,
    /// Body of the getter.
    read: TokenStream,
    /// Whether the getter is `const`.
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
        let size: u64 = fields.iter().map(|field| field.form.size).sum();
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
        let stored = fields
            .iter()
            .map(|Field { name, form: Form { stored, .. }, .. }| quote!(#name: #stored));
        let zeros =
            fields.iter().map(|Field { name, form: Form { zero, .. }, .. }| quote!(#name: #zero));
        let functions = fields.iter().map(Field::functions);
        let new_docs = docs::docs(&["All fields zero."]);
        let unused_docs =
            docs::docs(&["Never called, so that the lint expectation above is fulfilled."]);
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
        let form = self.form(field, &name);
        Field { name, getter, setter, docs, form }
    }

    fn form(&self, field: &FieldDescriptor, name: &Ident) -> Form {
        let package = field.parent_message().package_name().to_owned();
        match field.kind() {
            Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => self.number(name, "I", 4),
            Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => self.number(name, "I", 8),
            Kind::Uint32 | Kind::Fixed32 => self.number(name, "U", 4),
            Kind::Uint64 | Kind::Fixed64 => self.number(name, "U", 8),
            Kind::Float => self.number(name, "F", 4),
            Kind::Double => self.number(name, "F", 8),
            Kind::Bool => Form::boolean(name),
            Kind::Enum(of) => {
                let of = self.types.enumeration(&package, &of);
                let number = self.number(name, "I", 4);
                let stored = &number.stored;
                Form {
                    store: quote!(#stored::new(#name as i32)),
                    read: quote!(#of::try_from(self.#name.get()).ok()),
                    read_type: quote!(::core::option::Option<#of>),
                    native: of,
                    is_const: false,
                    ..number
                }
            }
            Kind::Message(of) => {
                let size = fixed_size(&of);
                let of = self.types.message(&package, &of);
                Form::in_place(name, size, quote!(#of::new()), of)
            }
            // Only bytes are left: `layout::read` has refused the other kinds.
            _ => {
                let size = field_size(field);
                let count = Literal::u32_unsuffixed(size);
                Form::in_place(name, size.into(), quote!([0; #count]), quote!([u8; #count]))
            }
        }
    }

    /// A number of `size` bytes; `prefix` is the letter of its type's name, such as `U` of `U32`.
    fn number(&self, name: &Ident, prefix: &str, size: u64) -> Form {
        let (erpc, bits) = (&self.erpc, size * 8);
        let stored = format_ident!("{prefix}{bits}");
        let stored = quote!(#erpc::zerocopy::little_endian::#stored);
        let native = format_ident!("{}{bits}", prefix.to_lowercase());
        let native = quote!(#native);
        Form {
            size,
            zero: quote!(#stored::ZERO),
            store: quote!(#stored::new(#name)),
            read: quote!(self.#name.get()),
            read_type: native.clone(),
            native,
            stored,
            is_const: true,
        }
    }
}

impl Form {
    fn boolean(name: &Ident) -> Self {
        Self {
            size: 1,
            stored: quote!(u8),
            zero: quote!(0),
            native: quote!(bool),
            store: quote!(#name as u8),
            read_type: quote!(bool),
            read: quote!(self.#name != 0),
            is_const: true,
        }
    }

    /// A field that is stored unchanged; its getter returns a reference.
    fn in_place(name: &Ident, size: u64, zero: TokenStream, of: TokenStream) -> Self {
        Self {
            size,
            zero,
            store: quote!(#name),
            read: quote!(&self.#name),
            read_type: quote!(&#of),
            native: of.clone(),
            stored: of,
            is_const: true,
        }
    }
}

impl Field {
    fn functions(&self) -> TokenStream {
        let Self { name, getter, setter, docs, form } = self;
        let Form { native, store, read_type, read, .. } = form;
        let is_const = form.is_const.then(|| quote!(const));
        let setter_docs = docs::docs(&[&format!(
            "Returns the message with another `{}`.",
            plain(&getter.to_string())
        )]);
        let unknown = (!form.is_const)
            .then(|| docs::docs(&["", "`None` for a value that this version does not know."]));
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

/// Size of a message with a fixed layout, in bytes.
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
