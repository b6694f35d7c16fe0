//! Files with an `edition` instead of a `syntax`. `protox` and `prost` do not support them. A file
//! of edition 2023 is read as proto3, if proto3 can express all of it.

use prost_types::field_descriptor_proto::Label;
use prost_types::{
    DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FieldOptions, FileDescriptorProto,
    OneofDescriptorProto, UninterpretedOption,
};
use protox::file::File;

/// Why a file cannot be read as proto3, and what to write instead. In the error, this text follows
/// the name of the file.
pub(crate) type Refusal = String;

/// The edition in a file's first statement, and the byte range of that statement.
fn statement(text: &str) -> Option<(&str, std::ops::Range<usize>)> {
    let mut rest = text.trim_start();
    loop {
        let comment = if rest.starts_with("//") {
            rest.find('\n')?
        } else if rest.starts_with("/*") {
            rest.find("*/")? + 2
        } else {
            break;
        };
        rest = rest[comment..].trim_start();
    }
    let from = text.len() - rest.len();
    let value = rest.strip_prefix("edition")?.trim_start().strip_prefix('=')?.trim_start();
    let (value, behind) = value.split_once(';')?;
    let edition = value.trim().trim_matches(['"', '\'']);
    Some((edition, from..text.len() - behind.len()))
}

/// Reads a file with an edition. `None`: the file has no edition. The outer error is from the
/// parser, if the text is not valid proto3. The inner error says why the edition or a feature is
/// refused.
pub(crate) fn read(name: &str, text: &str) -> Option<Result<Result<File, Refusal>, protox::Error>> {
    let (edition, at) = statement(text)?;
    if edition != "2023" {
        return Some(Ok(Err(format!(
            "uses edition {edition}, but only edition 2023 is supported; write `edition = \"2023\";` or \
             `syntax = \"proto3\";`"
        ))));
    }
    let mut proto3 = text.to_owned();
    // The statement's line breaks stay, so that errors have the right line numbers.
    let breaks = "\n".repeat(text[at.clone()].matches('\n').count());
    proto3.replace_range(at, &format!("syntax = \"proto3\";{breaks}"));
    let parsed = File::from_source(name, &proto3);
    Some(parsed.map(|file| {
        let mut file = file.file_descriptor_proto().clone();
        lower(&mut file)?;
        Ok(File::from_file_descriptor_proto(file))
    }))
}

/// The features of an edition that change the generated messages.
#[derive(Clone, Copy)]
struct Features {
    /// `field_presence` is `EXPLICIT`: a field records whether it is set.
    explicit: bool,
    /// `repeated_field_encoding` is `PACKED`.
    packed: bool,
}

impl Features {
    const OF_2023: Self = Self { explicit: true, packed: true };

    /// These features, overridden by those in `options`. Removes the features from `options`,
    /// because proto3 does not know them.
    fn with(mut self, options: Option<&mut Vec<UninterpretedOption>>) -> Result<Self, Refusal> {
        let Some(options) = options else { return Ok(self) };
        for option in options.extract_if(.., is_feature) {
            let parts: Vec<_> = option.name.iter().map(|part| part.name_part.as_str()).collect();
            let value = option.identifier_value.as_deref().unwrap_or_default();
            match (&parts[..], value) {
                (["features", "field_presence"], "EXPLICIT") => self.explicit = true,
                (["features", "field_presence"], "IMPLICIT") => self.explicit = false,
                (["features", "repeated_field_encoding"], "PACKED") => self.packed = true,
                (["features", "repeated_field_encoding"], "EXPANDED") => self.packed = false,
                (["features", "enum_type"], "OPEN")
                | (["features", "utf8_validation"], "VERIFY")
                | (["features", "message_encoding"], "LENGTH_PREFIXED")
                | (["features", "json_format"], _) => {}
                // A feature for another language, such as `features.(pb.cpp)`, has no effect here.
                _ if option.name.iter().any(|part| part.is_extension) => {}
                _ => return Err(refusal(&parts.join("."), value)),
            }
        }
        Ok(self)
    }
}

fn is_feature(option: &mut UninterpretedOption) -> bool {
    option.name.first().is_some_and(|part| part.name_part == "features" && !part.is_extension)
}

#[cold]
fn refusal(feature: &str, value: &str) -> Refusal {
    if value.is_empty() {
        return format!(
            "sets `{feature}` to something other than one word; set each feature on its own, such as \
             `features.field_presence = IMPLICIT`"
        );
    }
    format!(
        "sets `{feature} = {value}`, which proto3 cannot express; remove it, or replace the edition by \
         `syntax = \"proto2\";`"
    )
}

fn lower(file: &mut FileDescriptorProto) -> Result<(), Refusal> {
    let options = file.options.as_mut().map(|options| &mut options.uninterpreted_option);
    let features = Features::OF_2023.with(options)?;
    file.message_type.iter_mut().try_for_each(|of| message(of, features))?;
    file.enum_type.iter_mut().try_for_each(|of| enumeration(of, features))?;
    file.extension.iter_mut().try_for_each(|of| field(of, features).map(|_| ()))?;
    for service in &mut file.service {
        let options = service.options.as_mut().map(|options| &mut options.uninterpreted_option);
        features.with(options)?;
        for method in &mut service.method {
            let options = method.options.as_mut().map(|options| &mut options.uninterpreted_option);
            features.with(options)?;
        }
    }
    // The features were removed, so the indexes in the paths of options are no longer correct. Drop
    // these locations.
    const UNINTERPRETED: i32 = 999;
    if let Some(info) = &mut file.source_code_info {
        info.location.retain(|location| !location.path.contains(&UNINTERPRETED));
    }
    Ok(())
}

fn message(message: &mut DescriptorProto, features: Features) -> Result<(), Refusal> {
    let options = message.options.as_mut();
    if options.as_ref().is_some_and(|options| options.map_entry()) {
        return Ok(());
    }
    let features = features.with(options.map(|options| &mut options.uninterpreted_option))?;
    for oneof in &mut message.oneof_decl {
        let options = oneof.options.as_mut().map(|options| &mut options.uninterpreted_option);
        features.with(options)?;
    }
    for of in &mut message.field {
        if field(of, features)? {
            of.proto3_optional = Some(true);
            of.oneof_index = i32::try_from(message.oneof_decl.len()).ok();
            let name = Some(format!("_{}", of.name()));
            message.oneof_decl.push(OneofDescriptorProto { name, options: None });
        }
    }
    message.extension.iter_mut().try_for_each(|of| field(of, features).map(|_| ()))?;
    message.enum_type.iter_mut().try_for_each(|of| enumeration(of, features))?;
    message.nested_type.iter_mut().try_for_each(|of| self::message(of, features))
}

fn enumeration(of: &mut EnumDescriptorProto, features: Features) -> Result<(), Refusal> {
    let options = of.options.as_mut().map(|options| &mut options.uninterpreted_option);
    let features = features.with(options)?;
    for value in &mut of.value {
        let options = value.options.as_mut().map(|options| &mut options.uninterpreted_option);
        features.with(options)?;
    }
    Ok(())
}

/// Applies the features to a field. Returns whether proto3 must declare the field `optional`, so
/// that it records whether it is set.
fn field(of: &mut FieldDescriptorProto, features: Features) -> Result<bool, Refusal> {
    let options = of.options.as_mut().map(|options| &mut options.uninterpreted_option);
    let features = features.with(options)?;
    let repeated = of.label() == Label::Repeated;
    if repeated && !features.packed {
        of.options.get_or_insert_with(FieldOptions::default).packed = Some(false);
    }
    let single = !repeated && of.oneof_index.is_none() && of.extendee.is_none();
    Ok(single && features.explicit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_statement_names_the_edition() {
        for (text, edition) in [
            ("edition = \"2023\";", Some("2023")),
            ("// A.\n/* B.\n */ edition='2024' ; message M {}", Some("2024")),
            ("syntax = \"proto3\"; // edition = \"2023\";", None),
            ("// edition = \"2023\";", None),
            ("", None),
        ] {
            assert_eq!(statement(text).map(|(edition, _)| edition), edition, "{text}");
        }
    }

    fn lowered(text: &str) -> Result<FileDescriptorProto, String> {
        let text = format!("// C.\nedition = \"2023\";\n{text}");
        let read = read("t.proto", &text).expect("the text has an edition");
        let read = read.map_err(|error| format!("{error:?}"))?;
        read.map(|file| file.file_descriptor_proto().clone())
    }

    #[test]
    fn fields_are_optional_unless_their_presence_is_implicit() {
        let file = lowered(
            "message M { int32 a = 1; int32 b = 2 [features.field_presence = IMPLICIT]; repeated int32 c = 3; \
             oneof o { int32 d = 4; } map<string, int32> e = 5; \
             repeated int32 f = 6 [features.repeated_field_encoding = EXPANDED]; }\n\
             message N { option features.field_presence = IMPLICIT; int32 g = 1; message O { int32 h = 1; } }",
        );
        let file = file.unwrap();
        assert_eq!(file.syntax(), "proto3");
        let [m, n] = &file.message_type[..] else { panic!("{file:?}") };
        let optional = |of: &DescriptorProto| {
            of.field.iter().map(|field| field.proto3_optional()).collect::<Vec<_>>()
        };
        assert_eq!(optional(m), [true, false, false, false, false, false]);
        assert_eq!(m.oneof_decl[m.field[0].oneof_index() as usize].name(), "_a");
        assert_eq!(m.field[5].options.as_ref().and_then(|options| options.packed), Some(false));
        assert_eq!((optional(n), optional(&n.nested_type[0])), (vec![false], vec![false]));
    }

    #[test]
    fn features_that_proto3_cannot_express_are_refused() {
        for (text, part) in [
            ("option features.enum_type = CLOSED;", "features.enum_type = CLOSED"),
            (
                "message M { int32 a = 1 [features.field_presence = LEGACY_REQUIRED]; }",
                "LEGACY_REQUIRED",
            ),
            ("message M { M m = 1 [features.message_encoding = DELIMITED]; }", "DELIMITED"),
            ("option features = { field_presence: IMPLICIT };", "each feature on its own"),
            ("message M { int32 a = 1 [default = 3]; }", "t.proto:3:"),
        ] {
            let error = lowered(text).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
