//! One packet in ten is lost in each direction, over UDP with datagrams that fit Ethernet's frames.
//! Every call ends once with the right bytes, and was executed once. With the largest datagrams, this
//! is a test of the suite.

use erpc_test_tools::limit::{secs, within};
use erpc_tests::lab::loopback;
use erpc_tests::suite::Loopback;
use erpc_tests::suite::faults::calls_survive_a_tenth_lost;

#[test]
fn calls_survive_a_tenth_lost_with_datagrams_of_ethernets_size() {
    // 1,500 bytes minus the headers of IPv4 and UDP.
    let network = Loopback(loopback().max_datagram(1_472));
    within(secs(120), move || calls_survive_a_tenth_lost(&network, 10_000, 11));
}
