//! The code that `#[derive(Service)]` generates.

use heck::ToShoutySnakeCase;
use proc_macro2::{Group, Ident, Span, TokenStream, TokenTree};
use quote::{quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{DeriveInput, Result, parse_quote};

use crate::attributes::{Attributes, Mode};

pub(crate) fn expand(input: &DeriveInput) -> Result<TokenStream> {
    let attributes = Attributes::parse(input)?;
    let erpc = attributes.erpc.clone().unwrap_or_else(|| parse_quote!(::erpc));
    let (service_trait, module) = (&attributes.service.service_trait, &attributes.service.module);
    let options = options(&attributes, &quote!(#erpc));
    let bursts = attributes.bursts.iter().map(|(method, hook)| {
        let name = method.unraw().to_string().to_shouty_snake_case();
        let constant = Ident::new(&name, method.span());
        quote!(routes.on_burst(#module::methods::#constant, &self, Self::#hook);)
    });
    let name = &input.ident;
    let mut generics = input.generics.clone();
    // If the trait is not implemented, the error points at the user's path. The bound also implies
    // the supertraits.
    let bound = quote_spanned!(service_trait.span()=> Self: #service_trait);
    generics.make_where_clause().predicates.push(parse_quote!(#bound));
    let (impl_generics, type_generics, where_clause) = generics.split_for_impl();
    Ok(quote! {
        const _: () = {
            #options

            #[automatically_derived]
            impl #impl_generics #erpc::Service for #name #type_generics #where_clause {
                const NAME: &'static str = #module::NAME;

                fn register(
                    self: ::std::sync::Arc<Self>,
                    routes: &mut #erpc::service::Routes,
                ) -> ::std::result::Result<(), #erpc::service::MethodCollision> {
                    #module::register(&self, ERPC_OPTIONS, routes)?;
                    #(#bursts)*
                    ::std::result::Result::Ok(())
                }
            }
        };
    })
}

/// The options as a constant, so that an unknown method is an error at compile time. The constant's
/// name should not collide with a name in the user's expressions.
fn options(attributes: &Attributes, erpc: &TokenStream) -> TokenStream {
    let module = &attributes.service.module;
    let mode = |mode| match mode {
        Mode::Dispatch => quote!(#erpc::service::Mode::Dispatch),
        Mode::Worker => quote!(#erpc::service::Mode::Worker),
    };
    let all = attributes.default_mode.map(mode).map(|mode| quote!(.all(#mode)));
    let settings = attributes.settings.expression(erpc).map(|said| quote!(.all_with(#said)));
    // The tokens have the span of the user's text, so that an error points at it.
    let modes = attributes.methods.iter().map(|(method, listed)| {
        let (name, mode) = (method.unraw().to_string(), mode(*listed));
        located(quote!(options.run(#name, #mode)), method.span())
    });
    let of_methods = attributes.of_methods.iter().map(|(method, settings)| {
        let said = settings
            .expression(erpc)
            .unwrap_or_else(|| quote!(#erpc::service::MethodOptions::new()));
        let name = method.unraw().to_string();
        quote_spanned!(method.span()=> options.with(#name, #said))
    });
    let bursts = attributes.bursts.iter().map(|(method, _)| {
        let name = method.unraw().to_string();
        located(quote!(options.burst(#name)), method.span())
    });
    let changes = modes.chain(of_methods).chain(bursts);
    quote! {
        const ERPC_OPTIONS: #erpc::service::ServiceOptions<{ #module::OPTIONS.count() }> = {
            let options = #module::OPTIONS #all #settings;
            #(let options = #changes;)*
            options
        };
    }
}

/// The same tokens, all with the span `span`.
pub(crate) fn located(tokens: TokenStream, span: Span) -> TokenStream {
    let relocate = |token| match token {
        TokenTree::Group(group) => {
            let mut moved = Group::new(group.delimiter(), located(group.stream(), span));
            moved.set_span(span);
            TokenTree::Group(moved)
        }
        mut token => {
            token.set_span(span);
            token
        }
    };
    tokens.into_iter().map(relocate).collect()
}
