//! Checks for collisions, before any code is generated.

use std::collections::{HashMap, HashSet};

use heck::{ToSnakeCase, ToUpperCamelCase};
use prost_types::{
    DescriptorProto, EnumDescriptorProto, FileDescriptorProto, FileDescriptorSet,
    ServiceDescriptorProto,
};
use protox::prost_reflect::MessageDescriptor;

use crate::Error;
use crate::method_id::method_id;
use crate::types::view_name;

/// The owner of each name. The key is the scope (a package or a message) and the name in Rust.
#[derive(Default)]
struct Owners(HashMap<(String, String), String>);

impl Owners {
    /// Gives a name in `place` to `owner`, a description for error messages. Fails if the name has
    /// an owner already.
    fn claim(&mut self, place: &str, rust_name: String, owner: String) -> Result<(), Error> {
        match self.0.insert((place.to_owned(), rust_name.clone()), owner.clone()) {
            None => Ok(()),
            Some(first) => Err(Error::NameCollision { first, second: owner, rust_name }),
        }
    }
}

/// Checks that no two methods have the same id and no two items the same name in Rust. `views` are
/// the messages with a view. Returns the names of the types in each package and each message.
pub(crate) fn check(
    files: &FileDescriptorSet,
    views: &[MessageDescriptor],
) -> Result<HashMap<String, Vec<String>>, Error> {
    method_ids(files)?;
    services(files).try_for_each(|(_, service)| method_names(service))?;
    traits_and_clients(files)?;
    modules(files)?;
    types(files, views)
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

/// The Rust module of a service's code. `#[derive(Service)]` derives the name from the trait's
/// name, so this function does the same.
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

/// Checks that no two methods of a service become the same function in Rust, as `GetAll` and
/// `get_all` would.
fn method_names(service: &ServiceDescriptorProto) -> Result<(), Error> {
    let mut owners = Owners::default();
    service.method.iter().try_for_each(|method| {
        let owner = format!("{} of service {}", method.name(), service.name());
        owners.claim("", method.name().to_snake_case(), owner)
    })
}

/// Checks that no two traits and clients have the same name. For example, the trait of a service
/// `KvClient` would have the same name as the client of service `Kv`.
fn traits_and_clients(files: &FileDescriptorSet) -> Result<(), Error> {
    let mut owners = Owners::default();
    services(files).try_for_each(|(file, service)| {
        let rust_name = service.name().to_upper_camel_case();
        let client = format!("the client of service {}", service.name());
        owners.claim(file.package(), format!("{rust_name}Client"), client)?;
        let local = format!("the local client of service {}", service.name());
        owners.claim(file.package(), format!("Local{rust_name}Client"), local)?;
        owners.claim(file.package(), rust_name, format!("service {}", service.name()))
    })
}

/// Checks that no two modules have the same name. A service's module can have the name of the
/// module of another service, of a message's nested types, or of a package.
fn modules(files: &FileDescriptorSet) -> Result<(), Error> {
    let mut owners = Owners::default();
    for file in &files.file {
        let nested = file.message_type.iter().filter(|message| {
            !message.nested_type.is_empty()
                || !message.enum_type.is_empty()
                || !message.oneof_decl.is_empty()
        });
        for message in nested {
            let owner = format!("message {}", message.name());
            owners.claim(file.package(), message.name().to_snake_case(), owner)?;
        }
    }
    // Several files can belong to one package, which claims its name only once.
    let packages: HashSet<_> = files.file.iter().map(FileDescriptorProto::package).collect();
    for (parent, name) in packages.into_iter().filter_map(|package| package.rsplit_once('.')) {
        owners.claim(parent, name.to_snake_case(), format!("package {parent}.{name}"))?;
    }
    services(files).try_for_each(|(file, service)| {
        let owner = format!("service {}", service.name());
        owners.claim(file.package(), service_module(service.name()), owner)
    })
}

/// Checks that no two types have the same name. `FooBar` and `Foo_Bar` are the same type in Rust. A
/// message and the view of another message can also have the same name. Returns the names of the
/// types in each package and each message.
fn types(
    files: &FileDescriptorSet,
    views: &[MessageDescriptor],
) -> Result<HashMap<String, Vec<String>>, Error> {
    let mut owners = Owners::default();
    for file in &files.file {
        members(&mut owners, file.package(), &file.message_type, &file.enum_type)?;
    }
    for view in views {
        let owner = format!("the view of message {}", view.full_name());
        owners.claim(view.package_name(), view_name(view), owner)?;
    }
    let mut names: HashMap<String, Vec<String>> = HashMap::new();
    for (place, name) in owners.0.into_keys() {
        names.entry(place).or_default().push(name);
    }
    Ok(names)
}

/// Claims the names of the types in one package or message and of the types nested in them. Fields
/// need no check: compilers of `.proto` files refuse fields with the same JSON name.
fn members(
    owners: &mut Owners,
    place: &str,
    messages: &[DescriptorProto],
    enums: &[EnumDescriptorProto],
) -> Result<(), Error> {
    for name in enums.iter().map(EnumDescriptorProto::name) {
        owners.claim(place, name.to_upper_camel_case(), format!("enum {name}"))?;
    }
    for message in messages {
        let name = message.name();
        owners.claim(place, name.to_upper_camel_case(), format!("message {name}"))?;
        let place = full_name(place, name);
        members(owners, &place, &message.nested_type, &message.enum_type)?;
    }
    Ok(())
}
