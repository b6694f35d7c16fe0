//! What a port over the kernel refuses when it is opened, because it would lose packets silently.

use super::*;

const NAME: &str = "refused::what_would_lose_packets";

fn end(end: End) {
    start_dpdk();
    let open = |mtu| DpdkTransport::open(&config(Driver::Packet, end, mtu));
    let refused = |mtu| open(mtu).err().map(|error| error.to_string()).unwrap_or_default();
    say(&format!("ENTRIES {}", refused(9_000)));
    say(&format!("INTERFACE {}", refused(1_600)));
    // A refused MTU leaves the port usable.
    drop(open(1_500).expect("a port"));
    say(&format!("AGAIN {}", refused(1_500)));
}

#[test]
fn what_would_lose_packets() {
    play(NAME, Driver::Packet, 1_500, end, |net| {
        let port =
            net.start(End::First, NAME, &format!("net_af_packet0,iface={INTERFACE},qpairs=1"));
        for (word, parts) in [
            ("ENTRIES", ["net_af_packet0", "9000 bytes", "carry 1968", "framesz=16384"]),
            ("INTERFACE", ["net_af_packet0", "1600 bytes", "carries 1500", "ip link set"]),
            ("AGAIN", ["net_af_packet0", "again", "once in a process", "another process"]),
        ] {
            let error = port.expect(word);
            assert!(parts.iter().all(|part| error.contains(part)), "{word}: {error}");
        }
    });
}
