//! What goes wrong at the start of a node is one line that says what.

use std::net::UdpSocket;

use crate::cluster::{file, serve};
use crate::program::{TempFile, fails, ports};

fn serve_fails(file: &TempFile, node: &str, why: &str) {
    fails(&["serve", "--config", file.path(), "--node", node], why);
}

#[test]
fn a_wrong_file_is_refused_with_its_line() {
    fails(&["serve", "--config", "/nowhere/c.toml", "--node", "0"], "cannot read /nowhere/c.toml");
    fails(&["status", "--config", "/nowhere/c.toml"], "cannot read /nowhere/c.toml");
    let good = file("shop", &[4000, 4001], 2);
    serve_fails(&good, "7", "has no node 7, but 0, 1; see --node");
    let which = format!("{} has the nodes 0, 1; say with --node which one this is", good.path());
    fails(&["serve", "--config", good.path()], &which);
    let wrong = file("shop", &[4000, 4001], 3);
    serve_fails(&wrong, "0", "replicas = 3 with 2 nodes");
    let text = std::fs::read_to_string(good.path()).expect("it is there");
    let wrong = TempFile::new(&text.replace("capacity = 1000", "capacity = \"many\""));
    serve_fails(&wrong, "0", "line 12: invalid type");
    let wrong = TempFile::new(&text.replace("capacity = 1000", "capacity = 1000\ninline = 65"));
    serve_fails(&wrong, "0", "a slot holds at most 64");
    let wrong = TempFile::new(&text.replace("capacity = 1000", "capacity = 0"));
    serve_fails(&wrong, "0", &format!("{}: capacity = 0 in table users", wrong.path()));
}

#[test]
fn a_used_port_is_named() {
    let used = UdpSocket::bind("127.0.0.1:0").expect("there are ports");
    let address = used.local_addr().expect("it is bound");
    let cluster = file("shop", &[address.port()], 1);
    serve_fails(&cluster, "0", &format!("{address} is in use"));
    fails(
        &["local", "--nodes", "1", "--replicas", "1", "--port", &address.port().to_string()],
        &format!("{address} is in use"),
    );
    fails(&["local", "--nodes", "2"], "--replicas 3 needs as many nodes");
    fails(&["local", "--port", "65535"], "--port is too high");
}

#[test]
fn nodes_of_other_clusters_are_refused() {
    let ports = ports::<3>();
    let of_shop = file("shop", &ports[..2], 2);
    let nodes = serve(&of_shop, 2);
    // At the address of node 0 is a node of the other cluster.
    let other = [ports[0], ports[2]];
    serve_fails(&file("bank", &other, 2), "1", "it is of another cluster");
    serve_fails(&file("shop", &other, 1), "1", "it is of another cluster, or has another config");
    let text = std::fs::read_to_string(file("shop", &other, 2).path()).expect("it is there");
    let newer = TempFile::new(&format!("epoch = 5\n{text}"));
    serve_fails(&newer, "1", "it has epoch 1, and this node 5");
    // Somebody starts node 1 a second time, elsewhere.
    serve_fails(&file("shop", &other, 2), "1", "restart the whole cluster");
    // Node 1 is where node 0 is expected.
    serve_fails(
        &file("shop", &[ports[1], ports[2]], 2),
        "1",
        "it is node 1; compare the addresses",
    );
    drop(nodes);
    fails(&["shell", "--config", of_shop.path()], "no node of a cluster at");
}
