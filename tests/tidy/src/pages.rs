//! What the Markdown pages of the repository name: links, files, constants, commands.
//!
//! Checks these rules, and reports the line of each violation:
//!
//! * A relative link leads to a file or folder, and its anchor to a heading of that page.
//! * A path in code font exists. It may be relative to the repository, to the page's folder, to a
//!   crate, or to the sources of a crate: `wire/header.rs`. A name without a folder is the name of
//!   some file.
//! * A name in capitals in code font is in the code, either unchanged, as `MAX_STATUS_MESSAGE`, or
//!   in camel case, as the variant `NotFound` for the status `NOT_FOUND`.
//! * The packages, targets and options of commands exist.
//!
//! Code font means text between backticks; for paths and commands, also blocks of commands. A word
//! with a placeholder, such as `<file>`, `$B` or `..`, is not checked.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::Path;
use std::{fs, io};

/// Extensions of the files that pages name without a folder.
const EXTENSIONS: [&str; 9] = ["rs", "md", "proto", "toml", "txt", "svg", "stderr", "yml", "lua"];

/// Variables and options of other programs, which pages name and code does not.
const FOREIGN: [&str; 3] = ["RUST_BACKTRACE", "--tool", "--callgrind-out-file"];

/// The files of a repository, and the names that pages may use.
pub struct Repository {
    /// Texts by path; empty for files that are not UTF-8.
    files: BTreeMap<String, String>,
    folders: BTreeSet<String>,
    /// The folders that paths may be relative to.
    bases: Vec<String>,
    /// Identifiers and options of code, without comments.
    words: HashSet<String>,
    /// Names of packages and of their targets.
    targets: HashSet<String>,
}

impl Repository {
    /// Reads the repository in `root`, without folders called `target` or `.git`. Files that git
    /// does not track count too, so that a page is checked before its first commit.
    ///
    /// # Errors
    /// If a folder or file cannot be read.
    pub fn read(root: &Path) -> io::Result<Self> {
        let mut files = BTreeMap::new();
        read_folder(root, "", &mut files)?;
        Ok(Self::of(files))
    }

    /// A repository of files with these paths and texts.
    #[must_use]
    pub fn of_texts(files: &[(&str, &str)]) -> Self {
        Self::of(
            files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect(),
        )
    }

    fn of(files: BTreeMap<String, String>) -> Self {
        let mut words: HashSet<_> = FOREIGN.map(str::to_owned).into();
        let mut folders = BTreeSet::new();
        let (mut bases, mut targets) = (vec![String::new()], HashSet::new());
        for (path, text) in &files {
            let mut folder = parent(path);
            while !folder.is_empty() && folders.insert(folder.to_owned()) {
                folder = parent(folder);
            }
            if file_name(path) == "Cargo.toml" {
                let parts = ["src", "proto"].map(|part| join(parent(path), part));
                bases.extend([parent(path).to_owned()].into_iter().chain(parts));
                let names = text.lines().filter_map(|line| line.strip_prefix("name = \""));
                targets.extend(names.map(|name| name.trim_end_matches('"').to_owned()));
            }
            if let Some(target) = target_of(path) {
                targets.insert(target.to_owned());
            }
            if let Some(comment) = comment_of(path) {
                for line in text.lines() {
                    let code = line.split(comment).next().unwrap_or_default();
                    words.extend(identifiers(code).map(str::to_owned));
                    words.extend(options(code).map(str::to_owned));
                }
            }
        }
        Self { files, folders, bases, words, targets }
    }

    /// The number of pages.
    #[must_use]
    pub fn pages(&self) -> usize {
        self.files.keys().filter(|path| path.ends_with(".md")).count()
    }

    /// What pages name that does not exist: `PAGE:LINE: PROBLEM`, sorted by page and line.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        for (path, text) in self.files.iter().filter(|(path, _)| path.ends_with(".md")) {
            let page = Page::parse(text);
            let mut found = BTreeSet::new();
            for (line, link) in &page.links {
                found.extend(self.check_link(path, &page, link).map(|problem| (*line, problem)));
            }
            for (line, code) in &page.spans {
                let problems = self.check_constants(code).chain(self.check_code(path, code));
                found.extend(problems.map(|problem| (*line, problem)));
            }
            for (line, command) in &page.commands {
                found.extend(self.check_code(path, command).map(|problem| (*line, problem)));
            }
            problems
                .extend(found.iter().map(|(line, problem)| format!("{path}:{line}: {problem}")));
        }
        problems
    }

    fn check_link(&self, page: &str, parsed: &Page, link: &str) -> Option<String> {
        if link.contains("://") || link.starts_with("mailto:") {
            return None;
        }
        let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
        let mut headings = &parsed.headings;
        let other;
        if !path.is_empty() {
            let Some(target) = normalize(&join(parent(page), path)) else {
                return Some(format!("the link {link} leaves the repository"));
            };
            if !self.exists(&target) {
                return Some(format!("the link {link} leads to no file"));
            }
            if !target.ends_with(".md") {
                return None;
            }
            other = Page::parse(&self.files[&target]);
            headings = &other.headings;
        }
        (!anchor.is_empty() && !headings.contains(anchor))
            .then(|| format!("the link {link} leads to no heading"))
    }

    fn check_constants(&self, code: &str) -> impl Iterator<Item = String> {
        // A word without an underscore may be an abbreviation, unless the word alone is the last
        // part of a path.
        let last = code.rsplit("::").next().unwrap_or(code);
        let is_hex = last.chars().all(|digit| digit.is_ascii_hexdigit());
        let alone = (is_capitals(last) && last.len() > 2 && !is_hex).then_some(last);
        identifiers(code)
            .filter(|word| is_capitals(word) && word.contains('_'))
            .chain(alone)
            .filter(|word| !self.words.contains(*word) && !self.words.contains(&camel_case(word)))
            .map(|word| format!("{word} is not in the code"))
            .collect::<BTreeSet<_>>()
            .into_iter()
    }

    /// Checks the paths, targets and options in the text of a command or code span.
    fn check_code(&self, page: &str, code: &str) -> impl Iterator<Item = String> {
        let words: Vec<&str> = code.split_whitespace().map(trimmed).collect();
        let mut problems = Vec::new();
        for word in &words {
            if !self.may_be_path(page, word) {
                problems.push(format!("there is no file or folder {word}"));
            }
        }
        for option in options(code) {
            let field = option.trim_start_matches('-').replace('-', "_");
            if !self.words.contains(option) && !self.words.contains(&field) {
                problems.push(format!("no command has the option {option}"));
            }
        }
        if words.contains(&"cargo") {
            for pair in words.windows(2) {
                let [option, name] = pair else { continue };
                let named = matches!(*option, "-p" | "--test" | "--example" | "--bin" | "--bench");
                if named && is_name(name) && !self.targets.contains(*name) {
                    problems.push(format!("there is no package or target {name}"));
                }
            }
        }
        problems.into_iter()
    }

    /// Whether a word exists as a path, or is no path of this repository.
    fn may_be_path(&self, page: &str, word: &str) -> bool {
        let word = word.strip_prefix("./").unwrap_or(word);
        let is_path_letter = |letter: char| letter.is_alphanumeric() || "._-/".contains(letter);
        if !word.chars().all(is_path_letter) || word.contains("..") || word.starts_with('/') {
            return true;
        }
        let (stem, extension) = word.rsplit_once('.').unwrap_or((word, ""));
        let is_file = EXTENSIONS.contains(&extension) && !stem.is_empty() && !stem.ends_with('/');
        let Some((first, _)) = word.split_once('/') else {
            return !is_file || self.files.keys().any(|path| file_name(path) == word);
        };
        let core = "erpc-core/src";
        let known = ["", parent(page), core].iter().any(|base| {
            let first = join(base, first);
            self.exists(&first) || self.exists(&format!("{first}.rs"))
        });
        let bases = self.bases.iter().map(String::as_str).chain([parent(page)]);
        let mut bases = bases.map(|base| join(base, word.trim_end_matches('/')));
        // A page may name a module without the extension `.rs`.
        ["target", ".git"].contains(&first)
            || !(is_file || known)
            || bases.any(|path| self.exists(&path) || self.exists(&format!("{path}.rs")))
    }

    fn exists(&self, path: &str) -> bool {
        path.is_empty() || self.files.contains_key(path) || self.folders.contains(path)
    }
}

/// The parts of a page that refer to something, each with its line from 1.
#[derive(Default)]
struct Page {
    links: Vec<(usize, String)>,
    /// Texts between backticks.
    spans: Vec<(usize, String)>,
    /// Lines of blocks of commands, without comments.
    commands: Vec<(usize, String)>,
    /// Anchors of the headings.
    headings: HashSet<String>,
}

impl Page {
    fn parse(text: &str) -> Self {
        let mut page = Self::default();
        // The language of the current block, and the text outside of blocks.
        let (mut block, mut prose) = (None, String::new());
        for (number, line) in text.lines().enumerate() {
            let fence = line.trim_start().strip_prefix("```");
            match (block, fence) {
                (None, Some(language)) => block = Some(language),
                (None, None) => {
                    page.add_heading(line);
                    prose.push_str(line);
                }
                (Some(_), Some(_)) => block = None,
                (Some("console" | "sh" | "bash"), None) => {
                    let command = line.split(" # ").next().unwrap_or_default();
                    page.commands.push((number + 1, command.to_owned()));
                }
                (Some(_), None) => {}
            }
            prose.push('\n');
        }
        let prose = page.take_spans(&prose);
        page.add_links(&prose);
        page
    }

    /// Adds the anchor that GitHub makes of a heading. Repeated anchors get a number.
    fn add_heading(&mut self, line: &str) {
        let text = line.trim_start_matches('#');
        if text.len() == line.len() || !text.starts_with(' ') {
            return;
        }
        // Keeps the text of a link, and drops its target.
        let text: String =
            text.split("](").enumerate().fold(String::new(), |before, (at, part)| {
                before
                    + if at == 0 { part } else { part.split_once(')').map_or("", |(_, rest)| rest) }
            });
        let anchor: String = text
            .trim()
            .chars()
            .filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter))
            .map(|letter| if letter == ' ' { '-' } else { letter })
            .flat_map(char::to_lowercase)
            .collect();
        let numbered = (1..).map(|number| format!("{anchor}-{number}"));
        let mut anchors = std::iter::once(anchor.clone()).chain(numbered);
        self.headings.extend(anchors.find(|anchor| !self.headings.contains(anchor)));
    }

    /// Adds the code spans, and returns the text with nothing in their places.
    fn take_spans(&mut self, prose: &str) -> String {
        let (mut rest, mut outside, mut line) = (prose, String::new(), 1);
        while let Some(start) = rest.find('`') {
            let ticks = rest[start..].len() - rest[start..].trim_start_matches('`').len();
            let (before, opened) = rest.split_at(start + ticks);
            line += before.matches('\n').count();
            outside.push_str(&before[..start]);
            // A span ends with the number of backticks with which it began, in the same paragraph.
            let paragraph = opened.find("\n\n").unwrap_or(opened.len());
            let end = opened[..paragraph].find(&before[start..]);
            rest = opened;
            if let Some(end) = end {
                let lines = opened[..end].matches('\n').count();
                self.spans.push((line, opened[..end].to_owned()));
                outside.push_str(&"\n".repeat(lines));
                line += lines;
                rest = &opened[end + ticks..];
            }
        }
        outside + rest
    }

    /// Adds inline links, images, and definitions of links. `prose` has no code spans.
    fn add_links(&mut self, prose: &str) {
        for (start, _) in prose.match_indices("](") {
            let target = prose[start + 2..].split([')', ' ', '\n']).next().unwrap_or_default();
            let line = prose[..start].matches('\n').count() + 1;
            self.links.push((line, target.to_owned()));
        }
        for (number, line) in prose.lines().enumerate() {
            if let Some((_, target)) =
                line.strip_prefix('[').and_then(|line| line.split_once("]: "))
            {
                let target = target.split(' ').next().unwrap_or_default();
                self.links.push((number + 1, target.to_owned()));
            }
        }
    }
}

fn read_folder(root: &Path, folder: &str, files: &mut BTreeMap<String, String>) -> io::Result<()> {
    for entry in fs::read_dir(root.join(folder))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = join(folder, &name);
        if entry.file_type()?.is_file() {
            let text = String::from_utf8(fs::read(entry.path())?).unwrap_or_default();
            files.insert(path, text);
        } else if name != "target" && name != ".git" && entry.file_type()?.is_dir() {
            read_folder(root, &path, files)?;
        }
    }
    Ok(())
}

/// What begins a comment in a file of code; `None` for files that are not code.
fn comment_of(path: &str) -> Option<&'static str> {
    match file_name(path).rsplit_once('.') {
        Some((_, "rs" | "proto")) => Some("// "),
        Some((_, "toml" | "yml")) | None => Some("# "),
        Some(_) => None,
    }
}

/// The name of the test, example, benchmark or program with this file.
fn target_of(path: &str) -> Option<&str> {
    let path = path.strip_suffix(".rs")?;
    let path = path.strip_suffix("/main").unwrap_or(path);
    let folder = file_name(parent(path));
    ["tests", "examples", "benches", "bin"].contains(&folder).then(|| file_name(path))
}

fn identifiers(code: &str) -> impl Iterator<Item = &str> {
    code.split(|letter: char| !letter.is_alphanumeric() && letter != '_')
        .filter(|word| !word.is_empty())
}

/// The long options in a command, or in code about them, without their values.
fn options(code: &str) -> impl Iterator<Item = &str> {
    let is_name = |letter: char| letter.is_ascii_lowercase() || letter == '-';
    code.split(|letter: char| letter.is_whitespace() || "\"'`,;|()[]=".contains(letter)).filter(
        move |word| {
            word.strip_prefix("--").is_some_and(|name| {
                name.starts_with(|letter: char| letter.is_ascii_lowercase())
                    && name.chars().all(is_name)
            })
        },
    )
}

/// A word without the punctuation around it, and a path without the number of a line.
fn trimmed(word: &str) -> &str {
    let word = word.trim_start_matches(['(', '"', '\'']);
    let word = word.trim_end_matches([',', ';', ':', '.', ')', '"', '\'']);
    match word.rsplit_once(':') {
        Some((path, line)) if line.chars().all(|digit| digit.is_ascii_digit()) => path,
        _ => word,
    }
}

fn is_capitals(word: &str) -> bool {
    word.starts_with(|letter: char| letter.is_ascii_uppercase())
        && word
            .chars()
            .all(|letter| letter.is_ascii_uppercase() || letter.is_ascii_digit() || letter == '_')
}

/// `NOT_FOUND` as `NotFound`.
fn camel_case(capitals: &str) -> String {
    capitals
        .split('_')
        .flat_map(|word| word.char_indices())
        .map(|(at, letter)| if at == 0 { letter } else { letter.to_ascii_lowercase() })
        .collect()
}

/// Whether a word is the name of a package or target, not a placeholder in capitals.
fn is_name(word: &str) -> bool {
    !is_capitals(word)
        && word.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_".contains(letter))
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

fn file_name(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

fn join(folder: &str, path: &str) -> String {
    if folder.is_empty() { path.to_owned() } else { format!("{folder}/{path}") }
}

/// A path without `.` and `..`; `None` if it is outside of the repository.
fn normalize(path: &str) -> Option<String> {
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The problems of a page in a small repository, without the name of the page.
    fn problems(page: &str) -> Vec<String> {
        let code = "const LIMIT_OF: u32 = 1; // OLD_LIMIT was smaller\nenum Code { NotFound }";
        let repository = Repository::of_texts(&[
            ("docs/PAGE.md", page),
            ("docs/other.md", "# One `two`: [three](x), 4\n\n# Same\n\n# Same\n"),
            ("core/Cargo.toml", "[package]\nname = \"core-of-it\"\n"),
            ("core/src/wire/header.rs", code),
            ("core/tests/layers.rs", ""),
            (".ci/run", "cargo test --workspace # not --quietly\n"),
        ]);
        let problems = repository.problems();
        let page = "docs/PAGE.md:";
        problems.iter().filter_map(|line| line.strip_prefix(page)).map(str::to_owned).collect()
    }

    #[track_caller]
    fn is_right(page: &str) {
        assert_eq!(problems(page), [""; 0]);
    }

    #[track_caller]
    fn is_wrong(page: &str, problem: &str) {
        assert_eq!(problems(page), [problem]);
    }

    #[test]
    fn a_link_leads_to_a_file_and_a_heading() {
        is_right("[a](other.md), [b](../core/src), [c](https://x.example/#y), `[d](none.md)`");
        is_right("[a](other.md#one-two-three-4) [b](other.md#same) [c](other.md#same-1)");
        is_right("# This page\n\n[a\nb](#this-page)\n\n[c]: other.md\n");
        is_wrong("a\n\n[b](none.md)", "3: the link none.md leads to no file");
        is_wrong("[b](../../x.md)", "1: the link ../../x.md leaves the repository");
        is_wrong("[c]: none.md", "1: the link none.md leads to no file");
        is_wrong("[a](other.md#same-2)", "1: the link other.md#same-2 leads to no heading");
        is_wrong("```text\n# A\n```\n[a](#a)", "4: the link #a leads to no heading");
    }

    #[test]
    fn a_path_in_code_font_exists() {
        is_right("`core/src/wire/header.rs:12`, `wire/header.rs`, `wire/`, `header.rs`, `.ci/run`");
        is_right("`wire/header`, `wire/<file>.rs`, `tests/..`, `target/x.rs`, `GET/PUT`, none.rs");
        is_wrong("`core/none`", "1: there is no file or folder core/none");
        is_wrong("a\n`wire/none.rs`", "2: there is no file or folder wire/none.rs");
        is_wrong("`none.rs`", "1: there is no file or folder none.rs");
        is_wrong("```sh\n.ci/none # y\n```", "2: there is no file or folder .ci/none");
    }

    #[test]
    fn a_name_in_capitals_is_in_the_code() {
        is_right(
            "`LIMIT_OF`, `header::LIMIT_OF`, `NOT_FOUND`, `LIMIT_OF = 2 of N`, `FFFF`, NO_SUCH",
        );
        is_wrong("`x\nNO_SUCH = 2`", "1: NO_SUCH is not in the code");
        is_wrong("`a::NONE`", "1: NONE is not in the code");
        is_wrong("``OLD_LIMIT``", "1: OLD_LIMIT is not in the code");
    }

    #[test]
    fn a_command_has_its_package_its_target_and_its_options() {
        is_right("`cargo test --workspace -p core-of-it --test layers`, `--test NAME`");
        is_wrong("`cargo test --test none`", "1: there is no package or target none");
        is_wrong("```console\n$ cargo run -p x\n```", "2: there is no package or target x");
        is_wrong("`.ci/run --quietly`", "1: no command has the option --quietly");
    }
}
