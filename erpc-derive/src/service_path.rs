//! Derives, from the path of a generated trait, the path of the module with the other generated
//! items of the service.

use heck::ToSnakeCase;
use proc_macro2::Span;
use syn::{Error, Ident, Path, PathArguments, PathSegment, Result};

/// The trait of a service, and the module with the other items of the service.
pub(crate) struct ServicePath {
    /// The path in the attribute, such as `proto::Kv`.
    pub(crate) service_trait: Path,
    /// The path of the module with the other items, such as `proto::kv_service`.
    pub(crate) module: Path,
}

impl ServicePath {
    /// `erpc-build` puts all items of service `Kv` into a module `kv_service` and re-exports the
    /// trait next to it. This function accepts both paths of the trait: `Kv` and `kv_service::Kv`.
    pub(crate) fn new(service_trait: Path) -> Result<Self> {
        if let Some(segment) =
            service_trait.segments.iter().find(|segment| !segment.arguments.is_none())
        {
            return Err(Error::new_spanned(
                segment,
                "a generated trait has no type arguments; remove them",
            ));
        }
        let mut module = service_trait.clone();
        let Some(last) = module.segments.pop() else {
            return Err(Error::new_spanned(
                service_trait,
                "expected the path of a generated trait",
            ));
        };
        let name = last.value().ident.to_string();
        let module_name = format!("{}_service", name.to_snake_case());
        if module.segments.last().is_some_and(|parent| parent.ident == module_name.as_str()) {
            module.segments.pop_punct();
        } else {
            // The segment has the span of the user's path, so that a compiler's error about a
            // missing module points at that path.
            module.segments.push(segment(&module_name, last.value().ident.span()));
        }
        Ok(Self { service_trait, module })
    }
}

fn segment(name: &str, span: Span) -> PathSegment {
    PathSegment { ident: Ident::new(name, span), arguments: PathArguments::None }
}

#[cfg(test)]
mod tests {
    use quote::ToTokens;

    use super::*;

    fn module(path: &str) -> String {
        let path = ServicePath::new(syn::parse_str(path).unwrap()).unwrap();
        path.module.to_token_stream().to_string().replace(' ', "")
    }

    #[test]
    fn the_module_is_next_to_the_trait() {
        assert_eq!(module("proto::Kv"), "proto::kv_service");
        assert_eq!(module("Kv"), "kv_service");
        assert_eq!(module("::kv::v1::HTTPGate"), "::kv::v1::http_gate_service");
        assert_eq!(module("crate::a::RouteGuide2"), "crate::a::route_guide2_service");
    }

    #[test]
    fn a_path_through_the_services_module_is_accepted() {
        assert_eq!(module("proto::kv_service::Kv"), "proto::kv_service");
        assert_eq!(module("kv_service::Kv"), "kv_service");
    }

    #[test]
    fn type_arguments_are_refused() {
        assert!(ServicePath::new(syn::parse_str("proto::Kv<u8>").unwrap()).is_err());
    }
}
