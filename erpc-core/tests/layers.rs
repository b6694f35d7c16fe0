//! Folder order is import order. The list below is the one of the documentation in `lib.rs`.
//!
//! * A file or folder imports only from those that come before it in their folder's order.
//! * No cycle of imports leaves its folder, and none has more than three files.
//! * Outside of tests a glob imports only what its own file defines.
//! * A module with children is `name/mod.rs`.
//!
//! What a path names is followed through re-exports to the file that defines it.
//!
//! `layers.known` lists what still breaks a rule, by rule and file. It only gets shorter:
//! `UPDATE_KNOWN=1 cargo test -p erpc-core --test layers` writes it anew; review the difference.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use erpc_tidy::layers::{Order, Violation, check};
use erpc_tidy::nesting;
use erpc_tidy::tree::SourceTree;

const ORDERS: &[Order<'_>] = &[
    Order {
        folder: "",
        entries: &[
            "time",
            "sync",
            "mutants",
            "clock",
            "random",
            "status",
            "wire",
            "buf",
            "transport",
            "protocol",
            "stream",
            "service",
            "event_loop",
            "executor",
            "calling",
            "serving",
            "endpoint",
            "client",
            "server",
        ],
    },
    Order {
        folder: "wire",
        entries: &[
            "numbers",
            "stamp",
            "reply_info",
            "layout",
            "header",
            "checksum",
            "short",
            "control",
            "extension",
            "status",
        ],
    },
    Order { folder: "transport", entries: &["charge", "interface", "mem", "udp", "fault"] },
    Order {
        folder: "stream",
        entries: &["mod", "frame", "batch", "outbox", "inbox", "client", "server"],
    },
    Order {
        folder: "protocol",
        entries: &[
            "assembly",
            "congestion",
            "cookie",
            "error",
            "ids",
            "rtt",
            "stats",
            "wheel",
            "error_status",
            "measurement",
            "config",
            "index",
            "event",
            "endpoint",
            "turn",
            "client",
            "server",
            "core",
        ],
    },
];

const KNOWN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/layers.known");

#[test]
fn each_layer_imports_only_from_those_before_it() {
    let crate_root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let tree = SourceTree::load(&crate_root.join("src")).unwrap();
    let mut violations = check(&tree, "erpc-core/src", ORDERS);
    let workspace = crate_root.parent().unwrap();
    for file in nesting::beside_their_children(workspace).unwrap() {
        let file = file.strip_prefix(workspace).unwrap().display();
        let text = format!("{file}: a module with children is a `mod.rs` in their folder.");
        violations.push(Violation { key: format!("nesting {file}"), text });
    }

    let shown = fs::read_to_string(crate_root.join("src/lib.rs")).unwrap();
    let shown: Vec<_> = shown.split("//!").flat_map(str::split_whitespace).collect();
    let order = ORDERS[0].to_string();
    assert!(
        shown.join(" ").contains(&order),
        "the documentation in lib.rs is to show this order: {order}"
    );

    let found: BTreeSet<&str> = violations.iter().map(|violation| &*violation.key).collect();
    if std::env::var_os("UPDATE_KNOWN").is_some() {
        let lines: String = found.iter().map(|key| format!("{key}\n")).collect();
        fs::write(KNOWN, lines).unwrap();
    }
    let known = fs::read_to_string(KNOWN).unwrap();
    let known: BTreeSet<&str> = known.lines().collect();

    let new: BTreeSet<_> =
        violations.iter().filter(|new| !known.contains(&*new.key)).map(|new| &new.text).collect();
    for text in &new {
        eprintln!("{text}");
    }
    let gone: Vec<_> = known.difference(&found).collect();
    assert!(new.is_empty(), "{} violations, see above", new.len());
    assert!(gone.is_empty(), "mended; take these lines out of {KNOWN}: {gone:#?}");
}
