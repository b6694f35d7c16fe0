//! Views: structs that borrow text and bytes of a message, from the received packet or from what a
//! service stores.

use proc_macro2::{Literal, TokenStream};
use protox::prost_reflect::{Cardinality, FieldDescriptor, Kind, MessageDescriptor};
use quote::quote;

use super::Generator;
use super::docs;
use super::names::ident;
use crate::types::{escaped, view_name};

impl Generator {
    pub(super) fn view(&self, message: &MessageDescriptor) -> TokenStream {
        let erpc = &self.erpc;
        let package = message.package_name();
        let name = ident(&view_name(message));
        let of = self.types.message(package, message);
        let docs = docs::docs(&[&format!(
            "A view of [`{of}`]: text and bytes are borrowed, for example from the received packet."
        )
        .replace(" :: ", "::")]);
        let lifetime = borrows(message).then(|| quote!(<'a>));
        let borrow = borrows(message).then(|| quote!('a));
        let fields = message.fields().map(|field| self.view_field(&field));
        let reads: Vec<_> = message.fields().map(|field| self.read(&field)).collect();
        let tags = message.fields().map(|field| Literal::u32_unsuffixed(field.number()));
        let arms = reads.iter().map(|(key, read)| quote!(#key => #read,));
        let mut fields_by_tag: Vec<_> = message.fields().collect();
        fields_by_tag.sort_by_key(FieldDescriptor::number);
        let writes = fields_by_tag.iter().map(|field| self.write(field));
        let any = borrows(message).then(|| quote!(<'_>));
        // `self::`, because a message may have the name of the type parameter `C`.
        quote! {
            #docs
            #[derive(Clone, Copy, PartialEq, Default, Debug)]
            pub struct #name #lifetime { #(#fields),* }
            impl #erpc::service::Viewable for #of {
                type View<'a> = #name #lifetime;
                fn merge_view #lifetime(
                    view: &mut #name #lifetime,
                    bytes: & #borrow [u8],
                ) -> ::core::result::Result<(), #erpc::service::DecodeError> {
                    let mut fields = #erpc::service::Fields::new(bytes);
                    while let Some(key) = fields.next()? {
                        match key {
                            #(#arms)*
                            _ => fields.other(key, &[#(#tags),*])?,
                        }
                    }
                    Ok(())
                }
                fn write_view(view: &#name #any, fields: &mut impl #erpc::service::FieldSink) {
                    #(#writes)*
                }
            }
            impl #erpc::service::Encodes<#of> for #name #any {
                fn encoded_len<C: #erpc::service::Codec<self::#of>>(&self) -> usize {
                    #erpc::service::view_len::<C, self::#of>(self)
                }
                fn encode<C: #erpc::service::Codec<self::#of>>(
                    &self,
                    out: &mut impl #erpc::service::BufMut,
                ) {
                    #erpc::service::encode_view::<C, self::#of>(self, out);
                }
            }
        }
    }

    /// The type of a view of a message, relative to the module of `package`.
    pub(super) fn view_type(&self, package: &str, message: &MessageDescriptor) -> TokenStream {
        let view = self.types.view(package, message);
        let lifetime = borrows(message).then(|| quote!(<'_>));
        quote!(#view #lifetime)
    }

    fn view_field(&self, field: &FieldDescriptor) -> TokenStream {
        let fallback = format!("`{}`.", field.name());
        let comments = docs::comments(&field.parent_message().parent_file(), field.path());
        let docs = docs::docs_or(&comments, &fallback, &[]);
        let name = field_ident(field);
        let one = match field.kind() {
            Kind::String => quote!(&'a str),
            Kind::Bytes => quote!(&'a [u8]),
            Kind::Message(of) => {
                let view = self.types.view(field.parent_message().package_name(), &of);
                let lifetime = borrows(&of).then(|| quote!(<'a>));
                quote!(#view #lifetime)
            }
            Kind::Float => quote!(f32),
            Kind::Double => quote!(f64),
            Kind::Uint32 | Kind::Fixed32 => quote!(u32),
            Kind::Uint64 | Kind::Fixed64 => quote!(u64),
            Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => quote!(i64),
            Kind::Bool => quote!(bool),
            Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 | Kind::Enum(_) => quote!(i32),
        };
        let of = if is_optional(field) { quote!(::core::option::Option<#one>) } else { one };
        quote!(#docs pub #name: #of)
    }

    /// A field's key, and the code that reads its value from `fields` into `view`.
    fn read(&self, field: &FieldDescriptor) -> (Literal, TokenStream) {
        let name = field_ident(field);
        let read = match field.kind() {
            // If the field occurs twice, the second is merged into the first, as protobuf requires.
            Kind::Message(of) => {
                let erpc = &self.erpc;
                let of = self.types.message(field.parent_message().package_name(), &of);
                let inner = quote!(view.#name.get_or_insert_default());
                quote!({ <#of as #erpc::service::Viewable>::merge_view(#inner, fields.bytes()?)?; })
            }
            kind => {
                let reader = ident(function(&kind));
                let value = quote!(fields.#reader()?);
                let value = if is_optional(field) { quote!(Some(#value)) } else { value };
                quote!(view.#name = #value)
            }
        };
        (Literal::u32_unsuffixed(field.number() << 3 | wire_type(&field.kind())), read)
    }

    /// The code that passes a field of `view` to `fields`, unless the encoding of the owned message
    /// leaves it out, too.
    fn write(&self, field: &FieldDescriptor) -> TokenStream {
        let (name, tag) = (field_ident(field), Literal::u32_unsuffixed(field.number()));
        let is_required = field.cardinality() == Cardinality::Required;
        if let Kind::Message(of) = field.kind() {
            let of = self.types.message(field.parent_message().package_name(), &of);
            return match is_required {
                true => quote!(fields.message::<#of>(#tag, &view.#name.unwrap_or_default());),
                false => quote! {
                    if let Some(inner) = &view.#name {
                        fields.message::<#of>(#tag, inner);
                    }
                },
            };
        }
        let write = ident(function(&field.kind()));
        let is_there = match field.kind() {
            _ if is_required => return quote!(fields.#write(#tag, view.#name);),
            _ if is_optional(field) => {
                return quote! {
                    if let Some(value) = view.#name {
                        fields.#write(#tag, value);
                    }
                };
            }
            Kind::String | Kind::Bytes => quote!(!view.#name.is_empty()),
            Kind::Bool => quote!(view.#name),
            Kind::Float | Kind::Double => quote!(view.#name != 0.0),
            _ => quote!(view.#name != 0),
        };
        quote! {
            if #is_there {
                fields.#write(#tag, view.#name);
            }
        }
    }
}

fn wire_type(kind: &Kind) -> u32 {
    match kind {
        Kind::Double | Kind::Fixed64 | Kind::Sfixed64 => 1,
        Kind::String | Kind::Bytes | Kind::Message(_) => 2,
        Kind::Float | Kind::Fixed32 | Kind::Sfixed32 => 5,
        _ => 0,
    }
}

/// The functions of `erpc::service::Fields` and `FieldSink` that read and write values of `kind`.
fn function(kind: &Kind) -> &'static str {
    match kind {
        Kind::Double => "double",
        Kind::Float => "float",
        // Enums are read as numbers, because later versions may add values.
        Kind::Int32 | Kind::Enum(_) => "int32",
        Kind::Int64 => "int64",
        Kind::Uint32 => "uint32",
        Kind::Uint64 => "uint64",
        Kind::Sint32 => "sint32",
        Kind::Sint64 => "sint64",
        Kind::Fixed32 => "fixed32",
        Kind::Fixed64 => "fixed64",
        Kind::Sfixed32 => "sfixed32",
        Kind::Sfixed64 => "sfixed64",
        Kind::Bool => "bool",
        Kind::String => "string",
        Kind::Bytes | Kind::Message(_) => "bytes",
    }
}

fn field_ident(field: &FieldDescriptor) -> proc_macro2::Ident {
    ident(&escaped(heck::ToSnakeCase::to_snake_case(field.name())))
}

fn is_optional(field: &FieldDescriptor) -> bool {
    let is_message = matches!(field.kind(), Kind::Message(_));
    is_message || field.supports_presence() && field.cardinality() != Cardinality::Required
}

/// Whether a message's view borrows anything.
fn borrows(message: &MessageDescriptor) -> bool {
    message.fields().any(|field| match field.kind() {
        Kind::String | Kind::Bytes => true,
        Kind::Message(of) => borrows(&of),
        _ => false,
    })
}
