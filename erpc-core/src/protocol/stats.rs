//! Counters: every packet that came in is delivered or dropped for a reason that is counted.

use std::fmt;

/// Why a received packet was dropped.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
#[non_exhaustive]
pub enum DropReason {
    /// Shorter than a header, or than the header and the trailer that it announces.
    Truncated,
    /// Another version of the protocol.
    Version,
    /// A flag that this version does not define.
    Flags,
    /// Damaged: the checksum does not fit the packet.
    Checksum,
    /// A checksum on a session without, or none on one with, or on a control packet.
    Trailer,
    /// A control packet whose body does not fit its type, or a `Done` of no known form.
    Control,
    /// The connection id names no session: a stranger, or an earlier life of this endpoint.
    UnknownConnection,
    /// The connection id is right but the packet came from another address.
    WrongRoute,
    /// A kind that this side of a session does not receive.
    WrongRole,
    /// Of a request before the slot's current one.
    OldRequest,
    /// Of a request that the slot cannot be at yet.
    RequestLeap,
    /// A request in a slot whose earlier request has no answer yet.
    SlotBusy,
    /// Received before: a duplicate, answered if the peer needs an answer.
    Duplicate,
    /// Later than the next one expected; the peer goes back.
    OutOfOrder,
    /// The sizes in the header contradict the packet, the message or the session's limits.
    LyingSize,
    /// An acknowledgement or response for a packet that was not sent.
    Unsolicited,
    /// A request for response packets that do not exist, or for more than the credits.
    Overrun,
    /// A handshake message whose cookie is stale or not ours.
    Cookie,
    /// A handshake message that fits no handshake under way.
    Handshake,
    /// An `Open` beyond the rate at which one host may open sessions; its client sends it again.
    OpenRate,
}

impl DropReason {
    /// All reasons, in the order of their counters.
    pub const ALL: [Self; 20] = [
        Self::Truncated,
        Self::Version,
        Self::Flags,
        Self::Checksum,
        Self::Trailer,
        Self::Control,
        Self::UnknownConnection,
        Self::WrongRoute,
        Self::WrongRole,
        Self::OldRequest,
        Self::RequestLeap,
        Self::SlotBusy,
        Self::Duplicate,
        Self::OutOfOrder,
        Self::LyingSize,
        Self::Unsolicited,
        Self::Overrun,
        Self::Cookie,
        Self::Handshake,
        Self::OpenRate,
    ];
}

/// Declares [`ProtocolStats`] from one list of counters, so that every counter is printed and added up.
macro_rules! protocol_stats {
    ($($(#[$doc:meta])* $counter:ident,)*) => {
        /// What an endpoint's protocol has counted since it was made.
        #[derive(Clone, Copy, PartialEq, Eq, Default)]
        pub struct ProtocolStats {
            $($(#[$doc])* pub $counter: u64,)*
            /// Packets that its clients sent again, by cause.
            pub retransmissions: Retransmissions,
            dropped: [u64; DropReason::ALL.len()],
        }

        /// The counters by name, and of the reasons for drops those that occurred.
        impl fmt::Debug for ProtocolStats {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct("ProtocolStats")
                    $(.field(stringify!($counter), &self.$counter))*
                    .field("retransmissions", &self.retransmissions)
                    .field("dropped", &Drops(self))
                    .finish()
            }
        }

        impl std::ops::AddAssign for ProtocolStats {
            fn add_assign(&mut self, other: Self) {
                $(self.$counter += other.$counter;)*
                self.retransmissions += other.retransmissions;
                for (mine, others) in self.dropped.iter_mut().zip(other.dropped) {
                    *mine += others;
                }
            }
        }

        #[cfg(test)]
        impl ProtocolStats {
            /// The counters' names, in the order of their declaration.
            const COUNTERS: &[&str] = &[$(stringify!($counter)),*];

            /// The counters, drops last.
            fn counters_mut(&mut self) -> impl Iterator<Item = &mut u64> {
                let Retransmissions { after_gap, after_timeout, probes, needless_probes } =
                    &mut self.retransmissions;
                [$(&mut self.$counter),*]
                    .into_iter()
                    .chain([after_gap, after_timeout, probes, needless_probes])
                    .chain(&mut self.dropped)
            }
        }
    };
}

protocol_stats! {
    /// Packets that were handed in: `rx_delivered` and the sum of `dropped`.
    rx_packets,
    /// Packets that did their job.
    rx_delivered,
    /// Response packets that its servers sent again, because a client had repeated its question. The client
    /// counts the cause.
    repeated_responses,
    /// Questions about calls that a server executes, which has said so: one per call and interval of pings.
    inquiries,
    /// Times that calls of a session have waited for its rate, and went on.
    departures,
    /// Calls that were accepted from the user.
    calls,
    /// Calls that ended with a response.
    responses,
    /// Calls that ended otherwise.
    failures,
    /// Requests that were handed to a handler.
    requests,
    /// Responses whose session was gone when the handler answered.
    orphaned_responses,
    /// Requests that were answered before they were whole, because there was no memory for them.
    turned_down,
    /// Responses that were given up because they were too large or there was no memory for them.
    given_up,
    /// Handshake packets that started no session because there was no room.
    refused,
    /// Calls that were cancelled or too late, and that the server has answered with a failure: as a rule
    /// that of having dropped the request.
    cancelled,
    /// Calls that were cancelled or too late, and whose response came all the same.
    late_responses,
}

impl ProtocolStats {
    /// Packets dropped for `reason`.
    #[must_use]
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.dropped[reason as usize]
    }

    /// Packets dropped in all.
    #[must_use]
    pub fn dropped_in_all(&self) -> u64 {
        self.dropped.iter().sum()
    }

    /// Counts packets that a session sent again, for the endpoint and for the session.
    #[cold]
    pub(super) fn count_resent(
        &mut self,
        session: &mut Retransmissions,
        cause: ResendCause,
        packets: u32,
    ) {
        for counts in [&mut self.retransmissions, session] {
            let counter = match cause {
                ResendCause::Gap => &mut counts.after_gap,
                ResendCause::Timeout => &mut counts.after_timeout,
                ResendCause::Probe => &mut counts.probes,
            };
            *counter += u64::from(packets);
        }
    }

    /// Counts probes of a session that turned out to be needless.
    #[cold]
    pub(super) fn count_needless(&mut self, session: &mut Retransmissions, probes: u8) {
        for counts in [&mut self.retransmissions, session] {
            counts.needless_probes += u64::from(probes);
        }
    }

    #[cold]
    pub(super) fn count_drop(&mut self, reason: DropReason) {
        self.dropped[reason as usize] += 1;
    }
}

/// Prints why packets were dropped, and how many.
struct Drops<'a>(&'a ProtocolStats);

impl fmt::Debug for Drops<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let drops = DropReason::ALL.map(|reason| (reason, self.0.dropped(reason)));
        f.debug_map().entries(drops.into_iter().filter(|(_, count)| *count > 0)).finish()
    }
}

/// Packets that clients sent again, by cause. Of a response, what counts is what was asked for again.
///
/// How to read them, per million calls: on a path that loses nothing all are 0 but for `probes`, of which each is a
/// peer that answered late, and is counted in `needless_probes`, too. Where packets are lost, `after_gap` is the common
/// case and costs a round trip; a lost last packet, or a lost request of one packet, costs a time-out, and counts in
/// `after_timeout`, or in `probes` if nothing was answered since. `probes - needless_probes` is how often the latter was.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct Retransmissions {
    /// Packets sent again because an answer showed a hole: they, or one before them, were lost.
    pub after_gap: u64,
    /// Packets sent again because their timeout was over, and the server had answered a probe, or another packet that was sent
    /// later: they were lost, or their handler takes longer than it lately did.
    pub after_timeout: u64,
    /// Packets sent again because no answer came in time, to nothing that was sent to the server since. Each asks whether the
    /// server is there, for all calls that wait for it, and replaces the packet that it repeats if that was lost.
    pub probes: u64,
    /// Of the probes those that nothing was lost for, as far as the answers tell: the answer was to an earlier copy,
    /// came twice, or said that the request was there before the probe. A network that duplicates packets can add to them.
    pub needless_probes: u64,
}

impl Retransmissions {
    /// Packets sent again because they were taken for lost, as later ones were answered: all but probes.
    #[must_use]
    pub const fn shown_lost(&self) -> u64 {
        self.after_gap + self.after_timeout
    }

    /// All packets sent again, probes included.
    #[must_use]
    pub const fn packets(&self) -> u64 {
        self.shown_lost() + self.probes
    }
}

impl std::ops::AddAssign for Retransmissions {
    fn add_assign(&mut self, other: Self) {
        self.after_gap += other.after_gap;
        self.after_timeout += other.after_timeout;
        self.probes += other.probes;
        self.needless_probes += other.needless_probes;
    }
}

impl std::ops::Sub for Retransmissions {
    type Output = Self;

    /// What was counted since `earlier`.
    fn sub(self, earlier: Self) -> Self {
        Self {
            after_gap: self.after_gap - earlier.after_gap,
            after_timeout: self.after_timeout - earlier.after_timeout,
            probes: self.probes - earlier.probes,
            needless_probes: self.needless_probes - earlier.needless_probes,
        }
    }
}

/// Why a client sends packets again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ResendCause {
    /// An answer showed a hole.
    Gap,
    /// The answer to a probe showed that they were lost.
    Timeout,
    /// Nothing has come in time.
    Probe,
}

/// What one session is at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionStats {
    /// The smoothed round-trip time without the server's own, at first the handshake's; `None` before the first sample,
    /// if a handshake packet was sent again. Too short where
    /// the server's loop is away now and then: the server assumes the earliest arrival for the packets of that time.
    pub rtt: Option<std::time::Duration>,
    /// The rate that congestion control has found for it, in bytes per second; `None` while it sends as fast as its
    /// credits allow.
    pub rate: Option<u64>,
    /// Calls on their way.
    pub in_flight: usize,
    /// Calls that were cancelled or too late, and whose slot and share of the window are not free before
    /// the server has answered.
    pub quarantined: usize,
    /// Calls that wait for a slot.
    pub queued: usize,
    /// Packets that may still be sent before one comes back.
    pub credits: u16,
    /// What all sessions to the peer's endpoint may have on their way to it, as it said last, in the units
    /// of its [`ChargeModel`](crate::transport::ChargeModel). 0 until the session is open.
    pub window: u32,
    /// Packet payload on this path, in bytes.
    pub payload: u32,
    /// The largest request that the server takes, in bytes; the endpoint's own limit until the session is
    /// open.
    pub max_request: u32,
    /// Whether packets carry checksums; see [`EndpointConfig::integrity`](super::EndpointConfig::integrity).
    pub integrity: bool,
    /// Packets that the session sent again since it opened, by cause.
    pub retransmissions: Retransmissions,
}

/// What one session is at that a peer opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClientStats {
    /// Packets that the client may have on their way.
    pub credits: u16,
    /// Packet payload on this path, in bytes.
    pub payload: u32,
    /// The largest response that the client takes, in bytes.
    pub max_response: u32,
    /// Whether packets carry checksums; see [`EndpointConfig::integrity`](super::EndpointConfig::integrity).
    pub integrity: bool,
    /// Memory held for the session's requests and responses, unread messages of streams included, in bytes.
    pub held: usize,
    /// Requests that were taken in so far.
    pub requests: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counters that all differ.
    fn numbered() -> ProtocolStats {
        let mut stats = ProtocolStats::default();
        (1..).zip(stats.counters_mut()).for_each(|(number, counter)| *counter = number);
        stats
    }

    #[test]
    fn every_counter_is_added_up() {
        let (mut sum, mut one) = (numbered(), numbered());
        sum += one;
        one.counters_mut().for_each(|counter| *counter *= 2);
        assert_eq!(sum, one);
        assert_eq!(sum.dropped_in_all(), sum.dropped.iter().sum());
    }

    #[test]
    fn every_counter_is_printed() {
        let printed = format!("{:?}", numbered());
        for (number, name) in (1..).zip(ProtocolStats::COUNTERS) {
            assert!(printed.contains(&format!("{name}: {number}, ")), "{name} is not in {printed}");
        }
    }

    #[test]
    fn reasons_for_drops_are_printed_by_name_if_there_were_any() {
        let mut stats = ProtocolStats { rx_packets: 3, rx_delivered: 1, ..Default::default() };
        stats.count_drop(DropReason::WrongRoute);
        stats.count_drop(DropReason::WrongRoute);
        let printed = format!("{stats:?}");
        assert!(
            printed.starts_with("ProtocolStats { rx_packets: 3, rx_delivered: 1, "),
            "{printed}"
        );
        assert!(printed.ends_with(", dropped: {WrongRoute: 2} }"), "{printed}");
    }
}
