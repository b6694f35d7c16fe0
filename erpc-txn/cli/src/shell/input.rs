//! Lines of a terminal or a file. A thread of its own waits for them, because the endpoint's loop
//! must run meanwhile.

use std::io;
use std::sync::mpsc::{self, Sender};
use std::thread;

use futures_channel::oneshot;
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::MemHistory;
use rustyline::validate::Validator;
use rustyline::{Config, Context, Editor, Helper};

use crate::failure::Failure;

pub(super) enum Line {
    Text(String),
    /// Ctrl-C.
    Interrupt,
    /// The input has ended.
    End,
}

/// A prompt, and where the line goes.
type Wish = (&'static str, oneshot::Sender<io::Result<Line>>);

pub(super) struct Lines(Sender<Wish>);

impl Lines {
    /// Lines of standard input. At a terminal they can be edited, and the tab key completes
    /// commands and tables.
    pub(super) fn open(
        is_terminal: bool,
        words: (Vec<String>, Vec<String>),
    ) -> Result<Self, Failure> {
        let (wish, wishes) = mpsc::channel::<Wish>();
        let mut source = if is_terminal { Source::terminal(words)? } else { Source::Plain };
        let serve = move || {
            for (prompt, give) in wishes {
                // The receiver is gone if the shell has ended.
                give.send(source.next(prompt)).unwrap_or_default();
            }
        };
        thread::Builder::new()
            .name("input".into())
            .spawn(serve)
            .map_err(Failure::of("no thread"))?;
        Ok(Self(wish))
    }

    /// The next line.
    pub(super) async fn next(&self, prompt: &'static str) -> Result<Line, Failure> {
        let (give, take) = oneshot::channel();
        let ended = || Failure::new("the input's thread has ended");
        self.0.send((prompt, give)).map_err(|_| ended())?;
        take.await.map_err(|_| ended())?.map_err(Failure::of("cannot read a line"))
    }
}

enum Source {
    Terminal(Box<Editor<Words, MemHistory>>),
    Plain,
}

impl Source {
    fn terminal((commands, tables): (Vec<String>, Vec<String>)) -> Result<Self, Failure> {
        let config = Config::builder().auto_add_history(true).build();
        let editor = Editor::with_history(config, MemHistory::new());
        let mut editor = editor.map_err(Failure::of("cannot use the terminal"))?;
        editor.set_helper(Some(Words { commands, tables }));
        Ok(Self::Terminal(Box::new(editor)))
    }

    fn next(&mut self, prompt: &str) -> io::Result<Line> {
        match self {
            Self::Terminal(editor) => match editor.readline(prompt) {
                Ok(line) => Ok(Line::Text(line)),
                Err(ReadlineError::Interrupted) => Ok(Line::Interrupt),
                Err(ReadlineError::Eof) => Ok(Line::End),
                Err(ReadlineError::Io(error)) => Err(error),
                Err(error) => Err(io::Error::other(error)),
            },
            Self::Plain => {
                let mut line = String::new();
                let length = io::stdin().read_line(&mut line)?;
                Ok(if length == 0 { Line::End } else { Line::Text(line) })
            }
        }
    }
}

/// Completes the first word to a command, and the second to a table.
struct Words {
    commands: Vec<String>,
    tables: Vec<String>,
}

impl Words {
    /// The words that may stand at the end of `line`, and where the last word begins.
    fn candidates(&self, line: &str) -> (usize, Vec<String>) {
        let start = line.rfind(char::is_whitespace).map_or(0, |at| at + 1);
        let (before, word) = line.split_at(start);
        let mut words = before.split_whitespace();
        let all: &[String] = match (words.next(), words.next()) {
            (None, _) => &self.commands,
            (Some("get" | "put" | "delete"), None) => &self.tables,
            _ => &[],
        };
        (start, all.iter().filter(|candidate| candidate.starts_with(word)).cloned().collect())
    }
}

impl Completer for Words {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        at: usize,
        _context: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        Ok(self.candidates(line.get(..at).unwrap_or(line)))
    }
}

impl Hinter for Words {
    type Hint = String;
}

impl Highlighter for Words {}
impl Validator for Words {}
impl Helper for Words {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_and_tables_are_completed() {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        let of = Words {
            commands: words(&["get", "put", "commit"]),
            tables: words(&["users", "usage", "7"]),
        };
        for (line, start, expected) in [
            ("", 0, &["get", "put", "commit"][..]),
            ("co", 0, &["commit"]),
            ("get us", 4, &["users", "usage"]),
            ("  get ", 6, &["users", "usage", "7"]),
            ("get users ", 10, &[]),
            ("commit us", 7, &[]),
            ("gr\u{fc}n us", 6, &[]),
        ] {
            assert_eq!(of.candidates(line), (start, words(expected)), "{line}");
        }
    }
}
