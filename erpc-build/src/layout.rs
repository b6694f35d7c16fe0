//! Messages with a fixed layout or a view, and the checks of their fields. All other messages are
//! plain `prost` messages.

use std::collections::HashMap;

use protox::prost_reflect::{
    Cardinality, DescriptorPool, FieldDescriptor, Kind, MessageDescriptor,
};

use crate::{Misuse, options};

/// How a message is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Layout {
    /// In place: the bytes in the packet are the message.
    Fixed,
    /// By a view, if the handler is not asynchronous.
    View,
}

/// The messages with a fixed layout or a view, by full name.
pub(crate) type Layouts = HashMap<String, Layout>;

/// Reads and checks the options of all messages.
pub(crate) fn read(pool: &DescriptorPool, misuses: &mut Vec<Misuse>) -> Layouts {
    let mut layouts = Layouts::new();
    for message in pool.all_messages() {
        let options = options::of_message(&message);
        let layout = match (options.layout != 0, options.view) {
            (true, true) => {
                misuses.push(Misuse {
                    at: format!("message {}", message.full_name()),
                    problem: "has `layout: FIXED` and `view: true`; a fixed layout is read in place anyway, so remove \
                              `view`"
                        .to_owned(),
                });
                Layout::Fixed
            }
            (true, false) => Layout::Fixed,
            (false, true) => Layout::View,
            (false, false) => continue,
        };
        layouts.insert(message.full_name().to_owned(), layout);
    }
    for message in pool.all_messages() {
        check(&message, &layouts, misuses);
    }
    layouts
}

fn check(message: &MessageDescriptor, layouts: &Layouts, misuses: &mut Vec<Misuse>) {
    let layout = layouts.get(message.full_name()).copied();
    let whole = match layout {
        Some(Layout::Fixed) => fixed_message(message),
        Some(Layout::View) if message.fields().len() == 0 => {
            Some("has no fields that a view could borrow; remove `view`")
        }
        _ => None,
    };
    let whole = whole.or_else(|| {
        let contains_itself = layout.is_some() && contains(message, message, &mut Vec::new());
        contains_itself
            .then_some("contains itself, so it has no fixed size; remove the option or the field")
    });
    if let Some(problem) = whole {
        let at = format!("message {}", message.full_name());
        misuses.push(Misuse { at, problem: problem.to_owned() });
    }
    for field in message.fields() {
        let problem = match layout {
            Some(Layout::Fixed) => fixed_field(&field, layouts),
            Some(Layout::View) => size_of_another(&field).or_else(|| view_field(&field, layouts)),
            None => size_of_another(&field).or_else(|| plain_field(&field, layouts)),
        };
        if let Some(problem) = problem {
            misuses.push(Misuse { at: format!("field {}", field.full_name()), problem });
        }
    }
}

fn fixed_message(message: &MessageDescriptor) -> Option<&'static str> {
    let nested = message.child_messages().any(|child| !child.is_map_entry());
    if message.parent_message().is_some() {
        Some(
            "has `layout: FIXED` and is nested in another message; move it to the top level of the file",
        )
    } else if nested || message.child_enums().len() > 0 {
        Some("has `layout: FIXED` and nested types; move them to the top level of the file")
    } else if message.fields().len() == 0 {
        Some("has `layout: FIXED` and no fields; remove the option")
    } else {
        None
    }
}

/// What is wrong with a field of a message with a fixed layout.
fn fixed_field(field: &FieldDescriptor, layouts: &Layouts) -> Option<String> {
    let size = options::field_size(field);
    let kind = field.kind();
    let text = if field.is_map() || field.is_list() {
        "is repeated, so it has no fixed size; write one field per element, or remove `layout: FIXED` from the message"
    } else if field.containing_oneof().is_some_and(|oneof| !oneof.is_synthetic()) {
        "is in a oneof, which fixed layouts do not support; move it out, and add a field that says which one is set"
    } else if !matches!(kind, Kind::Message(_))
        && field.supports_presence()
        && field.cardinality() != Cardinality::Required
    {
        "is optional, but fields of a fixed layout are always present; remove `optional` (in proto2: write `required`), \
         and add a `bool` field that says whether it is set"
    } else if field.is_group() {
        "is a group; replace it by a message with `layout: FIXED`"
    } else if field.field_descriptor_proto().default_value.is_some() {
        "has a default, but fields of a fixed layout start as zero; remove the default"
    } else {
        match kind {
            Kind::String => {
                "is a string, which has no fixed size; write `bytes` with `[(erpc.field).size = 16]`, or remove `layout: \
                 FIXED` from the message"
            }
            Kind::Bytes if size == 0 => {
                "is `bytes` without a size; write `[(erpc.field).size = 16]` after it, with its number of bytes"
            }
            Kind::Message(of) if layouts.get(of.full_name()) != Some(&Layout::Fixed) => {
                return Some(format!(
                    "is a {}, which has no fixed layout; write `option (erpc.message).layout = FIXED;` in that message, too",
                    of.full_name()
                ));
            }
            _ => return (kind != Kind::Bytes).then(|| size_of_another(field)).flatten(),
        }
    };
    Some(text.to_owned())
}

/// What is wrong with a field of a message with a view.
fn view_field(field: &FieldDescriptor, layouts: &Layouts) -> Option<String> {
    let text = if field.is_map() {
        "is a map, which views do not support; remove `view` from the message"
    } else if field.is_list() {
        "is repeated, which views do not support; remove `view` from the message"
    } else if field.containing_oneof().is_some_and(|oneof| !oneof.is_synthetic()) {
        "is in a oneof, which views do not support; remove `view` from the message, or move the field out"
    } else if field.is_group() {
        "is a group, which views do not support; remove `view` from the message"
    } else if field.field_descriptor_proto().default_value.is_some() {
        "has a default, which views do not support; remove the default, or `view` from the message"
    } else {
        match field.kind() {
            Kind::Message(of) if layouts.get(of.full_name()) != Some(&Layout::View) => {
                return Some(format!(
                    "is a {}, which has no view; write `option (erpc.message).view = true;` in that message, too, or remove \
                     it from this one",
                    of.full_name()
                ));
            }
            // A view that is not filled in has 0.
            Kind::Enum(of)
                if field.cardinality() == Cardinality::Required
                    && of.default_value().number() != 0 =>
            {
                "is required, and its enum does not begin with 0, which views do not support; make it optional, or \
                 remove `view` from the message"
            }
            _ => return None,
        }
    };
    Some(text.to_owned())
}

/// What is wrong with a field of a message that has neither a fixed layout nor a view.
fn plain_field(field: &FieldDescriptor, layouts: &Layouts) -> Option<String> {
    match field.kind() {
        Kind::Message(of) if layouts.get(of.full_name()) == Some(&Layout::Fixed) => Some(format!(
            "is a {}, which has `layout: FIXED` and can only be part of messages with `layout: FIXED`; write `option \
             (erpc.message).layout = FIXED;` in this message, or use a message without it for the field",
            of.full_name()
        )),
        _ => None,
    }
}

fn size_of_another(field: &FieldDescriptor) -> Option<String> {
    let set = options::field_size(field) != 0;
    set.then(|| {
        "has a size, which only `bytes` fields of messages with `layout: FIXED` can have; remove it"
            .to_owned()
    })
}

/// Whether `within` contains `message`, at any depth. `seen` are the messages already searched.
fn contains(
    within: &MessageDescriptor,
    message: &MessageDescriptor,
    seen: &mut Vec<String>,
) -> bool {
    within.fields().any(|field| match field.kind() {
        Kind::Message(of) if of == *message => true,
        Kind::Message(of) if !seen.iter().any(|name| name == of.full_name()) => {
            seen.push(of.full_name().to_owned());
            contains(&of, message, seen)
        }
        _ => false,
    })
}
