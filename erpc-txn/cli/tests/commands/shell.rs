//! `shell`, with a script instead of a terminal.

use rustix::process::Signal;

use crate::program::{Ended, Program, addresses, fails, run};

/// A cluster, and the addresses of its nodes.
fn local() -> (Program, String) {
    let cluster = Program::start(&["local"], "");
    let addresses = addresses(&cluster);
    (cluster, addresses)
}

fn shell(addresses: &str, script: &str) -> Ended {
    run(&["shell", "--connect", addresses], script)
}

#[test]
fn values_can_be_put_read_and_deleted() {
    let (cluster, addresses) = local();
    let script = "tables\n# a comment\n\nget 1 7\nput 1 7 two words\nget 1 0x7\nput 1 7 x'00ff'\n\
                  get 1 7\ndelete 1 7\ndelete 1 7\nget 1 7\nquit\nget 1 7\n";
    let ended = shell(&addresses, script);
    let expected = [
        "table 1",
        "absent",
        "inserted",
        "two words",
        "replaced",
        "x'00ff'",
        "deleted",
        "absent",
        "absent",
    ];
    assert_eq!((ended.code, &ended.output[..]), (Some(0), &expected.map(String::from)[..]));
    cluster.signal(Signal::INT);
    assert_eq!(cluster.end().code, Some(0));
}

#[test]
fn a_table_may_have_a_name() {
    let (_cluster, addresses) = local();
    let of = |names: &[&'static str]| [&["shell", "--connect", &addresses], names].concat();
    let named = run(&of(&["--table", "1=data"]), "tables\nput data 7 text\nget 1 7\n");
    assert_eq!(named.output, ["table data (1)", "inserted", "text"], "{named:?}");
    fails(&of(&["--table", "2=data"]), "--table 2=data does not fit; the cluster has table 1");
    for wrong in ["data", "x=data", "1=7", "1="] {
        assert_eq!(run(&of(&["--table", wrong]), "").code, Some(2), "{wrong}");
    }
    let status = run(&["shell", "--connect", &addresses], "status\n");
    assert_eq!(status.output[0], "3 nodes, 3 partitions with 3 replicas, 1 table");
}

#[test]
fn a_transaction_commits_all_of_its_lines_or_none() {
    let (_cluster, addresses) = local();
    let script = "begin\nput 1 1 a\nput 1 2 b\nget 1 1\ncommit\nbegin\nput 1 1 c\ndelete 1 2\n\
                  get 1 2\nabort\nget 1 1\nget 1 2\nbegin\nput 1 3 d\n";
    let ended = shell(&addresses, script);
    let expected = [
        "inserted",
        "inserted",
        "a",
        "committed",
        "replaced",
        "deleted",
        "absent",
        "aborted",
        "a",
        "b",
        "inserted",
        "aborted",
    ];
    assert_eq!((ended.code, &ended.output[..]), (Some(0), &expected.map(String::from)[..]));
    let ended = shell(&addresses, "get 1 3\nput 1 1 e\n");
    assert_eq!(ended.output, ["absent", "replaced"], "no lock is left");
}

#[test]
fn a_script_ends_at_its_first_mistake() {
    let (_cluster, addresses) = local();
    for (script, why) in [
        ("put 1 1 a\nfrob\nput 1 1 b\n", "there is no command frob"),
        ("get 2 1\nput 1 1 b\n", "there is no table 2; the cluster has table 1"),
        ("commit\nput 1 1 b\n", "no transaction has begun"),
        ("begin\nput 1 1 b\nbegin\ncommit\n", "commit or abort it first"),
        ("begin\nput 1 1 b\nget 1 x\ncommit\n", "the key x is not a number"),
    ] {
        let ended = shell(&addresses, script);
        assert_eq!((ended.code, ended.errors.len()), (Some(1), 1), "{script}: {ended:?}");
        assert!(ended.errors[0].contains(why), "{script}: {ended:?}");
    }
    assert_eq!(shell(&addresses, "get 1 1\n").output, ["a"]);
}
