//! Generates the Rust code of services, and of messages with a fixed layout or a view.
//!
//! The code is built as tokens; `prost_build` formats the whole file.

mod client;
mod docs;
mod fixed;
mod methods;
mod names;
mod server;
mod view;

use std::collections::{HashMap, VecDeque};

use heck::ToUpperCamelCase;
use proc_macro2::{Ident, TokenStream};
use prost_build::{Method, Service, ServiceGenerator};
use prost_types::FileDescriptorSet;
use protox::prost_reflect::{DescriptorPool, FileDescriptor, MessageDescriptor};
use quote::{format_ident, quote};

use crate::attributes::ParsedAttributes;
use crate::check::{full_name, service_module};
use crate::layout::Layout;
use crate::schema::{MethodPlan, Schema};
use crate::types::{Types, escaped};
use client::ClientKind;
use docs::{docs, docs_or};
use names::{Names, ident};
pub(crate) use server::ASYNC_HINT;

/// Which halves of a service are generated.
#[derive(Clone, Copy)]
pub(crate) struct Parts {
    pub(crate) client: bool,
    pub(crate) server: bool,
}

/// Adds the code of erpc to the packages' files: services, and messages with a fixed layout or a
/// view.
pub(crate) struct Generator {
    pub(crate) erpc: TokenStream,
    pub(crate) parts: Parts,
    pub(crate) traits: ParsedAttributes,
    pub(crate) clients: ParsedAttributes,
    pub(crate) messages: ParsedAttributes,
    /// Whether `google.protobuf` is generated, instead of taken from `erpc::prost_types`.
    pub(crate) well_known_types: bool,
    /// Names of messages, enums and views by package.
    pub(crate) type_names: HashMap<String, Vec<String>>,
    pub(crate) types: Types,
    pub(crate) schema: Schema,
    pub(crate) pool: DescriptorPool,
    /// The files for which `prost_build` has not called `finalize` yet, in the order of these
    /// calls.
    pub(crate) files: VecDeque<String>,
}

impl ServiceGenerator for Generator {
    fn generate(&mut self, service: Service, buf: &mut String) {
        let code =
            Scope { generator: self, service: &service, names: Names::new(&service) }.service();
        buf.push_str(&code.to_string());
    }

    /// `prost_build` calls this once per file, in the order of its input.
    fn finalize(&mut self, buf: &mut String) {
        let file = self.files.pop_front().and_then(|name| self.pool.get_file_by_name(&name));
        if let Some(file) = file {
            buf.push_str(&self.messages_of(&file).to_string());
        }
    }
}

impl Generator {
    /// The names of the files, in the order in which `prost_build` calls
    /// [`ServiceGenerator::finalize`].
    pub(crate) fn order(files: &FileDescriptorSet) -> VecDeque<String> {
        files.file.iter().map(|file| file.name().to_owned()).collect()
    }

    fn messages_of(&self, file: &FileDescriptor) -> TokenStream {
        let ours = self.schema.messages(&self.pool).filter(|(message, _)| {
            message.parent_file() == *file && !self.types.is_extern(message.full_name())
        });
        let code = ours.map(|(message, layout)| match layout {
            Layout::Fixed => self.fixed(&message),
            Layout::View => self.view(&message),
        });
        code.collect()
    }
}

/// The Rust name of a message at the top level of a file.
fn package_type(name: &str) -> Ident {
    ident(&escaped(name.to_upper_camel_case()))
}

/// One service whose code is being generated.
struct Scope<'a> {
    generator: &'a Generator,
    service: &'a Service,
    names: Names,
}

impl Scope<'_> {
    /// All code of a service: its module, and the re-exports in the package.
    fn service(&self) -> TokenStream {
        let parts = self.generator.parts;
        let full_name = self.full_name();
        let module = ident(&service_module(&self.service.proto_name));
        let text =
            format!("The service `{full_name}`: the trait that servers implement, and the client.");
        let docs = docs(&[&text]);
        let name = self.name_const();
        let methods = self.methods();
        let server = parts.server.then(|| self.server());
        let client = parts.client.then(|| self.clients());
        let reexports = self.reexports();
        let reexport = match &reexports[..] {
            [] => quote!(),
            [one] => quote!(pub use #module::#one;),
            several => quote!(pub use #module::{#(#several),*};),
        };
        quote! {
            #docs
            pub mod #module {
                #name
                #methods
                #server
                #client
            }
            #reexport
        }
    }

    /// The trait and the clients that the package's module re-exports: those whose name no message,
    /// enum or view of the package has.
    fn reexports(&self) -> Vec<Ident> {
        let parts = self.generator.parts;
        let client = |kind| (parts.client, self.client_ident(kind));
        let wanted = [
            (parts.server, self.trait_ident()),
            client(ClientKind::Shared),
            client(ClientKind::Local),
        ];
        wanted
            .into_iter()
            .filter(|(part, name)| *part && !self.is_taken(name))
            .map(|(_, name)| name)
            .collect()
    }

    fn name_const(&self) -> TokenStream {
        let full_name = self.full_name();
        let docs = docs(&["The service's full name."]);
        quote! {
            #docs
            pub const NAME: &str = #full_name;
        }
    }

    fn erpc(&self) -> &TokenStream {
        &self.generator.erpc
    }

    fn full_name(&self) -> String {
        full_name(&self.service.package, &self.service.proto_name)
    }

    fn method_full_name(&self, method: &Method) -> String {
        format!("{}/{}", self.full_name(), method.proto_name)
    }

    fn plan(&self, method: &Method) -> MethodPlan {
        self.generator.schema.method(&self.method_full_name(method))
    }

    fn trait_ident(&self) -> Ident {
        ident(&self.service.name)
    }

    fn client_ident(&self, kind: ClientKind) -> Ident {
        let name = self.service.proto_name.to_upper_camel_case();
        match kind {
            ClientKind::Shared => format_ident!("{name}Client"),
            ClientKind::Local => format_ident!("Local{name}Client"),
        }
    }

    fn is_taken(&self, name: &Ident) -> bool {
        let types = self.generator.type_names.get(&self.service.package);
        types.is_some_and(|types| types.iter().any(|taken| name == taken))
    }

    /// An item of the prelude, qualified if the service's own trait hides it.
    fn prelude(&self, item: &str, path: &TokenStream) -> TokenStream {
        let name = ident(item);
        if self.service.name == item { quote!(#path::#name) } else { quote!(#name) }
    }

    fn result(&self) -> TokenStream {
        self.prelude("Result", &quote!(::std::result))
    }

    fn request(&self, method: &Method, depth: usize) -> TokenStream {
        self.message(&method.input_proto_type, &method.input_type, depth)
    }

    fn response(&self, method: &Method, depth: usize) -> TokenStream {
        self.message(&method.output_proto_type, &method.output_type, depth)
    }

    /// The type of the message in a handler's request, for methods whose requests are not streams.
    /// Relative to the service's module.
    fn received(&self, method: &Method) -> TokenStream {
        let owned = self.request(method, 1);
        match self.plan(method).shape.is_sync() {
            true => self.viewed(&method.input_proto_type, owned),
            false => owned,
        }
    }

    /// The type of the message that a callback gets. Relative to the service's module.
    fn replied(&self, method: &Method) -> TokenStream {
        self.viewed(&method.output_proto_type, self.response(method, 1))
    }

    /// A message that is read in the packet if it can be. Relative to the service's module.
    fn viewed(&self, proto_type: &str, owned: TokenStream) -> TokenStream {
        match (self.layout(proto_type), self.descriptor(proto_type)) {
            (Some(Layout::Fixed), _) => quote!(&#owned),
            (Some(Layout::View), Some(message)) => {
                let view = self.generator.view_type(&self.service.package, &message);
                self.deeper(&view.to_string(), 1)
            }
            _ => owned,
        }
    }

    fn layout(&self, proto_type: &str) -> Option<Layout> {
        self.generator.schema.layout(proto_type.trim_start_matches('.'))
    }

    fn descriptor(&self, proto_type: &str) -> Option<MessageDescriptor> {
        self.generator.pool.get_message_by_name(proto_type.trim_start_matches('.'))
    }

    /// A message's type, relative to a module `depth` levels below the package's module.
    /// `rust_type` comes from `prost_build`. It is not used for messages with a fixed layout, which
    /// `prost_build` does not generate.
    fn message(&self, proto_type: &str, rust_type: &str, depth: usize) -> TokenStream {
        let (generator, full_name) = (self.generator, proto_type.trim_start_matches('.'));
        let fixed =
            self.descriptor(proto_type).filter(|_| self.layout(proto_type) == Some(Layout::Fixed));
        let path = match fixed {
            Some(message) => generator.types.message(&self.service.package, &message).to_string(),
            None => rust_type.to_owned(),
        };
        let elsewhere = generator.types.is_extern(full_name)
            || !generator.well_known_types && full_name.starts_with("google.protobuf.");
        if elsewhere { self.deeper(&path, 0) } else { self.deeper(&path, depth) }
    }

    /// Converts `path`, which is valid in the package's module, to a path for a module `depth`
    /// levels below it.
    fn deeper(&self, path: &str, depth: usize) -> TokenStream {
        // The path can be absolute even if `types` has no extern path for it: settings made through
        // `Builder::prost` cannot be read here.
        let path = path.replace(' ', "");
        let absolute = path.starts_with("::") || path.starts_with("crate::");
        let prefix = if absolute { String::new() } else { "super::".repeat(depth) };
        format!("{prefix}{path}").parse().unwrap_or_else(|_| {
            let message = format!(
                "`{path}` in {} is not a Rust type; correct `extern_path` in the build script",
                self.full_name()
            );
            quote!(::std::compile_error!(#message))
        })
    }

    /// The documentation of a method: its comment in the `.proto` file, or a default sentence.
    fn method_docs(&self, method: &Method, verb: &str, more: &[&str]) -> TokenStream {
        let fallback = format!("{verb} `{}`.", self.method_full_name(method));
        docs_or(&method.comments, &fallback, more)
    }
}
