//! What a line means.

use std::collections::BTreeMap;
use std::fmt;

use crate::config::Tables;

pub(super) const HELP: &str = "\
get TABLE KEY           shows a value
put TABLE KEY VALUE     inserts or replaces a value: text, or bytes as x'00ff'
delete TABLE KEY        deletes a key
begin                   begins a transaction; the commands above then belong to it
commit                  commits it
abort                   gives it up
tables                  lists the tables
status                  shows what a node says of the cluster
help                    shows this
quit                    ends the shell
Keys are numbers: 17 or 0x11. A transaction may take a minute.";

/// The words that begin a line.
const COMMANDS: [&str; 10] =
    ["get", "put", "delete", "begin", "commit", "abort", "tables", "status", "help", "quit"];

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Command {
    Access(Access),
    Begin,
    Commit,
    Abort,
    Tables,
    Status,
    Help,
    Quit,
}

/// An access of one key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Access {
    pub(super) table: u16,
    pub(super) key: u64,
    pub(super) what: What,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum What {
    Get,
    Put(Vec<u8>),
    Delete,
}

/// The cluster's tables.
pub(super) struct Names(BTreeMap<u16, Option<String>>);

impl Names {
    /// The tables that the cluster has, and the names that the configuration file has.
    pub(super) fn new(ids: impl IntoIterator<Item = u16>, mut names: Tables) -> Self {
        Self(ids.into_iter().map(|id| (id, names.remove(&id))).collect())
    }

    /// What a line may begin with, and then the tables.
    pub(super) fn words(&self) -> (Vec<String>, Vec<String>) {
        let table = |(id, name): (&u16, &Option<String>)| name.clone().unwrap_or(id.to_string());
        (COMMANDS.map(str::to_owned).into(), self.0.iter().map(table).collect())
    }

    fn find(&self, word: &str) -> Result<u16, String> {
        let by_name = self.0.iter().find(|(_, name)| name.as_deref() == Some(word));
        let by_id = || word.parse().ok().filter(|id| self.0.contains_key(id));
        let found = by_name.map(|(&id, _)| id).or_else(by_id);
        found.ok_or_else(|| format!("there is no table {word}; the cluster has {self}"))
    }

    /// The command of a line; none if the line is empty or a comment.
    pub(super) fn parse(&self, line: &str) -> Result<Option<Command>, String> {
        let (word, rest) = split(line);
        let access = |what: fn(&str) -> Result<What, String>| {
            let (table, rest) = split(rest);
            let (key, rest) = split(rest);
            if key.is_empty() {
                return Err(format!("{word} needs a table and a key"));
            }
            let (table, key, what) = (self.find(table)?, number(key)?, what(rest)?);
            Ok(Command::Access(Access { table, key, what }))
        };
        let alone = |command| match rest {
            "" => Ok(command),
            rest => Err(format!("{word} stands alone; what is {rest}?")),
        };
        let command = match word {
            "" => return Ok(None),
            _ if word.starts_with('#') => return Ok(None),
            "get" => access(|rest| ends(rest, What::Get)),
            "put" => access(|rest| value(rest).map(What::Put)),
            "delete" => access(|rest| ends(rest, What::Delete)),
            "begin" => alone(Command::Begin),
            "commit" => alone(Command::Commit),
            "abort" => alone(Command::Abort),
            "tables" => alone(Command::Tables),
            "status" => alone(Command::Status),
            "help" => alone(Command::Help),
            "quit" | "exit" => alone(Command::Quit),
            _ => Err(format!("there is no command {word}; `help` lists them")),
        };
        command.map(Some)
    }
}

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let table = |(id, name): (&u16, &Option<String>)| match name {
            Some(name) => format!("{name} ({id})"),
            None => id.to_string(),
        };
        let tables: Vec<_> = self.0.iter().map(table).collect();
        let word = if tables.len() == 1 { "table" } else { "tables" };
        write!(f, "{word} {}", tables.join(", "))
    }
}

/// The first word, and the rest without the spaces around it.
fn split(line: &str) -> (&str, &str) {
    let line = line.trim();
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    (word, rest.trim_start())
}

fn ends(rest: &str, what: What) -> Result<What, String> {
    if rest.is_empty() { Ok(what) } else { Err(format!("what is {rest}?")) }
}

fn number(word: &str) -> Result<u64, String> {
    let parsed = match word.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => word.parse(),
    };
    parsed.map_err(|_| format!("the key {word} is not a number of 64 bits"))
}

/// A value: the rest of the line, or hexadecimal digits in `x'...'`.
fn value(rest: &str) -> Result<Vec<u8>, String> {
    let Some(digits) = rest.strip_prefix("x'").and_then(|rest| rest.strip_suffix('\'')) else {
        if rest.is_empty() {
            return Err("put needs a value; x'' is the empty one".into());
        }
        return Ok(rest.as_bytes().to_vec());
    };
    let pair = |pair: &[u8]| {
        let digit = |at: usize| char::from(*pair.get(at)?).to_digit(16);
        Some((digit(0)? * 16 + digit(1)?) as u8)
    };
    let bytes: Option<_> = digits.as_bytes().chunks(2).map(pair).collect();
    bytes.ok_or_else(|| format!("x'{digits}' is not pairs of hexadecimal digits"))
}

/// A value as `put` takes it.
pub(super) fn show(value: &[u8]) -> String {
    match std::str::from_utf8(value) {
        Ok(text) if is_plain(text) => text.to_owned(),
        _ => {
            let digits: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("x'{digits}'")
        }
    }
}

/// Whether `put` takes the text literally.
fn is_plain(text: &str) -> bool {
    !text.is_empty()
        && text.trim() == text
        && !text.starts_with("x'")
        && !text.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        Names::new([1, 2], [(2, "users".to_owned())].into())
    }

    fn access(line: &str) -> Access {
        match names().parse(line) {
            Ok(Some(Command::Access(access))) => access,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn lines_are_commands() {
        assert_eq!(access("get 1 17"), Access { table: 1, key: 17, what: What::Get });
        assert_eq!(
            access(" delete  users 0xff "),
            Access { table: 2, key: 255, what: What::Delete }
        );
        let put = |value: &[u8]| What::Put(value.to_vec());
        assert_eq!(access("put users 3 two words ").what, put(b"two words"));
        assert_eq!(access("put 2 3 x'00fF'").what, put(&[0, 255]));
        assert_eq!(access("put 2 3 x''").what, put(b""));
        for (line, command) in [("begin", Command::Begin), ("exit", Command::Quit)] {
            assert_eq!(names().parse(line), Ok(Some(command)));
        }
        assert_eq!(names().parse("  "), Ok(None));
        assert_eq!(names().parse("# a comment"), Ok(None));
    }

    #[test]
    fn mistakes_are_explained() {
        for (line, part) in [
            ("got 1 2", "there is no command got"),
            ("get 1", "get needs a table and a key"),
            ("get 3 1", "there is no table 3; the cluster has tables 1, users (2)"),
            ("get 1 -1", "the key -1 is not a number"),
            ("get 1 18446744073709551616", "is not a number of 64 bits"),
            ("get 1 2 3", "what is 3?"),
            ("put 1 2", "put needs a value"),
            ("put 1 2 x'0'", "not pairs of hexadecimal digits"),
            ("put 1 2 x'+1'", "not pairs of hexadecimal digits"),
            ("put 1 2 x'ä0'", "not pairs of hexadecimal digits"),
            ("commit now", "commit stands alone"),
        ] {
            let error = names().parse(line).expect_err(line);
            assert!(error.contains(part), "{line}: {error}");
        }
    }

    #[test]
    fn what_is_shown_can_be_put_again() {
        for value in
            [&b"text"[..], b"", b" spaces ", b"x'12'", b"\0\xff", "gr\u{fc}n".as_bytes(), b"a\nb"]
        {
            let line = format!("put 1 2 {}", show(value));
            assert_eq!(access(&line).what, What::Put(value.to_vec()), "{line}");
        }
    }
}
