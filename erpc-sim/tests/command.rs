//! The command line: errors for meaningless arguments, a quiet end when the output pipe is closed,
//! and the contents of the trace.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

fn command(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_erpc-sim"));
    command.args(arguments.split(' '));
    command
}

#[test]
fn meaningless_arguments_are_errors() {
    for (arguments, word) in [
        ("run --seeds 0", "--seeds"),
        ("run --seeds 2 --packets", "--seeds 1"),
        ("run --seeds 2 --packets", "Usage: erpc-sim run "),
        ("run --seeds 2 --skip 1", "--seeds 1"),
        ("run --seeds 1 --skip 0,4000", "no event 4000"),
        ("run --seeds 1 --bug NoSuchBug", "bug"),
        ("mutants --bugs NoSuchBug", "bug"),
        ("run --seeds 1 --without nothing", "no such feature"),
        ("mutants --shards 0", "--shards"),
        ("mutants --shards 8 --shard 8", "no shard 8 of 8"),
        ("mutants --seeds 0", "--seeds"),
    ] {
        let output = command(arguments).output().expect("the program starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments}: {said}");
        assert!(said.contains(word), "{arguments}: {said}");
    }
}

#[test]
fn the_program_ends_quietly_when_the_output_pipe_is_closed() {
    let mut child = command("run --seeds 1 --from 3 --packets")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut line = String::new();
    let mut output = BufReader::new(child.stdout.take().expect("stdout is piped"));
    output.read_line(&mut line).expect("the program prints a line");
    assert!(line.ends_with(" begins to open\n"), "{line}");
    drop(output);
    let mut said = String::new();
    child.stderr.take().expect("stderr is piped").read_to_string(&mut said).expect("text");
    assert_eq!(said, "");
    assert_eq!(child.wait().expect("the child has not been waited for").code(), Some(141));
}

#[test]
fn the_trace_shows_why_packets_are_lost_and_what_happens_to_endpoints() {
    let output = command("run --seeds 1 --from 3 --packets").output().expect("the program starts");
    let trace = String::from_utf8(output.stdout).expect("text");
    for words in [
        " -> 1:1 id 0 sent      Control Hello nonce 0, answers get id ",
        " bytes: loss\n",
        " bytes: bursts\n",
        " bytes: the host is down\n",
        " event 2: host 0 dies, and restarts 38.603722ms later\n",
        " 0:1 restarts\n",
        " is open\n",
        " drops 1 delivered packet: UnknownConnection\n",
        " all faults end, no new calls are made\n",
    ] {
        assert!(trace.contains(words), "the trace lacks {words:?}");
    }
    // A session in an event is written as in the lines of its packets.
    let opened =
        trace.lines().find_map(|line| line.split_once("session ")?.1.strip_suffix(" is open"));
    let (out, back) = opened.and_then(|ends| ends.split_once(", ")).expect("a session opens");
    for ends in [out, back] {
        assert!(trace.contains(&format!(" {ends} sent ")), "no packet has {ends}");
    }
}
