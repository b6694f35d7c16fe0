//! What the guide shows is what is compiled and run: every block of Rust or protobuf in its chapters stands in a
//! source file, line by line. Indentation does not count, nor do comments and empty lines of the source.

use std::fs;
use std::path::Path;

/// Where blocks may come from.
const RUST: [&str; 4] = ["build.rs", "src/lib.rs", "src/warehouse.rs", "tests/chapters.rs"];
const PROTO: [&str; 2] = ["proto/stock.proto", "proto/market.proto"];

fn lines(text: &str) -> Vec<&str> {
    let is_code = |line: &&str| !line.is_empty() && !line.starts_with("//");
    text.lines().map(str::trim).filter(is_code).collect()
}

fn read(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The blocks in `language`, with the line that each begins at.
fn blocks(chapter: &str, language: &str) -> Vec<(usize, String)> {
    let mut blocks = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for (number, line) in chapter.lines().enumerate() {
        match &mut open {
            None if line == format!("```{language}") => open = Some((number + 2, String::new())),
            None => {}
            Some(_) if line == "```" => blocks.extend(open.take()),
            Some((_, text)) => {
                text.push_str(line);
                text.push('\n');
            }
        }
    }
    blocks
}

fn look_up(language: &str, sources: &[&str], at_least: usize) {
    let sources: Vec<String> = sources.iter().map(|name| read(name)).collect();
    let sources: Vec<Vec<&str>> = sources.iter().map(|source| lines(source)).collect();
    let mut found = 0;
    for entry in fs::read_dir(env!("CARGO_MANIFEST_DIR")).expect("the guide's folder") {
        let name = entry.expect("an entry").file_name().to_string_lossy().into_owned();
        if !name.ends_with(".md") {
            continue;
        }
        for (line, block) in blocks(&read(&name), language) {
            let wanted = lines(&block);
            let stands = |source: &Vec<&str>| source.windows(wanted.len()).any(|w| w == wanted);
            assert!(
                !wanted.is_empty() && sources.iter().any(stands),
                "{name}:{line}: no source has this block:\n{block}"
            );
            found += 1;
        }
    }
    assert!(found >= at_least, "only {found} blocks of {language}");
}

#[test]
fn rust() {
    look_up("rust", &RUST, 20);
}

#[test]
fn protobuf() {
    look_up("proto", &PROTO, 3);
}
