//! The settings in `#[erpc(..)]` that override the `.proto` file: deadlines, sizes, idempotency.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote, quote_spanned};
use syn::meta::ParseNestedMeta;
use syn::spanned::Spanned;
use syn::{Error, Expr, ExprLit, Lit, LitBool, Result, Token};

use crate::expand::located;

/// The list of settings, for the error message about an unknown setting.
pub(crate) const SETTINGS: &str =
    "`deadline = \"20ms\"`, `max_request = 4096`, `max_response = 4096` and `idempotent`";

/// Units of deadlines, in ns.
const UNITS: [(&str, u64); 3] = [("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];

/// The settings as expressions; `None` if not set.
#[derive(Default)]
pub(crate) struct Settings {
    deadline: Option<TokenStream>,
    idempotent: Option<TokenStream>,
    max_request: Option<TokenStream>,
    max_response: Option<TokenStream>,
}

impl Settings {
    /// Adds the setting in `meta`. Returns `false` if `meta` is not a setting.
    pub(crate) fn add(&mut self, meta: &ParseNestedMeta<'_>) -> Result<bool> {
        let (place, value) = if meta.path.is_ident("deadline") {
            (&mut self.deadline, deadline(meta.value()?.parse()?)?)
        } else if meta.path.is_ident("idempotent") {
            (&mut self.idempotent, idempotent(meta)?)
        } else if meta.path.is_ident("max_request") {
            (&mut self.max_request, bytes(meta)?)
        } else if meta.path.is_ident("max_response") {
            (&mut self.max_response, bytes(meta)?)
        } else {
            return Ok(false);
        };
        let name = meta.path.to_token_stream();
        match place.replace(value) {
            None => Ok(true),
            Some(_) => Err(Error::new_spanned(&meta.path, format!("`{name}` is given twice"))),
        }
    }

    /// An expression for `MethodOptions` with these settings; `None` if no setting is set.
    pub(crate) fn expression(&self, erpc: &TokenStream) -> Option<TokenStream> {
        let Self { deadline, idempotent, max_request, max_response } = self;
        let said = [
            (deadline, quote!(deadline)),
            (idempotent, quote!(idempotent)),
            (max_request, quote!(max_request)),
            (max_response, quote!(max_response)),
        ];
        let calls: Vec<_> = said
            .into_iter()
            .filter_map(|(value, name)| {
                let value = value.as_ref()?;
                Some((value.span(), quote_spanned!(value.span()=> .#name(#value))))
            })
            .collect();
        // All tokens have the span of the user's text, so that an error points at it.
        let (first, _) = calls.first()?;
        let none = located(quote!(#erpc::service::MethodOptions::new()), *first);
        let calls = calls.iter().map(|(_, call)| call);
        Some(quote!(#none #(#calls)*))
    }
}

/// Translates a deadline: a string such as `"20ms"`, or an expression, which stays as it is.
fn deadline(value: Expr) -> Result<TokenStream> {
    let Expr::Lit(ExprLit { lit, .. }) = &value else { return Ok(value.into_token_stream()) };
    let nanos = match lit {
        Lit::Str(text) => nanos(&text.value()),
        _ => None,
    };
    let nanos = nanos.ok_or_else(|| {
        let text = "expected a whole number with a unit, `us`, `ms` or `s`: `deadline = \"20ms\"`";
        Error::new(lit.span(), text)
    })?;
    if nanos == 0 {
        let text = "a deadline of zero ends every call; for no deadline, leave it out";
        return Err(Error::new(lit.span(), text));
    }
    Ok(quote_spanned!(lit.span()=> ::core::time::Duration::from_nanos(#nanos)))
}

fn nanos(text: &str) -> Option<u64> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit() && c != '_')?;
    let (number, unit) = text.split_at(unit_at);
    let (_, nanos) = UNITS.iter().find(|(name, _)| *name == unit.trim())?;
    number.replace('_', "").parse::<u64>().ok()?.checked_mul(*nanos)
}

fn idempotent(meta: &ParseNestedMeta<'_>) -> Result<TokenStream> {
    if !meta.input.peek(Token![=]) {
        return Ok(quote_spanned!(meta.path.span()=> true));
    }
    Ok(meta.value()?.parse::<LitBool>()?.into_token_stream())
}

/// Reads a number of bytes: an integer, or an expression, which stays as it is.
fn bytes(meta: &ParseNestedMeta<'_>) -> Result<TokenStream> {
    let value: Expr = meta.value()?.parse()?;
    match &value {
        Expr::Lit(ExprLit { lit, .. }) if !matches!(lit, Lit::Int(_)) => {
            Err(Error::new(lit.span(), "expected a number of bytes: `max_request = 4096`"))
        }
        _ => Ok(value.into_token_stream()),
    }
}

#[cfg(test)]
mod tests {
    use syn::parse::Parser;

    use super::*;

    fn settings(tokens: TokenStream) -> Result<String> {
        let mut settings = Settings::default();
        syn::meta::parser(|meta| {
            let known = settings.add(&meta)?;
            assert!(known, "{} must be a setting", meta.path.to_token_stream());
            Ok(())
        })
        .parse2(tokens)?;
        let expression = settings.expression(&quote!(erpc)).unwrap_or_default();
        Ok(expression.to_string().replace(' ', ""))
    }

    #[test]
    fn settings_become_calls() {
        assert_eq!(settings(quote!()).unwrap(), "");
        assert_eq!(
            settings(quote!(
                max_response = 8 * KB,
                idempotent,
                deadline = "1_500us",
                max_request = 7
            ))
            .unwrap(),
            "erpc::service::MethodOptions::new()\
             .deadline(::core::time::Duration::from_nanos(1500000u64)).idempotent(true)\
             .max_request(7).max_response(8*KB)"
        );
        assert!(settings(quote!(idempotent = false)).unwrap().contains(".idempotent(false)"));
        assert!(settings(quote!(deadline = SOON)).unwrap().contains(".deadline(SOON)"));
    }

    #[test]
    fn a_deadline_needs_a_whole_number_and_a_unit() {
        for (text, expected) in [
            ("20ms", Some(20_000_000)),
            ("1 s", Some(1_000_000_000)),
            ("1_000us", Some(1_000_000)),
            ("0s", Some(0)),
            ("20", None),
            ("ms", None),
            ("1.5ms", None),
            ("-1ms", None),
            ("20 minutes", None),
            ("99999999999999999999s", None),
            ("18446744073709551s", None),
            ("", None),
        ] {
            assert_eq!(nanos(text), expected, "{text}");
        }
    }

    #[test]
    fn an_error_about_a_setting_says_what_to_write() {
        for (tokens, text) in [
            (quote!(deadline = 20), "`deadline = \"20ms\"`"),
            (quote!(deadline = "20 minutes"), "`us`, `ms` or `s`"),
            (quote!(deadline = "0ms"), "leave it out"),
            (quote!(max_request = "4 KiB"), "`max_request = 4096`"),
            (quote!(max_request = 1, max_request = 2), "`max_request` is given twice"),
            (quote!(idempotent, idempotent = false), "`idempotent` is given twice"),
        ] {
            let error = settings(tokens).unwrap_err().to_string();
            assert!(error.contains(text), "{error}");
        }
    }
}
