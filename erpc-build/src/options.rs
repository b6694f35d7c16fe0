//! The options of `erpc/options.proto`, as the files of a build set them.

use prost_types::{DescriptorProto, FieldDescriptorProto};
use protox::file::File;
use protox::prost_reflect::{
    DescriptorPool, DynamicMessage, FieldDescriptor, MessageDescriptor, MethodDescriptor,
};

/// The name of the file in imports.
pub(crate) const FILE_NAME: &str = "erpc/options.proto";

/// The text of the file.
pub(crate) const FILE: &str = include_str!("../proto/erpc/options.proto");

/// `(erpc.method)`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct MethodOptions {
    /// A [`DeclaredMode`].
    #[prost(enumeration = "DeclaredMode", tag = "1")]
    pub(crate) mode: i32,
    #[prost(uint64, tag = "2")]
    pub(crate) deadline_us: u64,
    #[prost(bool, tag = "3")]
    pub(crate) idempotent: bool,
    #[prost(uint32, tag = "4")]
    pub(crate) max_request: u32,
    #[prost(uint32, tag = "5")]
    pub(crate) max_response: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum DeclaredMode {
    Unspecified = 0,
    Dispatch = 1,
    Worker = 2,
    Async = 3,
}

/// `(erpc.message)`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct MessageOptions {
    /// 1: `FIXED`.
    #[prost(int32, tag = "1")]
    pub(crate) layout: i32,
    #[prost(bool, tag = "2")]
    pub(crate) view: bool,
}

/// `(erpc.field)`.
#[derive(Clone, PartialEq, prost::Message)]
struct FieldOptions {
    #[prost(uint32, tag = "1")]
    size: u32,
}

pub(crate) fn of_method(method: &MethodDescriptor) -> MethodOptions {
    read(method.parent_pool(), "erpc.method", method.options())
}

pub(crate) fn of_message(message: &MessageDescriptor) -> MessageOptions {
    read(message.parent_pool(), "erpc.message", message.options())
}

/// The size of a `bytes` field, in bytes; 0 if it is not set.
pub(crate) fn field_size(field: &FieldDescriptor) -> u32 {
    read::<FieldOptions>(field.parent_pool(), "erpc.field", field.options()).size
}

/// Whether calls may be retried, according to the standard option `idempotency_level`.
pub(crate) fn is_idempotent(method: &MethodDescriptor) -> bool {
    use prost_types::method_options::IdempotencyLevel;
    let options = method.method_descriptor_proto().options.as_ref();
    options
        .is_some_and(|options| options.idempotency_level() != IdempotencyLevel::IdempotencyUnknown)
}

/// Advice on what to write in the `.proto` file, if the compiler's `complaint` is about options of
/// erpc.
pub(crate) fn hint(complaint: &str) -> Option<String> {
    if !complaint.contains("'erpc.") && !complaint.contains("(erpc.") {
        return None;
    }
    if complaint.contains("name 'erpc.") && complaint.ends_with("is not defined") {
        return Some(format!("add `import \"{FILE_NAME}\";`"));
    }
    let file = File::from_source(FILE_NAME, FILE).ok()?;
    let file = file.file_descriptor_proto();
    let name = |option: &FieldDescriptorProto| format!("(erpc.{})", option.name());
    let Some(option) = file.extension.iter().find(|option| complaint.contains(&name(option)))
    else {
        let names: Vec<_> = file.extension.iter().map(name).collect();
        return Some(format!("there are {}", names.join(", ")));
    };
    let is_type = |of: &&DescriptorProto| option.type_name().ends_with(of.name());
    let of = file.message_type.iter().find(is_type)?;
    let fields: Vec<_> = of.field.iter().map(|field| known(of, field)).collect();
    Some(format!("{} has {}", name(option), fields.join(", ")))
}

/// A field of an option, with its type or its possible values.
fn known(of: &DescriptorProto, field: &FieldDescriptorProto) -> String {
    let values = of.enum_type.iter().filter(|of| field.type_name().ends_with(of.name()));
    let values: Vec<_> = values.flat_map(|of| of.value.iter().map(|value| value.name())).collect();
    let values: Vec<_> =
        values.into_iter().filter(|value| !value.ends_with("_UNSPECIFIED")).collect();
    let kind = match &values[..] {
        [] => field.r#type().as_str_name().trim_start_matches("TYPE_").to_lowercase(),
        values => values.join(" or "),
    };
    format!("{}: {kind}", field.name())
}

/// Reads the option with the full name `name`. Returns the default if the option is not set, or if
/// no file imports `erpc/options.proto`.
fn read<M: prost::Message + Default>(
    pool: &DescriptorPool,
    name: &str,
    options: DynamicMessage,
) -> M {
    let extension = pool.get_extension_by_name(name);
    let set = extension.filter(|extension| options.has_extension(extension));
    let value = set.map(|extension| options.get_extension(&extension).into_owned());
    // A value that is not a message comes from a user's own `erpc/options.proto`, and is ignored.
    let message = value.as_ref().and_then(|value| value.as_message());
    message.and_then(|message| message.transcode_to().ok()).unwrap_or_default()
}
