//! Parses `#[erpc(..)]`.

use std::collections::HashMap;

use proc_macro2::Ident;
use syn::ext::IdentExt;
use syn::meta::ParseNestedMeta;
use syn::parse::Parser;
use syn::punctuated::Punctuated;
use syn::{DeriveInput, Error, LitStr, Path, Result, Token, parenthesized};

use crate::service_path::ServicePath;
use crate::settings::{SETTINGS, Settings};

const KEYS: &str = "`service = path::to::Trait`, `worker(Method, ..)`, `worker`, `dispatch(Method, ..)`, `default_mode = ..`, \
                    `burst(Method = function, ..)`, `method(Method, ..)` and `crate = path`, and for all methods ";

/// The error for `async(..)`, which users may expect because `worker(..)` exists.
const ASYNC: &str = "`async` cannot be set here, because the generated trait determines it: write \
                     `option (erpc.method).mode = ASYNC;` in the .proto file, or `.mode(\"package.Service/Method\", \
                     erpc_build::Mode::Async)` in the build script, and implement the method as an `async fn`";

/// The error for `default_mode = async` and the like.
const DEFAULT_MODE: &str = "`default_mode` is `dispatch` or `worker` here: where a plain `fn` runs. Whether handlers are \
                            `async fn`s is part of the generated trait: write `.default_mode(erpc_build::Mode::Tokio)` \
                            or `.default_mode(erpc_build::Mode::Async)` in the build script";

const UNQUOTED: &str =
    "write the name of the method as in the .proto file, without quotes, such as `worker(Scan)`";

/// Where a method runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    Dispatch,
    Worker,
}

/// All attributes of a type.
pub(crate) struct Attributes {
    pub(crate) service: ServicePath,
    /// Mode of the methods that are not listed; overrides the `.proto` file.
    pub(crate) default_mode: Option<Mode>,
    /// Methods by their names in the `.proto` file, in the order of the attribute.
    pub(crate) methods: Vec<(Ident, Mode)>,
    /// The methods with a burst hook, and the hooks: functions of the type.
    pub(crate) bursts: Vec<(Ident, Ident)>,
    /// Settings of all methods.
    pub(crate) settings: Settings,
    /// Settings of single methods.
    pub(crate) of_methods: Vec<(Ident, Settings)>,
    /// The path of the crate `erpc`; `None` for `::erpc`.
    pub(crate) erpc: Option<Path>,
}

/// [`Attributes`] during parsing.
#[derive(Default)]
struct Draft {
    service: Option<ServicePath>,
    default_mode: Option<Mode>,
    methods: Vec<(Ident, Mode)>,
    bursts: Vec<(Ident, Ident)>,
    settings: Settings,
    of_methods: Vec<(Ident, Settings)>,
    erpc: Option<Path>,
}

impl Attributes {
    pub(crate) fn parse(input: &DeriveInput) -> Result<Self> {
        let mut draft = Draft::default();
        for attribute in input.attrs.iter().filter(|attribute| attribute.path().is_ident("erpc")) {
            attribute.parse_nested_meta(|meta| draft.add(&meta))?;
        }
        draft.finish(&input.ident)
    }
}

impl Draft {
    fn add(&mut self, meta: &ParseNestedMeta<'_>) -> Result<()> {
        if meta.path.is_ident("service") {
            let path = service_path(meta)?;
            let again = "`service` is given twice; a type implements one service, so write another type for the second";
            once(&mut self.service, path, meta, again)
        } else if meta.path.is_ident("crate") {
            let path = meta.value()?.parse()?;
            once(&mut self.erpc, path, meta, "`crate` is given twice")
        } else if meta.path.is_ident("worker") && !meta.input.peek(syn::token::Paren) {
            once(&mut self.default_mode, Mode::Worker, meta, "`worker` is given twice")
        } else if meta.path.is_ident("default_mode") {
            let mode = default_mode(meta)?;
            once(&mut self.default_mode, mode, meta, "the default mode is given twice")
        } else if meta.path.is_ident("worker") {
            self.add_methods(meta, Mode::Worker)
        } else if meta.path.is_ident("dispatch") {
            self.add_methods(meta, Mode::Dispatch)
        } else if meta.path.is_ident("burst") {
            self.add_bursts(meta)
        } else if meta.path.is_ident("method") {
            self.add_settings(meta)
        } else if meta.path.segments.len() == 1 && meta.path.segments[0].ident == "async" {
            Err(meta.error(ASYNC))
        } else if self.settings.add(meta)? {
            Ok(())
        } else {
            Err(meta.error(format!("unknown key; the keys are {KEYS}{SETTINGS}")))
        }
    }

    /// Adds the settings of one method, such as `method(Get, deadline = "20ms")`.
    fn add_settings(&mut self, meta: &ParseNestedMeta<'_>) -> Result<()> {
        const EXPECTED: &str =
            "expected a method and its settings, such as `method(Get, deadline = \"20ms\")`";
        if !meta.input.peek(syn::token::Paren) {
            return Err(meta.error(EXPECTED));
        }
        let list;
        parenthesized!(list in meta.input);
        if list.peek(LitStr) {
            return Err(list.error(UNQUOTED));
        }
        let method = Ident::parse_any(&list).map_err(|error| Error::new(error.span(), EXPECTED))?;
        if list.is_empty() {
            return Err(Error::new(method.span(), EXPECTED));
        }
        list.parse::<Token![,]>()?;
        let mut settings = Settings::default();
        let add = |meta: ParseNestedMeta<'_>| {
            let mode = meta.path.get_ident().filter(|key| *key == "worker" || *key == "dispatch");
            if let Some(mode) = mode {
                let text = format!(
                    "`{mode}` cannot be in `method(..)`; write `{mode}({method})` outside of it"
                );
                return Err(meta.error(text));
            }
            match settings.add(&meta)? {
                true => Ok(()),
                false => {
                    Err(meta.error(format!("unknown key; the keys of a method are {SETTINGS}")))
                }
            }
        };
        syn::meta::parser(add).parse2(list.parse()?)?;
        if self.of_methods.iter().any(|(other, _)| *other == method) {
            let text = format!("`{method}` has a `method(..)` already; write all settings there");
            return Err(Error::new(method.span(), text));
        }
        self.of_methods.push((method, settings));
        Ok(())
    }

    /// Adds burst hooks, such as `burst(Get = look_ahead)`.
    fn add_bursts(&mut self, meta: &ParseNestedMeta<'_>) -> Result<()> {
        const EXPECTED: &str =
            "expected methods and functions of the type, such as `burst(Get = look_ahead)`";
        if !meta.input.peek(syn::token::Paren) {
            return Err(meta.error(EXPECTED));
        }
        let list;
        parenthesized!(list in meta.input);
        if list.peek(LitStr) {
            return Err(list.error(UNQUOTED));
        }
        let expected = |error: Error| Error::new(error.span(), EXPECTED);
        while !list.is_empty() {
            let method = Ident::parse_any(&list).map_err(expected)?;
            list.parse::<Token![=]>().map_err(expected)?;
            let hook: Ident = list.parse().map_err(expected)?;
            if self.bursts.iter().any(|(other, _)| other.unraw() == method.unraw()) {
                let text = format!("`{method}` has a burst hook already");
                return Err(Error::new(method.span(), text));
            }
            self.bursts.push((method, hook));
            if !list.is_empty() {
                list.parse::<Token![,]>()?;
            }
        }
        match self.bursts.is_empty() {
            true => Err(meta.error(EXPECTED)),
            false => Ok(()),
        }
    }

    fn add_methods(&mut self, meta: &ParseNestedMeta<'_>, mode: Mode) -> Result<()> {
        if !meta.input.peek(syn::token::Paren) {
            return Err(meta.error("expected methods, such as `dispatch(Get)`"));
        }
        let list;
        parenthesized!(list in meta.input);
        if list.peek(LitStr) {
            return Err(list.error(UNQUOTED));
        }
        // Accept any identifier, because the name of a method can be a keyword.
        let methods =
            Punctuated::<Ident, Token![,]>::parse_terminated_with(&list, Ident::parse_any)?;
        if methods.is_empty() {
            return Err(meta.error("expected at least one method, such as `worker(Scan)`"));
        }
        self.methods.extend(methods.into_iter().map(|method| (method, mode)));
        Ok(())
    }

    fn finish(self, of: &Ident) -> Result<Attributes> {
        let missing = "#[derive(Service)] needs the service: add #[erpc(service = path::to::Trait)], with the trait \
                       that erpc-build generated";
        let service = self.service.ok_or_else(|| Error::new(of.span(), missing))?;
        let mut seen = HashMap::new();
        for (method, mode) in &self.methods {
            let text = match seen.insert(method.to_string(), *mode) {
                None => continue,
                Some(before) if before == *mode => format!("`{method}` is listed twice"),
                Some(_) => format!("`{method}` is listed under `worker` and under `dispatch`"),
            };
            return Err(Error::new(method.span(), text));
        }
        let Self { default_mode, methods, bursts, settings, of_methods, erpc, .. } = self;
        Ok(Attributes { service, default_mode, methods, bursts, settings, of_methods, erpc })
    }
}

fn default_mode(meta: &ParseNestedMeta<'_>) -> Result<Mode> {
    let mode = meta.value()?.call(Ident::parse_any)?;
    match mode.to_string().as_str() {
        "dispatch" => Ok(Mode::Dispatch),
        "worker" => Ok(Mode::Worker),
        _ => Err(Error::new(mode.span(), DEFAULT_MODE)),
    }
}

fn service_path(meta: &ParseNestedMeta<'_>) -> Result<ServicePath> {
    let value = meta.value()?;
    if value.peek(LitStr) {
        let name: LitStr = value.parse()?;
        let last = name.value().rsplit('.').next().unwrap_or_default().to_owned();
        let text = format!(
            "expected the path of the generated trait, without quotes: `service = path::to::{last}`, where `path::to` \
             is the module with `erpc::include_proto!`"
        );
        return Err(Error::new(name.span(), text));
    }
    ServicePath::new(value.parse()?)
}

/// Sets a value that can be set only once; `again` is the error for a second time.
fn once<T>(place: &mut Option<T>, value: T, meta: &ParseNestedMeta<'_>, again: &str) -> Result<()> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(Error::new_spanned(&meta.path, again)),
    }
}

#[cfg(test)]
mod tests {
    use quote::ToTokens;
    use syn::parse_quote;

    use super::*;

    fn error(input: &DeriveInput) -> String {
        Attributes::parse(input).err().expect("the attribute is wrong").to_string()
    }

    #[test]
    fn all_keys_together_are_parsed() {
        let input = parse_quote! {
            #[erpc(service = proto::Kv, worker)]
            #[erpc(dispatch(Get, r#type,), crate = other::erpc, max_request = 64)]
            #[erpc(method(Get, idempotent, deadline = "1s"), method(type, max_response = 1))]
            struct Store;
        };
        let attributes = Attributes::parse(&input).unwrap();
        assert_eq!(attributes.default_mode, Some(Mode::Worker));
        let methods: Vec<_> =
            attributes.methods.iter().map(|(name, mode)| (name.to_string(), *mode)).collect();
        assert_eq!(
            methods,
            [("Get".to_owned(), Mode::Dispatch), ("r#type".to_owned(), Mode::Dispatch)]
        );
        let erpc = quote::quote!(erpc);
        assert!(attributes.settings.expression(&erpc).is_some());
        let settings: Vec<_> =
            attributes.of_methods.iter().map(|(name, _)| name.to_string()).collect();
        assert_eq!(settings, ["Get", "type"]);
        assert_eq!(attributes.erpc.unwrap().to_token_stream().to_string(), "other :: erpc");
    }

    #[test]
    fn the_service_is_the_only_required_key() {
        let attributes = Attributes::parse(&parse_quote!(
            #[erpc(service = Kv)]
            struct Store;
        ))
        .unwrap();
        assert_eq!(attributes.default_mode, None);
        assert!(attributes.methods.is_empty() && attributes.erpc.is_none());
    }

    #[test]
    fn a_method_can_have_the_name_of_a_keyword() {
        let attributes = Attributes::parse(&parse_quote!(
            #[erpc(service = Kv, worker(async, type))]
            struct S;
        ));
        assert_eq!(attributes.unwrap().methods.len(), 2);
    }

    #[test]
    fn an_error_names_the_missing_part() {
        let missing = "needs the service";
        assert!(
            error(&parse_quote!(
                struct Store;
            ))
            .contains(missing)
        );
        assert!(
            error(&parse_quote!(
                #[erpc(worker)]
                struct Store;
            ))
            .contains(missing)
        );
        assert!(
            error(&parse_quote!(
                #[erpc(service = Kv, worker())]
                struct Store;
            ))
            .contains("at least one method")
        );
        assert!(
            error(&parse_quote!(
                #[erpc(service = Kv, dispatch)]
                struct Store;
            ))
            .contains("expected methods")
        );
    }

    #[test]
    fn an_error_explains_a_wrong_setting_of_a_method() {
        let example = "such as `method(Get, deadline = \"20ms\")`";
        for (input, text) in [
            (
                parse_quote!(
                    #[erpc(service = Kv, method)]
                    struct S;
                ),
                example,
            ),
            (
                parse_quote!(
                    #[erpc(service = Kv, method())]
                    struct S;
                ),
                example,
            ),
            (
                parse_quote!(
                    #[erpc(service = Kv, method(Get))]
                    struct S;
                ),
                example,
            ),
            (
                parse_quote!(
                    #[erpc(service = Kv, method("Get", idempotent))]
                    struct S;
                ),
                "without quotes",
            ),
            (
                parse_quote!(
                    #[erpc(service = Kv, method(Get, worker))]
                    struct S;
                ),
                "`worker(Get)`",
            ),
            (
                parse_quote!(
                    #[erpc(service = Kv, method(Get, size = 1))]
                    struct S;
                ),
                "the keys of a method are `deadline",
            ),
            (
                parse_quote!(
                    #[erpc(service = Kv, method(Get, idempotent), method(Get, idempotent))]
                    struct S;
                ),
                "already",
            ),
            (
                parse_quote!(
                    #[erpc(service = Kv, deadline = "1s", deadline = "1s")]
                    struct S;
                ),
                "twice",
            ),
        ] {
            assert!(error(&input).contains(text), "{}", error(&input));
        }
    }

    #[test]
    fn burst_hooks_are_pairs_of_a_method_and_a_function() {
        let attributes = Attributes::parse(&parse_quote!(
            #[erpc(service = Kv, burst(Get = look_ahead, type = prefetch,))]
            struct S;
        ));
        let bursts: Vec<_> = attributes.unwrap().bursts;
        let bursts: Vec<_> =
            bursts.iter().map(|(method, hook)| format!("{method} {hook}")).collect();
        assert_eq!(bursts, ["Get look_ahead", "type prefetch"]);
        let example = "such as `burst(Get = look_ahead)`";
        for (input, text) in [
            (
                parse_quote!(
                    #[erpc(service = Kv, burst)]
                    struct S;
                ),
                example,
            ),
            (
                parse_quote!(
                    #[erpc(service = Kv, burst())]
                    struct S;
                ),
                example,
            ),
            (
                parse_quote!(
                    #[erpc(service = Kv, burst(Get))]
                    struct S;
                ),
                example,
            ),
            (
                parse_quote!(
                    #[erpc(service = Kv, burst(Get = 7))]
                    struct S;
                ),
                example,
            ),
            (
                parse_quote!(
                    #[erpc(service = Kv, burst("Get" = look_ahead))]
                    struct S;
                ),
                "without quotes",
            ),
            (
                parse_quote!(
                    #[erpc(service = Kv, burst(Get = a), burst(Get = b))]
                    struct S;
                ),
                "`Get` has a burst hook already",
            ),
        ] {
            assert!(error(&input).contains(text), "{}", error(&input));
        }
    }

    #[test]
    fn a_repeated_key_or_method_is_refused() {
        let twice = |input| assert!(error(&input).contains("twice"), "{}", error(&input));
        twice(parse_quote!(
            #[erpc(service = Kv, service = Kv)]
            struct Store;
        ));
        twice(parse_quote!(
            #[erpc(service = Kv, crate = a, crate = b)]
            struct Store;
        ));
        twice(parse_quote!(
            #[erpc(service = Kv, worker, worker)]
            struct Store;
        ));
        twice(parse_quote!(
            #[erpc(service = Kv, worker(A), worker(B, A))]
            struct Store;
        ));
        let both = parse_quote!(
            #[erpc(service = Kv, worker(A), dispatch(A))]
            struct Store;
        );
        assert_eq!(error(&both), "`A` is listed under `worker` and under `dispatch`");
    }

    #[test]
    fn quotes_are_refused() {
        let quoted = parse_quote!(
            #[erpc(service = "kv.v1.Kv")]
            struct Store;
        );
        assert!(error(&quoted).contains("without quotes: `service = path::to::Kv`"));
        let quoted = parse_quote!(
            #[erpc(service = Kv, worker("Scan"))]
            struct Store;
        );
        assert!(error(&quoted).contains("without quotes"));
    }

    #[test]
    fn the_default_mode_is_a_mode_of_plain_functions() {
        let attributes = Attributes::parse(&parse_quote!(
            #[erpc(service = Kv, default_mode = dispatch)]
            struct Store;
        ));
        assert_eq!(attributes.unwrap().default_mode, Some(Mode::Dispatch));
        for input in [
            parse_quote!(
                #[erpc(service = Kv, default_mode = async)]
                struct Store;
            ),
            parse_quote!(
                #[erpc(service = Kv, default_mode = tokio)]
                struct Store;
            ),
        ] {
            assert!(error(&input).contains(".default_mode(erpc_build::Mode::Tokio)"));
        }
        let twice = parse_quote!(
            #[erpc(service = Kv, worker, default_mode = dispatch)]
            struct Store;
        );
        assert_eq!(error(&twice), "the default mode is given twice");
    }

    #[test]
    fn the_error_for_async_says_where_to_declare_it() {
        let listed = parse_quote!(
            #[erpc(service = Kv, async(Scan))]
            struct Store;
        );
        assert!(error(&listed).contains("write `option (erpc.method).mode = ASYNC;`"));
    }

    #[test]
    fn the_error_for_an_unknown_key_lists_the_keys() {
        let unknown = parse_quote!(
            #[erpc(service = Kv, workers(Scan))]
            struct Store;
        );
        assert!(error(&unknown).starts_with("unknown key; the keys are `service"));
    }
}
