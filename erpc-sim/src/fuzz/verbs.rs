//! The fuzz target of the messages with which endpoints over verbs learn each other's addresses.

use erpc_core::transport::verbs::Gid;
use erpc_core::transport::verbs::exchange::{Answer, Ask, MESSAGE_LEN, Message, Present, Token};

use super::seeds::{Seed, push};

/// Fuzzes the parser of the exchange. `data` is a datagram.
///
/// # Panics
/// Panics if a message does not encode to the same bytes, or has a queue pair's number of more than 24
/// bits, or if a changed length parses.
pub fn verbs_exchange(data: &[u8]) {
    let Ok(message) = Message::parse(data) else { return };
    assert_eq!(message.to_bytes()[..], *data, "parsing loses nothing");
    assert!(
        Message::parse(&data[1..]).is_err() && Message::parse(&data[..data.len() - 1]).is_err()
    );
    if let Message::Answer(answer) = message {
        assert!(answer.qpn < 1 << 24);
        let question = Message::Ask(Ask { nonce: answer.nonce }).to_bytes();
        assert!(data.len() <= question.len(), "an answer is not longer than its question");
    }
}

pub(super) fn seeds(seeds: &mut Vec<Seed>) {
    let token = Token(std::array::from_fn(|at| at as u8 * 5 + 1));
    let answer = Answer {
        nonce: 0x0102_0304_0506_0708,
        gid: Gid::from(std::net::IpAddr::from([10, 77, 0, 1])),
        lid: 0,
        qpn: 0x11,
        qkey: 0x4572_5043,
        token,
    };
    let messages = [
        ("ask", Message::Ask(Ask { nonce: 0x0102_0304_0506_0708 })),
        ("answer", Message::Answer(answer)),
        ("answer-lid", Message::Answer(Answer { lid: 7, qpn: 0xff_ffff, ..answer })),
        ("present", Message::Present(Present { qkey: 0x4572_5043, token })),
    ];
    for (name, message) in messages {
        push(seeds, "verbs_exchange", name, message.to_bytes());
    }
    push(seeds, "verbs_exchange", "wrong-kind", {
        let mut bytes = messages[0].1.to_bytes();
        bytes[5] = 9;
        bytes
    });
    push(seeds, "verbs_exchange", "filled", {
        let mut bytes = messages[0].1.to_bytes();
        bytes[MESSAGE_LEN - 1] = 1;
        bytes
    });
}
