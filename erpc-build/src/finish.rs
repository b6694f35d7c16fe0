//! The last step: changes in the files that `prost_build` has written.

use std::fs;
use std::path::Path;

use crate::{Error, source};

/// Punctuation marks. At the end of a web address in a comment, they belong to the sentence around
/// the address.
const PUNCTUATION: [char; 8] = ['.', ',', ';', ':', '!', '?', '\'', '"'];

/// Finishes a package's file: puts its items into `erpc::generated!`, which allows the lints that
/// the including crate may enable, and corrects the Markdown of its comments. A package without
/// code has no file, and nothing is done.
pub(crate) fn finish(path: &Path, erpc_path: &str) -> Result<(), Error> {
    if !path.exists() {
        return Ok(());
    }
    let read = fs::read_to_string(path);
    let text = read.map_err(|source| Error::Read { path: path.to_owned(), source })?;
    // A finished file is from an earlier build: the package has no code any more, so `prost` has
    // not overwritten the file.
    if text.lines().nth(1).is_some_and(|line| line.ends_with("::generated! {")) {
        return Ok(());
    }
    source::write(path, finished(&text, erpc_path).as_bytes())
}

fn finished(text: &str, erpc_path: &str) -> String {
    // The `@generated` line of `prost` stays the first line, where tools look for it.
    let (first, items) = text.split_once('\n').unwrap_or((text, ""));
    let mut finished = format!("{first}\n{erpc_path}::generated! {{\n");
    let mut code = false;
    for line in items.lines() {
        match line.trim_start().strip_prefix("///") {
            Some(comment) if comment.trim_start().starts_with("```") => {
                code = !code;
                finished.push_str(line);
            }
            Some(comment) if !code => {
                finished.push_str(&line[..line.len() - comment.len()]);
                mend(comment, &mut finished);
            }
            is_comment => {
                code &= is_comment.is_some();
                finished.push_str(line);
            }
        }
        finished.push('\n');
    }
    finished.push_str("}\n");
    finished
}

/// Appends the comment to `mended`, with Markdown that shows what the author of the `.proto` file
/// wrote: `<name>` is escaped, because it is not HTML, and punctuation after an address is moved
/// out of the link that `prost` made.
fn mend(comment: &str, mended: &mut String) {
    let mut rest = comment;
    while let Some(at) = rest.find(['<', '`']) {
        let (before, marked) = rest.split_at(at);
        mended.push_str(before);
        rest = &marked[1..];
        if marked.starts_with('`') {
            let code = rest.find('`').map_or(0, |end| end + 1);
            mended.push_str(&marked[..=code]);
            rest = &rest[code..];
        } else if let Some((address, behind)) = address(rest) {
            let bare = address.trim_end_matches(PUNCTUATION);
            mended.extend(["<", bare, ">", &address[bare.len()..]]);
            rest = behind;
        } else {
            let is_tag = rest.starts_with(|c: char| c.is_ascii_alphabetic() || "/!?".contains(c));
            mended.push_str(if is_tag && !before.ends_with('\\') { "\\<" } else { "<" });
        }
    }
    mended.push_str(rest);
}

/// The address at the start of `text`, up to `>`, and the text after the `>`. `None` if `text`
/// starts with no web address.
fn address(text: &str) -> Option<(&str, &str)> {
    let is_address = text.starts_with("http://") || text.starts_with("https://");
    text.split_once('>').filter(|(address, _)| is_address && !address.contains(' '))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_show_what_the_author_wrote() {
        for (comment, meant) in [
            (" From <http://x.org/a.>", " From <http://x.org/a>."),
            (" (<https://x.org/a?b=c>).", " (<https://x.org/a?b=c>)."),
            (" A <name>, a Vec<u8>, </b>.", " A \\<name>, a Vec\\<u8>, \\</b>."),
            (" `Vec<u8>` and a lone ` and <b>", " `Vec<u8>` and a lone ` and \\<b>"),
            (" a < b, a <= b, \\<c>", " a < b, a <= b, \\<c>"),
            (" ends with <", " ends with <"),
            ("", ""),
        ] {
            let mut mended = String::new();
            mend(comment, &mut mended);
            assert_eq!(mended, meant);
        }
    }

    #[test]
    fn code_blocks_stay_unchanged() {
        let text =
            "// By prost.\n/// <a>\n/// ```text\n/// <b>\n/// ```\n/// <c>\nstruct S<T>(T);\n";
        let meant = "// By prost.\n::erpc::generated! {\n/// \\<a>\n/// ```text\n/// <b>\n/// ```\n/// \\<c>\n\
                     struct S<T>(T);\n}\n";
        assert_eq!(finished(text, "::erpc"), meant);
    }
}
