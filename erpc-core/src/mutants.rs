//! Deliberate bugs, which check that the simulator detects them.
//!
//! With `--cfg erpc_mutants`, every `mutant!(Name)` in the code checks at run time whether
//! [`choose`] has enabled that bug. In all other builds it is the constant `false`, and this module
//! has no other content.

/// Whether the bug of this name is enabled. In ordinary builds the constant `false`.
#[cfg(erpc_mutants)]
macro_rules! mutant {
    ($name:ident) => {
        $crate::mutants::is_chosen($crate::mutants::Mutant::$name)
    };
}

/// Whether the bug of this name is enabled. In ordinary builds the constant `false`.
#[cfg(not(erpc_mutants))]
macro_rules! mutant {
    ($name:ident) => {
        false
    };
}

pub(crate) use mutant;

#[cfg(erpc_mutants)]
pub use chosen::{ALL, Mutant, choose, is_chosen};

#[cfg(erpc_mutants)]
mod chosen {
    use std::sync::atomic::{AtomicU32, Ordering};

    macro_rules! mutants {
        ($($(#[doc = $doc:literal])* $name:ident,)*) => {
            /// A deliberate bug.
            #[derive(Clone, Copy, PartialEq, Eq, Debug)]
            #[repr(u32)]
            pub enum Mutant {
                $($(#[doc = $doc])* $name,)*
            }

            /// All bugs, each with a description of its effect.
            pub const ALL: &[(Mutant, &str)] = &[$((Mutant::$name, concat!($($doc),*)),)*];
        };
    }

    mutants! {
        /// A single report that a packet was not delivered ends the session.
        ReportBelieved,
        /// The packets that come during an inquiry do not end it.
        InquiryAnswerIgnored,
        /// An inquiry ends no session, whatever becomes of its pings.
        InquiryHasNoResult,
        /// After a session has ended, a report about one of its packets is applied to the next
        /// session at the same table index.
        GoneSessionStaysFindable,
        /// The client drops the last credit of each credit return.
        CreditLeak,
        /// A roll-back of request packets does not return their credits.
        RollbackKeepsCredits,
        /// A roll-back of a response does not return the credits of the pulled packets.
        PullRollbackKeepsCredits,
        /// A session that waits because of pacing is not woken when it may send again.
        DepartureForgotten,
        /// A client does not notice a gap in a response: it takes the packet after the gap for the
        /// lost one.
        ResponseGapTaken,
        /// A retransmitted request is returned to the user while the transmit queue still reads it.
        FlushForgotten,
        /// When a slot becomes free, no waiting call gets it.
        QueueForgotten,
        /// `Accepted` does not return the credits of the request's packets.
        AcceptedKeepsCredits,
        /// A client does not check the generation of a packet's connection id.
        StaleGenerationAtClient,
        /// A client accepts a late copy of a response as the response to the slot's next call.
        OldResponseTaken,
        /// A request of one packet that was sent once is returned to the user while the transmit
        /// queue still reads it.
        FlushForgottenPlain,
        /// When a session ends, requests of pending calls are returned to the user while the
        /// transmit queue still reads them.
        FlushForgottenAtEnd,
        /// A client that has stopped sending counts as busy forever.
        IdleCountsAsBusy,
        /// A client whose window shrinks does not learn of it.
        DemotedUntold,
        /// The sessions reserved for hosts with few sessions go to any host.
        ReserveGivenAway,
        /// The limits of sessions and sockets per host are not enforced.
        HostsNotCounted,
        /// A session that ends does not return the window of its calls.
        WindowLeakAtEnd,
        /// A session that ends does not report the calls that wait for a slot.
        QueuedCallsForgotten,
        /// The end of a session is reported before the end of its calls.
        ClosedBeforeCalls,
        /// Waiting calls are not woken when window or room is returned.
        WaiterForgotten,
        /// A failed call is reported as not executed unless the server has acknowledged the whole
        /// request.
        NotExecutedLie,
        /// The slot of a request is computed with the wrong modulus.
        WrongSlot,
        /// Packets are sent without credits.
        CreditsIgnored,
        /// A request packet is retransmitted, and its header rewritten, while the transmit queue
        /// reads the first copy.
        ResendWithoutFlush,
        /// The timeout is not doubled, however often it expires.
        RtoNeverDoubled,
        /// Every overdue call to a silent server sends its own probe.
        EveryCallProbes,
        /// An executing call is never probed again.
        ProbeForgotten,
        /// A session's timer is not rearmed after it has fired.
        TimerNotArmedAgain,
        /// A pong does not count as a sign of life.
        PongIgnored,
        /// A repeated request is executed again after it was answered.
        DedupeOffByOne,
        /// A repeated request is executed again while it still executes.
        ExecutedTwice,
        /// A server does not check the generation of a packet's connection id.
        StaleGenerationAtServer,
        /// A server does not notice a gap in a request: it takes the packet after the gap for the
        /// lost one.
        OutOfOrderTaken,
        /// A server accepts a request of one packet whose size is wrong.
        SizeNotChecked,
        /// A server returns no credits.
        CreditReturnForgotten,
        /// The buffer of a large response leaks when the client has received it.
        BufferLeak,
        /// A late `Done` of an earlier request drops the response of the current one.
        DoneOfAnyRequest,
        /// Memory of a message that is being received is not counted.
        HeldNotCounted,
        /// A response is dropped after it was sent once.
        ResponseForgotten,
        /// A server does not send the last packet of each pull.
        PullOneTooFew,
        /// The first packet of a response ignores the client's eager limit.
        EagerIgnored,
        /// Response packets are resent, and their headers rewritten, while the transmit queue reads
        /// the first copies.
        ResponseAgainWithoutFlush,
        /// A session that ends remains in one of the server's tables.
        SessionLeak,
        /// A server does not answer pings.
        PingUnanswered,
        /// A repeated `Open` creates another session.
        OpenedTwice,
        /// Trailers are removed without a check.
        ChecksumNotVerified,
        /// Successive sessions at one table index have the same id.
        GenerationReused,
        /// A timer that should move to a lower level of the wheel is lost.
        TimerLost,
        /// A session that ends still counts for its client endpoint, so the windows of other client
        /// endpoints stay small.
        GrantLeak,
        /// Clients never send `Done` for large responses.
        DoneForgotten,
        /// A server rejects requests long before the session's memory limit is reached.
        BudgetTooSmall,
        /// The memory of an abandoned message leaks.
        AssemblyLeak,
        /// Clients ignore the window in replies.
        WindowIgnored,
        /// A round trip is measured although the packet was retransmitted (Karn's rule).
        AmbiguousSample,
        /// A server accepts packets of its sessions from any address.
        WrongRouteAtServer,
        /// A client accepts packets of its sessions from any address.
        WrongRouteAtClient,
        /// An unsent call is reported as perhaps executed.
        MaybeExecutedLie,
        /// A repeated request is answered with the whole response instead of its first packet.
        RepeatAnsweredInFull,
        /// A server is declared dead after half of the liveness timeout.
        LivenessHalved,
        /// Connecting fails after half of the connect timeout.
        ConnectHalved,
        /// Both sides ignore that the client requests checksums.
        IntegrityIgnored,
        /// A call continues after its deadline.
        DeadlineForgotten,
        /// Credits and window of a cancelled call leak when the server answers.
        QuarantineLeak,
        /// The slot of a cancelled call is reused before the server has answered.
        NoQuarantine,
        /// The slot of a cancelled call is never reused.
        QuarantineForEver,
        /// The client does not tell the server that a call was cancelled.
        CancelNotSent,
        /// A cancelled request is returned to the user while the transmit queue still reads it.
        FlushForgottenAtCancel,
        /// A server reports a cancel to the handler each time the client repeats it.
        CancelledTwice,
        /// A cancelled request that arrives after its cancel is executed.
        CancelTakesNoNumber,
        /// After `Accepted`, the server sends the first packet of the response instead of an
        /// announcement, although the client has released the room for that packet.
        AcceptedNotAnnounced,
        /// The announcement of a response is never repeated.
        AnnouncedOnce,
        /// A retransmitted request carries the same remaining time until its deadline as its first
        /// copy.
        StampedOnce,
        /// The remaining time is rounded down.
        DeadlineRoundedDown,
        /// The deadlines of calls that wait for a slot are ignored.
        QueuedDeadlineForgotten,
        /// The request number of a cancelled call that was never sent is not reused, so the server
        /// waits for a request with this number.
        UnsentNumberLost,
        /// The handlers of a session's requests do not learn that the session has ended.
        GoneUntold,
        /// Only the first packet of a response has the extended flag.
        ExtendedOnce,
        /// A stream's full batch is lost if the next batch begins before a call takes the full one.
        StreamBatchLost,
        /// Batches of a stream are read in the order of arrival.
        StreamOrderIgnored,
        /// The first batch that is taken after a stream's end was recorded counts as the last.
        StreamEndEarly,
        /// A client does not tell the server that it has closed its stream.
        StreamCloseUntold,
        /// The end of a stream at its server does not stop the handler.
        StreamStopUntold,
        /// An answered pull of a stream remains in the server's list of pulls, and is answered
        /// again.
        StreamPullAnsweredTwice,
        /// Pulls that still wait when a stream's last batch is sent are never answered.
        StreamEndLeavesPulls,
        /// Calls held for a stream are lost when the stream opens.
        StreamHeldForgotten,
        /// A client pulls although its reader has unread batches.
        StreamPullsUnbounded,
        /// A push is answered when it arrives, not when the handler takes it.
        StreamPushAnsweredEarly,
        /// When a handler stops reading, waiting pushes are never answered.
        StreamPushesForgotten,
        /// A stream starts although it was closed before its OPEN arrived.
        StreamReopened,
        /// A client considers its stream over while calls are in flight.
        StreamOverTooSoon,
        /// A stream ends with OK, whatever status its handler returns.
        StreamStatusLost,
        /// Timers fire while the answers that they wait for are unread in the receive queue.
        TimersBeforeAnswers,
        /// Every copy of a request is answered, however soon it follows the previous copy.
        DuplicateAlwaysAnswered,
        /// A client does not store the time that a server reports for a method.
        MethodTimeForgotten,
        /// A client stores only one processing time per server, that of the last slow method.
        MethodTimeShared,
        /// A server does not report its processing time.
        HandlerTimeUntold,
        /// The first timeout is always 20 ms, regardless of the handshake's round trip.
        FirstRtoFixed,
        /// A client forgets a server when any session to it ends.
        PeerLeftEarly,
        /// The sessions of a host count against the host's limits even after they have ended.
        HostNeverLeaves,
        /// A session keeps its raised credit limit while it is idle.
        CreditsKeptIdle,
        /// A session's credit limit does not shrink when the session needs less.
        CreditsNotShrunk,
        /// The credit limit of a session that runs out of credits doubles, even if its path holds
        /// fewer packets.
        CreditsLeap,
        /// A session does not record that it ran out of credits.
        RunOutForgotten,
        /// A measurement round of the credit limit ends with every answer, not after a round trip.
        RoundsTooShort,
        /// A client ignores the number of credits that the server grants.
        GrantedCreditsIgnored,
        /// Packets within a raised credit limit are sent in bursts, without pacing.
        BurstsOfCredits,
        /// The rate ceiling that follows from the credit limit falls, but never rises again.
        CeilingOnlyFalls,
        /// Pulled response packets are not charged to the pacer.
        PullsUncharged,
        /// Without a known link rate, sessions have no congestion control.
        UnknownRateUncontrolled,
        /// Congestion control does not learn of losses.
        LossUntold,
        /// Swift never detects a queue.
        QueueUnseen,
    }

    const NONE: u32 = u32::MAX;
    static CHOSEN: AtomicU32 = AtomicU32::new(NONE);

    /// Enables a bug, or disables it with `None`, for all threads of the process.
    pub fn choose(mutant: Option<Mutant>) {
        CHOSEN.store(mutant.map_or(NONE, |mutant| mutant as u32), Ordering::SeqCst);
    }

    /// Whether this bug is enabled.
    #[inline]
    #[must_use]
    pub fn is_chosen(mutant: Mutant) -> bool {
        CHOSEN.load(Ordering::Relaxed) == mutant as u32
    }
}
