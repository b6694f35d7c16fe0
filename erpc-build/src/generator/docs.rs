//! Documentation of generated code, from the comments in `.proto` files.

use proc_macro2::TokenStream;
use prost_build::Comments;
use protox::prost_reflect::FileDescriptor;
use quote::quote;

/// Doc comments, one per line.
pub(super) fn docs(lines: &[&str]) -> TokenStream {
    let lines =
        lines.iter().map(|line| if line.is_empty() { String::new() } else { format!(" {line}") });
    quote!(#(#[doc = #lines])*)
}

/// The comment of the `.proto` file, or `fallback` without one; then `more` as a separate
/// paragraph.
pub(super) fn docs_or(comments: &Comments, fallback: &str, more: &[&str]) -> TokenStream {
    let comment = comment_lines(comments);
    let first = if comment.is_empty() { docs(&[fallback]) } else { quote!(#(#[doc = #comment])*) };
    if more.is_empty() {
        return first;
    }
    let (gap, more) = (docs(&[""]), docs(more));
    quote!(#first #gap #more)
}

/// The comment of the item at `path` in a file.
pub(super) fn comments(file: &FileDescriptor, path: &[i32]) -> Comments {
    let info = file.file_descriptor_proto().source_code_info.as_ref();
    let location =
        info.and_then(|info| info.location.iter().find(|location| location.path == path));
    let lines = |text: Option<&str>| text.unwrap_or_default().lines().map(str::to_owned).collect();
    Comments {
        leading_detached: Vec::new(),
        leading: lines(location.map(|location| location.leading_comments())),
        trailing: lines(location.map(|location| location.trailing_comments())),
    }
}

/// The lines of a comment as `prost` writes them, without the `///`. `prost` escapes characters
/// that have a meaning in Markdown.
fn comment_lines(comments: &Comments) -> Vec<String> {
    let attached = Comments { leading_detached: Vec::new(), ..comments.clone() };
    let mut text = String::new();
    attached.append_with_indent(0, &mut text);
    text.lines().map(|line| line.trim_start_matches("///").trim_end().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_keeps_its_lines_without_the_slashes() {
        let leading = vec![
            " Gets a value.".to_owned(),
            String::new(),
            " See https://x.org/a and [1].".to_owned(),
        ];
        let comments = Comments {
            leading_detached: vec![vec!["licence".to_owned()]],
            leading,
            trailing: vec!["end".to_owned()],
        };
        let lines = [" Gets a value.", "", " See <https://x.org/a> and \\[1\\].", "", " end"];
        assert_eq!(comment_lines(&comments), lines);
    }
}
