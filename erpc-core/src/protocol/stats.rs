//! Counters. Every received packet is counted as delivered, or as dropped for a reason.

use std::fmt;

/// Why a received packet was dropped.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
#[non_exhaustive]
pub enum DropReason {
    /// Shorter than a header, or than the header and the trailer that it announces.
    Truncated,
    /// The packet is of another version of the protocol.
    Version,
    /// The packet has the flag for a message with an extension, but is of a kind without a message.
    Flags,
    /// The packet is damaged: its checksum is wrong.
    Checksum,
    /// The packet has a checksum on a session without checksums, or none on a session with them or
    /// in a control packet.
    Trailer,
    /// A control packet whose body does not fit its type, or a `Done` of no known form.
    Control,
    /// The connection id belongs to no session: the session has ended, this endpoint has restarted,
    /// or the sender is unknown.
    UnknownConnection,
    /// The connection id is right but the packet came from another address.
    WrongRoute,
    /// A kind that this side of a session does not receive.
    WrongRole,
    /// The packet belongs to a request before the slot's current one.
    OldRequest,
    /// The packet belongs to a request after the slot's next one.
    RequestLeap,
    /// A new request in a slot whose current request has no answer yet.
    SlotBusy,
    /// A duplicate of a packet. It is answered if the peer needs an answer.
    Duplicate,
    /// The packet is later than the next expected one. The peer sends the missing packets again.
    OutOfOrder,
    /// The sizes in the header contradict the packet, the message or the session's limits.
    LyingSize,
    /// An acknowledgement or response for a packet that was not sent, or a request for response
    /// before the server has a response.
    Unsolicited,
    /// A request for response packets that do not exist, for none, for the first packet of a
    /// response that was not announced, or for more packets than the session's credits (at most
    /// 1,024).
    Overrun,
    /// A handshake message whose cookie is stale or was not issued by this server.
    Cookie,
    /// A handshake or control message that does not fit the state of the handshake or session.
    Handshake,
    /// An `Open` beyond the rate at which one host may open sessions, or while too many `Open`s
    /// wait. The client sends it again.
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

/// Declares [`ProtocolStats`] from one list of counters, so that no counter is missing when they
/// are printed or added up.
macro_rules! protocol_stats {
    ($($(#[$doc:meta])* $counter:ident,)*) => {
        /// What an endpoint's protocol has counted since it was made.
        #[derive(Clone, Copy, PartialEq, Eq, Default)]
        pub struct ProtocolStats {
            $($(#[$doc])* pub $counter: u64,)*
            /// Packets that the endpoint sent again as a client, by cause.
            pub retransmissions: Retransmissions,
            dropped: [u64; DropReason::ALL.len()],
        }

        /// Prints the counters by name, and the reasons for drops that occurred.
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
    /// Received packets: `rx_delivered` plus [`Self::dropped_in_all`].
    rx_packets,
    /// Received packets that were not dropped.
    rx_delivered,
    /// Response packets that the endpoint sent again as a server, because a client repeated a
    /// request or a request for response. The client counts the cause.
    repeated_responses,
    /// Probes of calls that the server has reported as executing: one per call and ping interval,
    /// and more while the server does not answer.
    inquiries,
    /// Number of times that a session whose calls waited because of pacing could send again.
    departures,
    /// Calls that were accepted from the user.
    calls,
    /// Calls that ended with the server's answer: a response, also one that was given up, or a
    /// failure.
    responses,
    /// Calls that ended without an answer of the server.
    failures,
    /// Requests that were handed to a handler.
    requests,
    /// Responses that were dropped because their session had ended or their request was not
    /// executing.
    orphaned_responses,
    /// Requests that were answered before they were complete, because there was no memory for them.
    turned_down,
    /// Requests that were refused because this endpoint shuts down: their clients know that no
    /// handler has run.
    refused_requests,
    /// Responses that the client dropped because they were too large or there was no memory for
    /// them.
    given_up,
    /// Handshakes that were refused: for one of the next three reasons, or because the client's
    /// version or parameters are not supported.
    refused,
    /// Handshakes that were refused because [`EndpointConfig::max_sessions`] were open.
    ///
    /// [`EndpointConfig::max_sessions`]: super::EndpointConfig::max_sessions
    refused_full,
    /// Handshakes that were refused because of a limit per host.
    refused_host_full,
    /// Handshakes that were refused because this endpoint shuts down.
    refused_draining,
    /// Calls that were cancelled or missed their deadline, and that the server has answered with a
    /// failure: usually because it had dropped the request.
    cancelled,
    /// Calls that were cancelled or missed their deadline, and that the server has answered with a
    /// response.
    late_responses,
    /// Reports of the network or the system that a recent packet of a session to a server was not
    /// delivered.
    undelivered,
    /// Reports of other packets: late, forged, or sent to a client. They have no effect.
    stray_reports,
}

impl ProtocolStats {
    /// Packets dropped for `reason`.
    #[must_use]
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.dropped[reason as usize]
    }

    /// Packets dropped for any reason.
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

    /// Counts needless probes of a session, for the endpoint and for the session.
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

/// Prints the number of dropped packets by reason.
struct Drops<'a>(&'a ProtocolStats);

impl fmt::Debug for Drops<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let drops = DropReason::ALL.map(|reason| (reason, self.0.dropped(reason)));
        f.debug_map().entries(drops.into_iter().filter(|(_, count)| *count > 0)).finish()
    }
}

/// Packets that clients sent again, by cause. For responses, the packets that were requested again
/// count.
///
/// How to read them:
///
/// * On a path that neither loses nor reorders packets, `after_gap` is 0, and `after_timeout`
///   counts only calls whose handlers took longer than they lately did. Each probe is due to a peer
///   that answered late, so `needless_probes` counts it, too.
/// * On a path with losses, `after_gap` is the common case, and such a loss costs a round trip. A
///   lost last packet, or a lost request of one packet, costs a timeout. It counts in
///   `after_timeout`, or in `probes` if the server has answered nothing that was sent later.
///   `probes - needless_probes` is the number of losses that `probes` counts.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct Retransmissions {
    /// Packets sent again because an answer showed a gap: they, or one before them, were lost.
    pub after_gap: u64,
    /// Packets sent again because their timeout had expired, and the server had answered a probe or
    /// another packet that was sent later. They were lost, or their handler takes longer than it
    /// lately did.
    pub after_timeout: u64,
    /// Packets sent again because no answer came in time, neither to the packet nor to anything
    /// sent to the server since. Each probe asks whether the server is alive, for all calls that
    /// wait for the server. It also replaces the packet that it repeats if that packet was lost.
    pub probes: u64,
    /// Probes for which nothing was lost, as far as the answers tell: the answer was to an earlier
    /// copy, came twice, or said that the request had arrived before the probe. A network that
    /// duplicates packets can increase the count.
    pub needless_probes: u64,
}

impl Retransmissions {
    /// Packets sent again because they were declared lost after later ones were answered: all
    /// except probes.
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

    /// The counts since `earlier`.
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
    /// An answer showed a gap.
    Gap,
    /// The timeout expired, and an answer to a later packet showed that the packets were lost.
    Timeout,
    /// No answer came in time.
    Probe,
}

/// The state of a session that this endpoint opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionStats {
    /// The smoothed round-trip time without the server's processing time. Its first sample is the
    /// handshake's; `None` before the first sample, if a handshake packet was sent again. Too short
    /// if the server's loop is sometimes away: the server assumes that a packet which arrived
    /// meanwhile has arrived as early as possible.
    pub rtt: Option<std::time::Duration>,
    /// The rate from congestion control, in bytes per second; `None` while the session sends as
    /// fast as its credits allow.
    pub rate: Option<u64>,
    /// The session's number of slots, which is the maximum number of its calls in flight; see
    /// [`EndpointConfig::slots`](super::EndpointConfig::slots). The endpoint's own number until the
    /// session is open.
    pub slots: u8,
    /// Calls in flight.
    pub in_flight: usize,
    /// Calls that were cancelled or missed their deadline, and whose slots are in quarantine: slot
    /// and share of the window are occupied until the server has answered.
    pub quarantined: usize,
    /// Calls that wait for a slot.
    pub queued: usize,
    /// Free credits: packets that may still be sent before a credit comes back.
    pub credits: u16,
    /// What all sessions to the peer's endpoint may have in flight to it, as the peer last said, in
    /// the units of its [`ChargeModel`](crate::transport::ChargeModel). 0 until the session is
    /// open.
    pub window: u32,
    /// Largest payload of a packet on this path, in bytes. 0 until the session is open.
    pub payload: u32,
    /// The largest request that the server accepts, in bytes; the endpoint's own limit until the
    /// session is open.
    pub max_request: u32,
    /// Whether packets carry checksums; see
    /// [`EndpointConfig::integrity`](super::EndpointConfig::integrity).
    pub integrity: bool,
    /// Packets that the session sent again since it opened, by cause.
    pub retransmissions: Retransmissions,
}

/// The state of a session that a peer opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClientStats {
    /// Number of packets that the client may have in flight.
    pub credits: u16,
    /// The session's number of slots, which is the maximum number of its requests in progress.
    pub slots: u8,
    /// Largest payload of a packet on this path, in bytes.
    pub payload: u32,
    /// The largest response that the client accepts, in bytes.
    pub max_response: u32,
    /// Whether packets carry checksums; see
    /// [`EndpointConfig::integrity`](super::EndpointConfig::integrity).
    pub integrity: bool,
    /// Memory that the session's requests and responses hold, in bytes, including unread messages
    /// of streams.
    pub held: usize,
    /// Number of requests handed to handlers so far.
    pub requests: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counters with distinct values.
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
    fn reasons_for_drops_are_printed_by_name_if_they_occurred() {
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
