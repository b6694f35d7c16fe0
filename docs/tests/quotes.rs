//! Checks that the code of the guide is compiled and run: each block of Rust or protobuf in a
//! chapter is a sequence of lines of a source file. Imports at the block's start may stand elsewhere
//! in that file. Indentation, comments and empty lines are ignored.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Source files of the blocks.
const RUST: [&str; 23] = [
    "build.rs",
    "src/lib.rs",
    "src/bank/member.rs",
    "src/bank/mod.rs",
    "src/warehouse.rs",
    "tests/bank.rs",
    "tests/chapters.rs",
    "tests/log.rs",
    "src/port/helloworld_client.rs",
    "src/port/helloworld_server.rs",
    "src/port/route_guide_client.rs",
    "src/port/route_guide_server.rs",
    "tonic/src/helloworld_client.rs",
    "tonic/src/helloworld_server.rs",
    "tonic/src/route_guide_client.rs",
    "tonic/src/route_guide_server.rs",
    "tests/operating.rs",
    "tests/testing.rs",
    "tests/tokio.rs",
    "../examples/herd/src/client.rs",
    "../examples/herd/src/service.rs",
    "../examples/masstree/store.rs",
    "../examples/raft/src/consensus/mod.rs",
];
const PROTO: [&str; 3] = ["proto/stock.proto", "proto/market.proto", "../proto/masstree.proto"];

fn lines(text: &str) -> Vec<&str> {
    let is_code = |line: &&str| !line.is_empty() && !line.starts_with("//");
    text.lines().map(str::trim).filter(is_code).collect()
}

/// Whether this line imports items, and needs no further line.
fn is_import(line: &str) -> bool {
    line.starts_with("use ") && line.ends_with(';')
}

/// The items that `code` imports, each with its path.
fn imported(code: &[&str]) -> BTreeSet<String> {
    let text = code.join(" ");
    let imports = text.split("use ").skip(1).filter_map(|rest| rest.split_once(';'));
    let items = imports.flat_map(|(tree, _)| {
        let (path, names) = tree.split_once('{').unwrap_or(("", tree));
        let names = names.trim_end_matches(['}', ' ']).split(',').map(str::trim);
        names.map(|name| format!("{path}{name}")).collect::<Vec<_>>()
    });
    items.collect()
}

fn read(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The blocks in `language`, each with the number of its first line.
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
    for entry in fs::read_dir(env!("CARGO_MANIFEST_DIR")).expect("the guide's folder is readable") {
        let name = entry.expect("the entry is readable").file_name().to_string_lossy().into_owned();
        if !name.ends_with(".md") {
            continue;
        }
        for (line, block) in blocks(&read(&name), language) {
            let wanted = lines(&block);
            let imports = wanted.iter().take_while(|line| is_import(line)).count();
            let (imports, code) = wanted.split_at(imports);
            let stands = |source: &Vec<&str>| {
                imported(imports).is_subset(&imported(source))
                    && (code.is_empty() || source.windows(code.len()).any(|w| w == code))
            };
            assert!(
                !wanted.is_empty() && sources.iter().any(stands),
                "{name}:{line}: no source file contains this block:\n{block}"
            );
            found += 1;
        }
    }
    assert!(found >= at_least, "found {found} blocks of {language}, expected {at_least} or more");
}

#[test]
fn every_rust_block_is_in_a_source_file() {
    look_up("rust", &RUST, 20);
}

#[test]
fn every_protobuf_block_is_in_a_source_file() {
    look_up("proto", &PROTO, 3);
}

#[test]
fn chapter_7_counts_the_lines_of_both_sides() {
    let chapter = read("7-tonic.md");
    for name in
        ["helloworld_server", "helloworld_client", "route_guide_server", "route_guide_client"]
    {
        let count = |folder: &str| lines(&read(&format!("{folder}/{name}.rs"))).len();
        let row = format!("| {name} | {} | {} |", count("tonic/src"), count("src/port"));
        assert!(chapter.contains(&row), "7-tonic.md needs this row: {row}");
    }
}
