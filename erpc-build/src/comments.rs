//! Adds a comment to each item without one, so that generated code compiles in crates that forbid
//! `missing_docs`.

use std::collections::HashMap;

use prost_types::source_code_info::Location;
use prost_types::{
    DescriptorProto, EnumDescriptorProto, FileDescriptorProto, ServiceDescriptorProto,
    SourceCodeInfo,
};

use crate::check::full_name;

/// Numbers of fields in `descriptor.proto`, as they occur in the path of a [`Location`].
mod tag {
    pub(super) const FILE_MESSAGE: i32 = 4;
    pub(super) const FILE_ENUM: i32 = 5;
    pub(super) const FILE_SERVICE: i32 = 6;
    pub(super) const MESSAGE_FIELD: i32 = 2;
    pub(super) const MESSAGE_NESTED: i32 = 3;
    pub(super) const MESSAGE_ENUM: i32 = 4;
    pub(super) const MESSAGE_ONEOF: i32 = 8;
    pub(super) const ENUM_VALUE: i32 = 2;
    pub(super) const SERVICE_METHOD: i32 = 2;
}

/// Gives each message, field, oneof, enum and enum value without a comment its name as the comment.
/// Services and methods get only an empty location, because `prost` expects one; the generator
/// writes their docs.
pub(crate) fn complete(file: &mut FileDescriptorProto) {
    let mut comments = Comments { path: Vec::new(), wanted: HashMap::new() };
    let package = file.package();
    comments.of_each(tag::FILE_MESSAGE, &file.message_type, |comments, message| {
        comments.message(package, message);
    });
    comments.of_each(tag::FILE_ENUM, &file.enum_type, |comments, of| comments.of_enum(package, of));
    comments.of_each(tag::FILE_SERVICE, &file.service, Comments::service);
    let mut wanted = comments.wanted;
    let info = file.source_code_info.get_or_insert_with(SourceCodeInfo::default);
    for location in &mut info.location {
        if let Some(comment) = wanted.remove(&location.path)
            && is_blank(location.leading_comments())
            && is_blank(location.trailing_comments())
        {
            location.leading_comments = comment;
        }
    }
    info.location.extend(wanted.into_iter().map(|(path, leading_comments)| Location {
        path,
        leading_comments,
        ..Location::default()
    }));
}

fn is_blank(comment: &str) -> bool {
    comment.trim().is_empty()
}

/// Collects the comments of items that may need one.
struct Comments {
    /// Path of the current item.
    path: Vec<i32>,
    /// Path of each item, and the comment to add if the item has none. `None`: only a location is
    /// added.
    wanted: HashMap<Vec<i32>, Option<String>>,
}

impl Comments {
    /// Calls `then` for each of `all`, the items of field `tag`, with `path` set to the item's
    /// path.
    fn of_each<D>(&mut self, tag: i32, all: &[D], mut then: impl FnMut(&mut Self, &D)) {
        for (index, one) in (0..).zip(all) {
            self.path.extend([tag, index]);
            then(self, one);
            self.path.truncate(self.path.len() - 2);
        }
    }

    fn want(&mut self, comment: Option<&str>) {
        let comment = comment.map(|name| format!(" `{name}`."));
        self.wanted.insert(self.path.clone(), comment);
    }

    fn message(&mut self, within: &str, message: &DescriptorProto) {
        let name = full_name(within, message.name());
        self.want(Some(&name));
        self.of_each(tag::MESSAGE_FIELD, &message.field, |comments, field| {
            comments.want(Some(field.name()));
        });
        self.of_each(tag::MESSAGE_ONEOF, &message.oneof_decl, |comments, oneof| {
            comments.want(Some(oneof.name()));
        });
        self.of_each(tag::MESSAGE_ENUM, &message.enum_type, |comments, of| {
            comments.of_enum(&name, of);
        });
        self.of_each(tag::MESSAGE_NESTED, &message.nested_type, |comments, nested| {
            comments.message(&name, nested);
        });
    }

    fn of_enum(&mut self, within: &str, of: &EnumDescriptorProto) {
        self.want(Some(&full_name(within, of.name())));
        self.of_each(tag::ENUM_VALUE, &of.value, |comments, value| {
            comments.want(Some(value.name()));
        });
    }

    fn service(&mut self, service: &ServiceDescriptorProto) {
        self.want(None);
        self.of_each(tag::SERVICE_METHOD, &service.method, |comments, _| comments.want(None));
    }
}

#[cfg(test)]
mod tests {
    use protox::file::File;

    use super::*;

    const TEXT: &str = "syntax = \"proto3\"; package p;\n\
        message M {\n  int32 a = 1;\n  // Says something.\n  int32 b = 2;\n  int32 c = 3; // So does this.\n\
          oneof o { int32 d = 4; }\n  message N {}\n  enum E { ZERO = 0; }\n}\n\
        service S { rpc A(M) returns (M); }";

    fn comment<'a>(file: &'a FileDescriptorProto, path: &[i32]) -> (&'a str, &'a str) {
        let locations = &file.source_code_info.as_ref().unwrap().location;
        let mut at = locations.iter().filter(|location| location.path == path);
        let location = at.next().expect("the path has a location");
        assert!(at.next().is_none(), "the path has only one location");
        (location.leading_comments(), location.trailing_comments())
    }

    fn check(file: &mut FileDescriptorProto) {
        complete(file);
        for (path, name) in [
            (&[4, 0][..], "p.M"),
            (&[4, 0, 2, 0], "a"),
            (&[4, 0, 8, 0], "o"),
            (&[4, 0, 2, 3], "d"),
            (&[4, 0, 3, 0], "p.M.N"),
            (&[4, 0, 4, 0], "p.M.E"),
            (&[4, 0, 4, 0, 2, 0], "ZERO"),
        ] {
            assert_eq!(comment(file, path), (format!(" `{name}`.").as_str(), ""));
        }
        for path in [&[6, 0][..], &[6, 0, 2, 0]] {
            assert_eq!(comment(file, path), ("", ""));
        }
    }

    #[test]
    fn an_item_without_a_comment_gets_its_name_and_other_comments_stay() {
        let mut file = File::from_source("m.proto", TEXT).unwrap().file_descriptor_proto().clone();
        check(&mut file);
        assert_eq!(comment(&file, &[4, 0, 2, 1]), (" Says something.\n", ""));
        assert_eq!(comment(&file, &[4, 0, 2, 2]), ("", " So does this.\n"));
    }

    #[test]
    fn a_file_without_source_info_gets_all_comments() {
        let mut file = File::from_source("m.proto", TEXT).unwrap().file_descriptor_proto().clone();
        file.source_code_info = None;
        check(&mut file);
    }
}
