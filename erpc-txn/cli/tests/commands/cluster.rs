//! `serve`, `local` and `status`.

use rustix::process::Signal;

use crate::program::{Program, TempFile, ports, run};

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

#[test]
fn one_command_starts_a_cluster_and_a_signal_stops_it() {
    for (signal, args) in [
        (Signal::INT, &["local"][..]),
        (Signal::TERM, &["local", "--nodes", "2", "--replicas", "1", "--threads", "2"]),
    ] {
        let cluster = Program::start(args, "");
        let try_it = cluster.line("try: erpc-txn shell --connect ");
        let addresses = try_it.rsplit(' ').next().expect("a line has words");
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
    assert_eq!((status.code, status.output.len()), (Some(0), 4), "{status:?}");
    drop(nodes.pop());
    // The others notice when a session ends. Whatever they have noticed, one of three is down.
    let status = run(&["status", "--config", file.path()], "");
    assert_eq!(status.code, Some(1), "{status:?}");
    assert!(status.output[3].contains(" down"), "{status:?}");
    assert!(status.errors[0].ends_with("of 3 nodes serve"), "{status:?}");
    for node in nodes {
        node.signal(Signal::TERM);
        assert_eq!(node.end().code, Some(0));
    }
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
