//! Bugs to be put in on purpose: does anybody notice?
//!
//! With `--cfg erpc_mutants` every place that says `mutant!(Name)` becomes a question that is answered
//! at run time, by [`choose`]; in every other build it is the constant `false`, and nothing of this
//! module exists.

/// Whether the bug of this name was put in. Always `false`, known to the compiler, in ordinary builds.
#[cfg(erpc_mutants)]
macro_rules! mutant {
    ($name:ident) => {
        $crate::mutants::is_chosen($crate::mutants::Mutant::$name)
    };
}

/// Whether the bug of this name was put in. Always `false`, known to the compiler, in ordinary builds.
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
            /// A bug.
            #[derive(Clone, Copy, PartialEq, Eq, Debug)]
            #[repr(u32)]
            pub enum Mutant {
                $($(#[doc = $doc])* $name,)*
            }

            /// All bugs, and what each does.
            pub const ALL: &[(Mutant, &str)] = &[$((Mutant::$name, concat!($($doc),*)),)*];
        };
    }

    mutants! {
        /// Of the credits that a credit return brings, the last is lost.
        CreditLeak,
        /// A roll-back of request packets forgets to take their credits back.
        RollbackKeepsCredits,
        /// A request for response goes back without taking credits back.
        PullRollbackKeepsCredits,
        /// A session that may not send yet is not told when it may.
        DepartureForgotten,
        /// A response packet is taken for the one before it that was lost.
        ResponseGapTaken,
        /// A request that was sent again goes back to its user while the queue reads it.
        FlushForgotten,
        /// When a slot becomes free, no call that waits gets it.
        QueueForgotten,
        /// `Accepted` answers the packets of a request and does not give their credits back.
        AcceptedKeepsCredits,
        /// A client does not look at the random half of the id that a packet names.
        StaleGenerationAtClient,
        /// A late copy of a response is taken for that of the slot's next call.
        OldResponseTaken,
        /// The same for a request of one packet that was sent once.
        FlushForgottenPlain,
        /// The same when a session ends with calls under way.
        FlushForgottenAtEnd,
        /// A client that sends nothing any more counts as busy for ever.
        IdleCountsAsBusy,
        /// A client whose window shrinks is not told.
        DemotedUntold,
        /// The last sessions go to any host.
        ReserveGivenAway,
        /// The sockets of a host are not counted.
        HostsNotCounted,
        /// A session that ends keeps what its calls took of the window.
        WindowLeakAtEnd,
        /// A session that ends says nothing of the calls that wait for a slot.
        QueuedCallsForgotten,
        /// The end of a session is told before that of its calls.
        ClosedBeforeCalls,
        /// Calls that wait for room are not told of room that was given back.
        WaiterForgotten,
        /// A request counts as not executed until the server has confirmed all of it.
        NotExecutedLie,
        /// Requests are looked for in slots by the wrong modulo.
        WrongSlot,
        /// Packets are sent without credits.
        CreditsIgnored,
        /// A request packet is sent again, its header written, while the queue reads the first copy.
        ResendWithoutFlush,
        /// The timeout stays as it is, however often it fires.
        RtoNeverDoubled,
        /// Every overdue call of a silent server asks for itself.
        EveryCallProbes,
        /// A call that executes is never asked after again.
        ProbeForgotten,
        /// A timer that has fired is not armed again.
        TimerNotArmedAgain,
        /// The answer to a ping is no sign of life.
        PongIgnored,
        /// A repeated request is executed again once it was answered.
        DedupeOffByOne,
        /// A repeated request is executed again while it executes.
        ExecutedTwice,
        /// A server does not look at the random half of the id that a packet names.
        StaleGenerationAtServer,
        /// A request packet is taken for the one before it that was lost.
        OutOfOrderTaken,
        /// A request of one packet may be shorter or longer than it says.
        SizeNotChecked,
        /// A server returns no credits.
        CreditReturnForgotten,
        /// The buffer of a large response is lost when the client has it.
        BufferLeak,
        /// A late `Done` of an earlier request drops the response of the current one.
        DoneOfAnyRequest,
        /// Memory of a message that comes in is not counted.
        HeldNotCounted,
        /// A response is kept until it was sent once.
        ResponseForgotten,
        /// Of the response packets that are asked for, the last is not sent.
        PullOneTooFew,
        /// The first packet of a response is as long as any.
        EagerIgnored,
        /// Response packets are sent again, their headers written, while the queue reads the first copies.
        ResponseAgainWithoutFlush,
        /// A session that ends stays in one of the tables.
        SessionLeak,
        /// A server notes pings and does not answer.
        PingUnanswered,
        /// A repeated `Open` makes another session.
        OpenedTwice,
        /// Trailers are cut off and not looked at.
        ChecksumNotVerified,
        /// Sessions of all lives have the same id.
        GenerationReused,
        /// A timer that should move down the wheel falls out of it.
        TimerLost,
        /// A session that ends still counts for its client endpoint, and keeps the others' window small.
        GrantLeak,
        /// Clients never say that they have a large response.
        DoneForgotten,
        /// A server turns requests down long before the session's memory is used up.
        BudgetTooSmall,
        /// The memory of a message that is given up is lost.
        AssemblyLeak,
        /// Clients take no notice of the window that replies tell.
        WindowIgnored,
        /// A round trip is measured although the packet was sent twice (Karn's rule).
        AmbiguousSample,
        /// A server takes packets of its sessions from anybody.
        WrongRouteAtServer,
        /// A client takes packets of its sessions from anybody.
        WrongRouteAtClient,
        /// A call that nothing was sent of counts as perhaps executed.
        MaybeExecutedLie,
        /// A repeated request is answered with the whole response, not with its first packet.
        RepeatAnsweredInFull,
        /// A peer is given up after half of the liveness timeout.
        LivenessHalved,
        /// A session that is being opened is given up after half of the connect timeout.
        ConnectHalved,
        /// Neither side of a session cares that its client wants checksums.
        IntegrityIgnored,
        /// A call's deadline passes and the call goes on.
        DeadlineForgotten,
        /// What a cancelled call's packets took is lost when the server answers.
        QuarantineLeak,
        /// The slot of a cancelled call is given to the next call before the server has answered.
        NoQuarantine,
        /// The slot of a cancelled call is never given to another.
        QuarantineForEver,
        /// The server is not told that a call was cancelled.
        CancelNotSent,
        /// A cancelled request goes back to its user while the queue reads it.
        FlushForgottenAtCancel,
        /// A server tells a handler as often as a client cancels.
        CancelledTwice,
        /// A cancelled request that the server has not seen may still come, and be executed.
        CancelTakesNoNumber,
        /// A client that has given back the room for a response gets it all the same.
        AcceptedNotAnnounced,
        /// The announcement of a response is sent once.
        AnnouncedOnce,
        /// A request that is sent again tells the time that was left the first time.
        StampedOnce,
        /// The time that is left is rounded down.
        DeadlineRoundedDown,
        /// The deadlines of calls that wait for a slot are not looked at.
        QueuedDeadlineForgotten,
        /// The number of a call of which nothing was sent is lost, and its server waits for it.
        UnsentNumberLost,
        /// A session ends, and the handlers of its requests are not told.
        GoneUntold,
        /// Only the first packet of a message says that it is extended.
        ExtendedOnce,
        /// A batch of a stream is lost when the next one begins before a call has taken it.
        StreamBatchLost,
        /// Batches of a stream are read in the order in which they come.
        StreamOrderIgnored,
        /// The first batch that is taken after a stream's end was put in counts as the last.
        StreamEndEarly,
        /// A server is not told that a client has closed its stream.
        StreamCloseUntold,
        /// The end of a stream at its server does not stop the handler.
        StreamStopUntold,
        /// A pull that was answered still waits, and is answered again.
        StreamPullAnsweredTwice,
        /// Pulls that wait when the last batch goes out are never answered.
        StreamEndLeavesPulls,
        /// What was held for a stream that was not open is lost when it opens.
        StreamHeldForgotten,
        /// A client pulls although its reader has not read what there is.
        StreamPullsUnbounded,
        /// A push is answered when it comes, not when the handler takes it.
        StreamPushAnsweredEarly,
        /// When a handler reads no more, the pushes that wait are never answered.
        StreamPushesForgotten,
        /// A stream that was closed before it came begins all the same.
        StreamReopened,
        /// A client takes its stream for over while its calls are on their way.
        StreamOverTooSoon,
        /// Whatever status a handler ends with, its stream ends well.
        StreamStatusLost,
        /// Timers fire while the answers that they miss lie unread.
        TimersBeforeAnswers,
        /// Every copy of a request is answered, however soon it follows the one before.
        DuplicateAlwaysAnswered,
        /// A client does not keep the time that a server tells of a method.
        MethodTimeForgotten,
        /// The methods of a server share one place, and the last slow one has it.
        MethodTimeShared,
        /// A server does not tell how long its handler took.
        HandlerTimeUntold,
        /// The first timeout is 20 ms, however long the handshake took.
        FirstRtoFixed,
        /// A client forgets a server when the first of its sessions to it ends.
        PeerLeftEarly,
        /// The sessions of a host count after they have ended.
        HostNeverLeaves,
        /// A session keeps its credits while it is idle.
        CreditsKeptIdle,
        /// Credits that a session does not need stay with it.
        CreditsNotShrunk,
        /// A session that runs out has twice its credits, whatever its path holds.
        CreditsLeap,
        /// A session that runs out of credits does not note that it does.
        RunOutForgotten,
        /// A round ends with every answer.
        RoundsTooShort,
        /// What the server grants a session is not looked at.
        GrantedCreditsIgnored,
        /// Packets that credits allow leave in bursts.
        BurstsOfCredits,
        /// The rate that credits allow only falls.
        CeilingOnlyFalls,
        /// Response packets that are asked for cost no time.
        PullsUncharged,
        /// Where the link's rate is unknown, nothing controls sessions.
        UnknownRateUncontrolled,
        /// Congestion control is told no losses.
        LossUntold,
        /// Swift finds no queue.
        QueueUnseen,
    }

    const NONE: u32 = u32::MAX;
    static CHOSEN: AtomicU32 = AtomicU32::new(NONE);

    /// Puts a bug in, or takes it out again with `None`; for all threads of the process.
    pub fn choose(mutant: Option<Mutant>) {
        CHOSEN.store(mutant.map_or(NONE, |mutant| mutant as u32), Ordering::SeqCst);
    }

    /// Whether this bug was put in.
    #[inline]
    #[must_use]
    pub fn is_chosen(mutant: Mutant) -> bool {
        CHOSEN.load(Ordering::Relaxed) == mutant as u32
    }
}
