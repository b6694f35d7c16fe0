//! What is refused before any code is generated.

use std::collections::HashMap;

use heck::{ToSnakeCase, ToUpperCamelCase};
use prost_types::{FileDescriptorProto, FileDescriptorSet, ServiceDescriptorProto};
use protox::prost_reflect::MessageDescriptor;

use crate::Error;
use crate::method_id::method_id;
use crate::types::view_name;

/// Checks all services of a build: no two methods with one id, no two things with one
/// name in Rust. `views` are the messages with one. Returns the names that types take in each package's
/// module.
pub(crate) fn check(
    files: &FileDescriptorSet,
    views: &[MessageDescriptor],
) -> Result<HashMap<String, Vec<String>>, Error> {
    method_ids(files)?;
    services(files).try_for_each(|(_, service)| method_names(service))?;
    modules(files)?;
    let mut names = type_names(files);
    for view in views {
        let (name, names) =
            (view_name(view), names.entry(view.package_name().to_owned()).or_default());
        if names.contains(&name) {
            let first = format!("a message, enum or view {name}");
            let second = format!("the view of message {}", view.full_name());
            return Err(Error::NameCollision { first, second, rust_name: name });
        }
        names.push(name);
    }
    Ok(names)
}

fn services(
    files: &FileDescriptorSet,
) -> impl Iterator<Item = (&FileDescriptorProto, &ServiceDescriptorProto)> {
    files.file.iter().flat_map(|file| file.service.iter().map(move |service| (file, service)))
}

/// `package.name`, or `name` in a file without a package.
pub(crate) fn full_name(package: &str, name: &str) -> String {
    if package.is_empty() { name.to_owned() } else { format!("{package}.{name}") }
}

/// The Rust module of a service's code. `#[derive(Service)]` makes it of the trait's name, so it is made
/// of that here, too.
pub(crate) fn service_module(service: &str) -> String {
    format!("{}_service", service.to_upper_camel_case().to_snake_case())
}

fn method_ids(files: &FileDescriptorSet) -> Result<(), Error> {
    let mut names = HashMap::new();
    for (file, service) in services(files) {
        let service_name = full_name(file.package(), service.name());
        for method in &service.method {
            let second = format!("{service_name}/{}", method.name());
            if let Some(first) = names.insert(method_id(&second), second.clone()) {
                return Err(Error::MethodCollision { first, second });
            }
        }
    }
    Ok(())
}

/// `GetAll` and `Get_all` are one function in Rust.
fn method_names(service: &ServiceDescriptorProto) -> Result<(), Error> {
    let mut names = HashMap::new();
    for method in &service.method {
        let rust_name = method.name().to_snake_case();
        if let Some(first) = names.insert(rust_name.clone(), method.name()) {
            let second = format!("{} of service {}", method.name(), service.name());
            return Err(Error::NameCollision { first: first.to_owned(), second, rust_name });
        }
    }
    Ok(())
}

/// A service's module may meet another's, the one of a message's nested types, or a package's.
fn modules(files: &FileDescriptorSet) -> Result<(), Error> {
    // By package and module name, whose it is.
    let mut owners: HashMap<(String, String), String> = HashMap::new();
    for file in &files.file {
        let nested = file.message_type.iter().filter(|message| {
            !message.nested_type.is_empty()
                || !message.enum_type.is_empty()
                || !message.oneof_decl.is_empty()
        });
        for message in nested {
            let key = (file.package().to_owned(), message.name().to_snake_case());
            owners.insert(key, format!("message {}", message.name()));
        }
        if let Some((parent, name)) = file.package().rsplit_once('.') {
            owners.insert(
                (parent.to_owned(), name.to_snake_case()),
                format!("package {}", file.package()),
            );
        }
    }
    for (file, service) in services(files) {
        let rust_name = service_module(service.name());
        let second = format!("service {}", service.name());
        if let Some(first) =
            owners.insert((file.package().to_owned(), rust_name.clone()), second.clone())
        {
            return Err(Error::NameCollision { first, second, rust_name });
        }
    }
    Ok(())
}

/// The names that messages and enums take.
fn type_names(files: &FileDescriptorSet) -> HashMap<String, Vec<String>> {
    let mut names: HashMap<String, Vec<String>> = HashMap::new();
    for file in &files.file {
        let messages = file.message_type.iter().map(prost_types::DescriptorProto::name);
        let enums = file.enum_type.iter().map(prost_types::EnumDescriptorProto::name);
        let rust_names = messages.chain(enums).map(ToUpperCamelCase::to_upper_camel_case);
        names.entry(file.package().to_owned()).or_default().extend(rust_names);
    }
    names
}
