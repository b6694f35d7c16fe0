//! `serve`, `local` and `status`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::process::Signal;

use crate::program::{Ended, Program, TempFile, addresses, ports, run};

/// The file of a cluster on this machine.
pub(crate) fn file(name: &str, ports: &[u16], replicas: usize) -> TempFile {
    let mut text = format!("name = \"{name}\"\nreplicas = {replicas}\n");
    for (node, port) in ports.iter().enumerate() {
        text += &format!("[[nodes]]\nid = {node}\naddress = \"127.0.0.1:{port}\"\n");
    }
    text += "[[tables]]\nid = 1\nname = \"users\"\ncapacity = 1000\n";
    TempFile::new(&text)
}

/// Starts all nodes, and waits until they serve.
pub(crate) fn serve(file: &TempFile, nodes: usize) -> Vec<Program> {
    let start = |node: usize| {
        Program::start(&["serve", "--config", file.path(), "--node", &node.to_string()], "")
    };
    let programs: Vec<_> = (0..nodes).map(start).collect();
    for (node, program) in programs.iter().enumerate() {
        program.line(&format!("node {node} of cluster "));
    }
    programs
}

/// A column of what `status` prints of nodes.
fn column<'s>(status: &'s Ended, name: &str) -> Vec<&'s str> {
    let lines = status.output.iter().skip_while(|line| !line.starts_with("node "));
    let mut lines = lines.map(|line| line.split_whitespace());
    let at = lines.next().and_then(|mut names| names.position(|other| other == name));
    let at = at.unwrap_or_else(|| panic!("no column {name}: {status:?}"));
    lines.filter_map(|mut line| line.nth(at)).collect()
}

#[test]
fn status_shows_the_load() {
    let cluster = Program::start(&["local", "--nodes", "1", "--replicas", "1"], "");
    let addresses = &*addresses(&cluster);
    let idle = run(&["status", "--connect", addresses], "");
    assert_eq!((column(&idle, "commits/s"), column(&idle, "backups")), (vec!["0"], vec!["0"]));
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in (0..1000).take_while(|_| !is_over.load(Ordering::Relaxed)) {
                let put = run(&["shell", "--connect", addresses], &"put 1 7 text\n".repeat(2000));
                assert_eq!(put.code, Some(0), "{put:?}");
            }
        });
        // A sample may be between two shells.
        let sees_load = (0..40).any(|_| {
            let status = run(&["status", "--connect", addresses], "");
            let number = |name| column(&status, name).first()?.parse::<u64>().ok();
            number("commits/s") > Some(0) && number("commits") > Some(0)
        });
        is_over.store(true, Ordering::Relaxed);
        assert!(sees_load, "no load is seen");
    });
}

#[test]
fn one_command_starts_a_cluster_and_a_signal_stops_it() {
    for (signal, args) in [
        (Signal::INT, &["local"][..]),
        (Signal::TERM, &["local", "--nodes", "2", "--replicas", "1", "--threads", "2"]),
    ] {
        let cluster = Program::start(args, "");
        let addresses = &*addresses(&cluster);
        let status = run(&["status", "--connect", addresses], "");
        assert_eq!(status.code, Some(0), "{status:?}");
        let serving = status.output.iter().filter(|line| line.contains(" serves ")).count();
        assert_eq!(serving, addresses.split(',').count(), "{status:?}");
        cluster.signal(signal);
        let ended = cluster.end();
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert_eq!(ended.errors, ["erpc-txn: stopping"]);
        let status = run(&["status", "--connect", addresses], "");
        assert_eq!(status.code, Some(1), "{status:?}");
        assert!(status.output.iter().any(|line| line.contains(" down")), "{status:?}");
    }
}

#[test]
fn nodes_form_a_cluster_and_status_tells_when_one_is_lost() {
    let file = file("shop", &ports::<3>(), 3);
    let mut nodes = serve(&file, 3);
    let put = run(&["shell", "--config", file.path()], "put users 1 one\nput users 2 two\n");
    assert_eq!((put.code, put.output), (Some(0), vec!["inserted".to_owned(); 2]));
    let status = run(&["status", "--config", file.path()], "");
    assert_eq!((status.code, status.output.len()), (Some(0), 5), "{status:?}");
    let layout = "3 nodes, 3 partitions with 3 replicas, 1 table; ";
    assert!(status.output[0].starts_with(layout), "{status:?}");
    assert_eq!(column(&status, "primaries"), ["1"; 3]);
    assert_eq!(column(&status, "backups"), ["2"; 3]);
    assert_eq!(column(&status, "epoch"), ["1"; 3]);
    drop(nodes.pop());
    // The others notice when a session ends. Whatever they have noticed, one of three is down.
    let status = run(&["status", "--config", file.path()], "");
    assert_eq!(status.code, Some(1), "{status:?}");
    assert!(status.output[4].contains(" down"), "{status:?}");
    assert!(status.errors[0].ends_with("of 3 nodes serve"), "{status:?}");
    for node in nodes {
        node.signal(Signal::TERM);
        assert_eq!(node.end().code, Some(0));
    }
}

#[test]
fn the_only_node_needs_no_number() {
    let file = file("shop", &ports::<1>(), 1);
    let node = Program::start(&["serve", "--config", file.path()], "");
    node.line("node 0 of cluster shop serves at ");
    node.signal(Signal::TERM);
    assert_eq!(node.end().code, Some(0));
}

#[test]
fn a_node_names_those_it_waits_for() {
    let file = file("shop", &ports::<3>(), 1);
    let args = |node| ["serve", "--config", file.path(), "--node", node];
    let (first, second) = (Program::start(&args("0"), ""), Program::start(&args("1"), ""));
    first.error("erpc-txn: node 0 waits for nodes 2");
    first.signal(Signal::INT);
    assert_eq!(first.end().code, Some(0), "a node that waits can be stopped");
    drop(second);
}
