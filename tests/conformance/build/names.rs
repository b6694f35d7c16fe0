//! The names that `prost` generates, written from the documentation of `prost`, not from its code.

use heck::{ToSnakeCase, ToUpperCamelCase};
use prost_reflect::{MessageDescriptor, MethodDescriptor};

const KEYWORDS: &str = "abstract as async await become box break const continue do dyn else enum extern \
                        false final fn for gen if impl in let loop macro match mod move mut override priv \
                        pub ref return static struct trait true try type typeof unsafe unsized use virtual \
                        where while yield";

/// The name of a function, field or module.
pub fn snake(name: &str) -> String {
    keyword(name.to_snake_case())
}

/// The name of a type.
pub fn camel(name: &str) -> String {
    keyword(name.to_upper_camel_case())
}

fn keyword(name: String) -> String {
    match &name[..] {
        "self" | "Self" | "super" | "crate" | "extern" => format!("{name}_"),
        _ if KEYWORDS.split_whitespace().any(|keyword| keyword == name) => format!("r#{name}"),
        _ => name,
    }
}

/// The module of a package, as a path that ends in `::`.
pub fn package(package: &str) -> String {
    let modules = package.split('.').filter(|module| !module.is_empty());
    modules.fold("super::proto::".to_owned(), |path, module| path + &snake(module) + "::")
}

/// The full name of a method: `package.Service/Method`.
pub fn full_name(method: &MethodDescriptor) -> String {
    format!("{}/{}", method.parent_service().full_name(), method.name())
}

/// Names that depend on the settings of a system.
#[derive(Clone, Copy)]
pub struct Names {
    /// `google.protobuf` is generated, rather than taken from `prost_types`.
    pub well_known: bool,
}

impl Names {
    /// The type of a message.
    pub fn message(self, message: &MessageDescriptor) -> String {
        if message.package_name() == "google.protobuf" && !self.well_known {
            return well_known(message.name());
        }
        let mut path = camel(message.name());
        let mut outer = message.parent_message();
        while let Some(message) = outer {
            path = format!("{}::{path}", snake(message.name()));
            outer = message.parent_message();
        }
        package(message.package_name()) + &path
    }
}

fn well_known(name: &str) -> String {
    match name {
        "Empty" => "()",
        "BoolValue" => "bool",
        "BytesValue" => "Vec<u8>",
        "DoubleValue" => "f64",
        "FloatValue" => "f32",
        "Int32Value" => "i32",
        "Int64Value" => "i64",
        "StringValue" => "String",
        "UInt32Value" => "u32",
        "UInt64Value" => "u64",
        name => return format!("::prost_types::{}", camel(name)),
    }
    .to_owned()
}
