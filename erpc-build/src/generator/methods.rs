//! One constant per method: its name, its types and its options.

use proc_macro2::{Literal, TokenStream};
use prost_build::Method;
use quote::{ToTokens, quote};

use super::Scope;
use super::docs::docs;
use super::names::{ident, method_const};
use crate::layout::Layout;

impl Scope<'_> {
    pub(super) fn methods(&self) -> TokenStream {
        let consts = self.service.methods.iter().map(|method| self.method(method));
        let docs = docs(&[
            "The service's methods by name and type, for calls and handlers without the generated code.",
        ]);
        quote! {
            #docs
            pub mod methods {
                #(#consts)*
            }
        }
    }

    fn method(&self, method: &Method) -> TokenStream {
        let erpc = self.erpc();
        let name = method_const(method);
        let full_name = self.method_full_name(method);
        let (request, response) = (self.request(method, 2), self.response(method, 2));
        let docs = docs(&[&format!("`{full_name}`.")]);
        let declared = self.declared(method);
        let codecs = self.codecs(method);
        quote! {
            #docs
            pub const #name: #erpc::service::Method<#request, #response #codecs> =
                #erpc::service::Method::new(#full_name) #declared;
        }
    }

    /// The type arguments for the codecs of requests and responses. None if both are the default
    /// `Prost`, and only one if both are `Fixed`.
    fn codecs(&self, method: &Method) -> TokenStream {
        let erpc = self.erpc();
        let codec = |name: &str| {
            let name = ident(name);
            quote!(#erpc::service::#name)
        };
        let request = match self.layout(&method.input_proto_type) {
            Some(Layout::Fixed) => "Fixed",
            // Only handlers that are plain functions get a view: it borrows from the packet, so it
            // cannot live across an `await`.
            Some(Layout::View) if self.plan(method).shape.is_sync() => "Borrowed",
            _ => "Prost",
        };
        let response = match self.layout(&method.output_proto_type) {
            Some(Layout::Fixed) => "Fixed",
            Some(Layout::View) => "Borrowed",
            None => "Prost",
        };
        match (request, response) {
            ("Prost", "Prost") => quote!(),
            ("Fixed", "Fixed") => {
                let both = codec("Fixed");
                quote!(, #both)
            }
            _ => {
                let (request, response) = (codec(request), codec(response));
                quote!(, #request, #response)
            }
        }
    }

    /// The method's options that clients and servers use.
    fn declared(&self, method: &Method) -> TokenStream {
        let plan = self.plan(method);
        let idempotent = plan.idempotent.then(|| quote!(.idempotent()));
        let deadline = (plan.deadline_us > 0).then(|| duration(plan.deadline_us));
        let deadline = deadline.map(|duration| quote!(.deadline(#duration)));
        let limit = |bytes: u32| (bytes > 0).then(|| number(bytes.into()));
        let max_request = limit(plan.max_request).map(|bytes| quote!(.max_request(#bytes)));
        let max_response = limit(plan.max_response).map(|bytes| quote!(.max_response(#bytes)));
        quote!(#idempotent #deadline #max_request #max_response)
    }
}

/// A `Duration` in the largest unit that is exact.
fn duration(micros: u64) -> TokenStream {
    let (from, count) = match micros {
        _ if micros.is_multiple_of(1_000_000) => ("from_secs", micros / 1_000_000),
        _ if micros.is_multiple_of(1_000) => ("from_millis", micros / 1_000),
        _ => ("from_micros", micros),
    };
    let (from, count) = (ident(from), number(count));
    quote!(::std::time::Duration::#from(#count))
}

/// A literal with digits in groups of three.
fn number(number: u64) -> TokenStream {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push('_');
        }
        text.push(digit);
    }
    text.parse().unwrap_or_else(|_| Literal::u64_unsuffixed(number).into_token_stream())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(tokens: &TokenStream) -> String {
        tokens.to_string().replace(' ', "")
    }

    #[test]
    fn digits_of_numbers_are_grouped_by_three() {
        for (value, written) in
            [(1, "1"), (999, "999"), (65_536, "65_536"), (1_000_000, "1_000_000")]
        {
            assert_eq!(text(&number(value)), written);
        }
    }

    #[test]
    fn durations_have_the_largest_exact_unit() {
        for (micros, written) in
            [(1, "from_micros(1)"), (5_000, "from_millis(5)"), (60_000_000, "from_secs(60)")]
        {
            assert_eq!(text(&duration(micros)), format!("::std::time::Duration::{written}"));
        }
    }
}
