//! What `#[erpc(..)]` says.

use std::collections::HashMap;

use proc_macro2::{Ident, Span};
use syn::meta::ParseNestedMeta;
use syn::punctuated::Punctuated;
use syn::{DeriveInput, Error, LitStr, Path, Result, Token, parenthesized};

use crate::service_path::ServicePath;

const KEYS: &str = "`service = path::to::Trait`, `worker(Method, ..)`, `worker`, `dispatch(Method, ..)` and `crate = path`";

/// `async(..)` is what one would expect next to `worker(..)`.
const ASYNC: &str = "whether a handler is asynchronous is part of the generated trait, so it is not said here: write \
                     `option (erpc.method).mode = ASYNC;` in the .proto file, or `.mode(\"package.Service/Method\", \
                     erpc_build::Mode::Async)` in the build script, and implement the method as an `async fn`";

/// Where a method runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    Dispatch,
    Worker,
}

/// All attributes of a type.
pub(crate) struct Attributes {
    pub(crate) service: ServicePath,
    /// Methods that are not listed run on workers, whatever the `.proto` file declares.
    pub(crate) all_workers: bool,
    /// Methods by their names in the `.proto` file, in the order of the attribute.
    pub(crate) methods: Vec<(Ident, Mode)>,
    /// The crate `erpc`, if not at `::erpc`.
    pub(crate) erpc: Option<Path>,
}

/// The same while it is put together.
#[derive(Default)]
struct Draft {
    service: Option<ServicePath>,
    all_workers: Option<Span>,
    methods: Vec<(Ident, Mode)>,
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
            let again =
                "the service is given twice; a type serves one, a second needs a type of its own";
            once(&mut self.service, path, meta, again)
        } else if meta.path.is_ident("crate") {
            let path = meta.value()?.parse()?;
            once(&mut self.erpc, path, meta, "the crate is given twice")
        } else if meta.path.is_ident("worker") && !meta.input.peek(syn::token::Paren) {
            let span = meta.path.segments[0].ident.span();
            once(&mut self.all_workers, span, meta, "`worker` is given twice")
        } else if meta.path.is_ident("worker") {
            self.add_methods(meta, Mode::Worker)
        } else if meta.path.is_ident("dispatch") {
            self.add_methods(meta, Mode::Dispatch)
        } else if meta.path.segments.len() == 1 && meta.path.segments[0].ident == "async" {
            Err(meta.error(ASYNC))
        } else {
            Err(meta.error(format!("unknown key; there are {KEYS}")))
        }
    }

    fn add_methods(&mut self, meta: &ParseNestedMeta<'_>, mode: Mode) -> Result<()> {
        if !meta.input.peek(syn::token::Paren) {
            return Err(meta.error("expected methods, such as `dispatch(Get)`"));
        }
        let list;
        parenthesized!(list in meta.input);
        if list.peek(LitStr) {
            return Err(list.error("methods are named as in the .proto file and without quotes, such as `worker(Scan)`"));
        }
        // Any identifier: methods may be called like keywords.
        let methods = Punctuated::<Ident, Token![,]>::parse_terminated_with(
            &list,
            syn::ext::IdentExt::parse_any,
        )?;
        if methods.is_empty() {
            return Err(meta.error("expected at least one method, such as `worker(Scan)`"));
        }
        self.methods.extend(methods.into_iter().map(|method| (method, mode)));
        Ok(())
    }

    fn finish(self, of: &Ident) -> Result<Attributes> {
        let missing = "#[derive(Service)] needs to know the service: #[erpc(service = path::to::Trait)], with the trait \
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
        let all_workers = self.all_workers.is_some();
        Ok(Attributes { service, all_workers, methods: self.methods, erpc: self.erpc })
    }
}

fn service_path(meta: &ParseNestedMeta<'_>) -> Result<ServicePath> {
    let value = meta.value()?;
    if value.peek(LitStr) {
        let name: LitStr = value.parse()?;
        let last = name.value().rsplit('.').next().unwrap_or_default().to_owned();
        let text = format!(
            "expected the path of the generated trait, without quotes: `service = path::to::{last}`, where the path is \
             that of the module with `erpc::include_proto!`"
        );
        return Err(Error::new(name.span(), text));
    }
    ServicePath::new(value.parse()?)
}

/// Sets what may be set once.
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
    fn everything_at_once() {
        let input = parse_quote! {
            #[erpc(service = proto::Kv, worker)]
            #[erpc(dispatch(Get, r#type,), crate = other::erpc)]
            struct Store;
        };
        let attributes = Attributes::parse(&input).unwrap();
        assert!(attributes.all_workers);
        let methods: Vec<_> =
            attributes.methods.iter().map(|(name, mode)| (name.to_string(), *mode)).collect();
        assert_eq!(
            methods,
            [("Get".to_owned(), Mode::Dispatch), ("r#type".to_owned(), Mode::Dispatch)]
        );
        assert_eq!(attributes.erpc.unwrap().to_token_stream().to_string(), "other :: erpc");
    }

    #[test]
    fn the_service_is_enough() {
        let attributes = Attributes::parse(&parse_quote!(
            #[erpc(service = Kv)]
            struct Store;
        ))
        .unwrap();
        assert!(!attributes.all_workers);
        assert!(attributes.methods.is_empty() && attributes.erpc.is_none());
    }

    #[test]
    fn methods_may_be_keywords() {
        let attributes = Attributes::parse(&parse_quote!(
            #[erpc(service = Kv, worker(async, type))]
            struct S;
        ));
        assert_eq!(attributes.unwrap().methods.len(), 2);
    }

    #[test]
    fn what_is_missing_is_said() {
        let missing = "needs to know the service";
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
    fn what_is_there_twice_is_said() {
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
    fn quotes_are_not_wanted() {
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
    fn asynchronous_is_declared_elsewhere() {
        let listed = parse_quote!(
            #[erpc(service = Kv, async(Scan))]
            struct Store;
        );
        assert!(error(&listed).contains("write `option (erpc.method).mode = ASYNC;`"));
    }

    #[test]
    fn unknown_keys_get_the_known_ones() {
        let unknown = parse_quote!(
            #[erpc(service = Kv, workers(Scan))]
            struct Store;
        );
        assert!(error(&unknown).starts_with("unknown key; there are `service"));
    }
}
