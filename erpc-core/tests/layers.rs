//! Folder order is import order. The documentation in `lib.rs` shows the same list as `ORDERS`.
//!
//! * A file or folder imports only from earlier entries of its folder's order.
//! * No cycle of imports leaves its folder, and none has more than three files.
//! * Outside of tests, a glob imports only items that its own file defines.
//! * A module with children is `name/mod.rs`.
//!
//! Each path is followed through re-exports to the file that defines the item.

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
            "debug_text",
            "status",
            "wire",
            "memory",
            "buf",
            "transport",
            "protocol",
            "stream",
            "log",
            "service",
            "health",
            "event_loop",
            "executor",
            "calling",
            "serving",
            "endpoint",
            "client",
            "server",
            "testing",
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
            "bundle",
            "checksum",
            "short",
            "control",
            "extension",
            "status",
        ],
    },
    Order {
        folder: "transport",
        entries: &[
            "bundles",
            "charge",
            "undelivered",
            "interface",
            "mem",
            "udp",
            "frame",
            "dpdk",
            "verbs",
            "fault",
        ],
    },
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
            "flushes",
            "ids",
            "proofs",
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
            "padding",
            "client",
            "server",
            "core",
        ],
    },
];

#[test]
fn each_layer_imports_only_from_earlier_layers() {
    let crate_root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let tree = SourceTree::load(&crate_root.join("src")).unwrap();
    let mut violations = check(&tree, "erpc-core/src", ORDERS);
    let workspace = crate_root.parent().unwrap();
    for file in nesting::beside_their_children(workspace).unwrap() {
        let file = file.strip_prefix(workspace).unwrap().display();
        let text = format!(
            "{file}: a module with children is a `mod.rs` in their folder; `git mv` it there."
        );
        violations.push(Violation { key: format!("nesting {file}"), text });
    }

    let shown = fs::read_to_string(crate_root.join("src/lib.rs")).unwrap();
    let shown: Vec<_> = shown.split("//!").flat_map(str::split_whitespace).collect();
    let order = ORDERS[0].to_string();
    assert!(
        shown.join(" ").contains(&order),
        "the order of the folders in the documentation of erpc-core/src/lib.rs differs from ORDERS in \
         erpc-core/tests/layers.rs; write this there: {order}"
    );

    let texts: BTreeSet<_> = violations.iter().map(|violation| &*violation.text).collect();
    let texts: Vec<_> = texts.into_iter().collect();
    assert!(texts.is_empty(), "{} violations:\n{}", texts.len(), texts.join("\n"));
}
