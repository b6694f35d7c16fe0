//! Deliberate bugs, which check that the simulator or a test detects them.
//!
//! With `--cfg erpc_mutants`, every `mutant!(Name)` in the code checks at run time whether
//! [`choose`], or the environment variable `ERPC_BUG`, has enabled that bug. In all other builds it
//! is the constant `false`, and this module has no other content.

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
pub use chosen::{ALL, Catcher, Mutant, Planted, choose, is_chosen};

#[cfg(erpc_mutants)]
mod chosen {
    use std::sync::atomic::{AtomicU32, Ordering};

    /// What has to detect a bug.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Catcher {
        /// `erpc-sim run`: simulated endpoints, without channels and handlers.
        Run,
        /// `erpc-sim typed`: simulated channels, retries, workers and tasks.
        Typed,
        /// A test of erpc-core: its target (`lib`, or the name of an integration test) and its
        /// path.
        Test(&'static str, &'static str),
    }

    /// A deliberate bug, and what has to detect it.
    #[derive(Clone, Copy, Debug)]
    pub struct Planted {
        /// The bug.
        pub mutant: Mutant,
        /// Its effect.
        pub effect: &'static str,
        /// What has to detect it.
        pub catcher: Catcher,
    }

    macro_rules! catcher {
        () => {
            Catcher::Run
        };
        ($catcher:expr) => {
            $catcher
        };
    }

    macro_rules! mutants {
        ($($(#[doc = $doc:literal])* $name:ident $(by $catcher:expr)?,)*) => {
            /// A deliberate bug.
            #[derive(Clone, Copy, PartialEq, Eq, Debug)]
            #[repr(u32)]
            pub enum Mutant {
                $($(#[doc = $doc])* $name,)*
            }

            /// All bugs.
            pub const ALL: &[Planted] = &[$(Planted {
                mutant: Mutant::$name,
                effect: concat!($($doc),*),
                catcher: catcher!($($catcher)?),
            },)*];
        };
    }

    use Catcher::{Test, Typed};

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
        /// A call of one packet, sent once, is overdue only at the session's next ping.
        SimpleCallsWait by Test(
            "lib",
            "protocol::tests::retransmission::a_lost_response_costs_one_timeout_and_no_second_execution"
        ),
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
        /// A client forgets that a response was long, and cuts the next calls into small packets.
        LongResponseForgotten by Test("lib", "protocol::tests::flow::after_an_unexpectedly_long_response_calls_reserve_room_for_long_ones_for_a_second"),
        /// A server forgets which packets a client has asked for before the response.
        EarlyPullForgotten by Test("lib", "protocol::tests::early_pulls::the_second_long_response_takes_one_round_trip"),
        /// After a timeout, a client still counts on packets that it has asked for behind the first
        /// copy of the request.
        EarlyPullTrusted by Test("lib", "protocol::tests::early_pulls::what_was_asked_for_before_a_timeout_does_not_count"),
        /// A client asks for as many packets of a response that may be long as fit its credits, window
        /// and room.
        EarlyPullTakesAll by Test("lib", "protocol::tests::early_pulls::a_guess_leaves_a_quarter_of_each_limit"),
        /// A client asks for packets of a response that may be long while calls wait.
        EarlyPullTakesTurn by Test("lib", "protocol::tests::early_pulls::there_is_no_guess_while_calls_wait"),
        /// A packet that was asked for early counts as the answer to a packet that a timeout sent.
        EarlyPacketAnswersProbe by Test("lib", "protocol::tests::early_pulls::early_packets_that_come_after_a_timeout_are_taken"),
        /// A packet that was asked for early shows a loss, although the client has gone back since.
        EarlyPacketAlwaysNews by Test("lib", "protocol::tests::early_pulls::the_client_goes_back_once_for_all_early_packets"),
        /// A client expects long responses of a method for ever.
        LongResponseExpectedForever by Test("lib", "protocol::tests::early_pulls::after_a_short_response_nothing_is_asked_for_early"),
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
        /// A client names at most eight responses in one round of `Done`, and forgets the others.
        DoneNamesEight by Test(
            "lib",
            "protocol::tests::slots::a_client_confirms_the_responses_of_all_slots"
        ),
        /// A client keeps its own number of slots, although the server has fewer.
        ClientKeepsItsSlots,
        /// A server keeps its own number of slots, although the client has fewer.
        ServerKeepsItsSlots,
        /// The numbers of a slot's requests advance by 8, whatever the session's number of slots.
        NumbersStepByEight,
        /// Sets of slots confuse slot 32 with slot 0, and so on.
        SlotBitWraps,
        /// A server's limit of a session's memory counts 8 slots, although the session has more.
        BudgetOfEightSlots by Test(
            "lib",
            "protocol::config::tests::the_memory_budget_has_an_allowance_for_each_slot"
        ),
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
        /// The first copy of a plain request does not carry the remaining time.
        PlainDeadlineUntold,
        /// No timer is armed for the deadline of a plain call.
        PlainDeadlineUnarmed,
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
        /// A job wakes an idle worker only if the queue was empty.
        WorkerNotWoken by Test("lib", "serving::worker::queue::tests::each_job_wakes_a_worker"),
        /// A call that is cancelled in its backoff leaves the timer, which fails the next call
        /// with the same key.
        BackoffTimerKept by Typed,
        /// After a retry, an error does not tell that an earlier attempt may have been executed.
        TruthForgotten by Typed,
        /// A burst hook's notes stay for the next burst, and its requests reach no hook.
        NotesKept by Test("typed", "bursts::each_hook_runs_once_per_burst_before_the_handlers"),
        /// A call that is retried has no deadline any more.
        DeadlineLostOnRetry by Typed,
        /// Each retry earns a part of the next one.
        RetriesEarnBudget by Typed,
        /// A cancelled call is retried.
        CancelledRetried by Test("typed", "channels::a_call_that_was_dropped_costs_no_retry"),
        /// A call backs off until after its deadline.
        BacksOffTooLong by Typed,
        /// A retry does not avoid the server of the attempt before.
        AvoidForgotten by Test("typed", "channels::a_retry_avoids_the_server_of_the_attempt_before"),
        /// A call of any method is repeated, even if it may have been executed.
        UnknownRetried by Typed,
        /// Retries of calls that a draining server refused are charged to the budget.
        DrainCharged by Test(
            "lib",
            "calling::retry::tests::calls_that_a_draining_server_refused_are_outside_of_the_budget"
        ),
        /// Retries take nothing from the budget.
        RetriesFree by Typed,
        /// A session that could not be opened stays in the endpoint's table.
        LinkKept by Typed,
        /// The pauses between attempts to reach a server go on growing after it was reached.
        FailuresKept by Typed,
        /// While a lost session is opened again, the channel counts as down, and calls fail.
        NotTryingAgain by Typed,
        /// A server is listed once for each of its sessions, and gets more calls than others.
        ReadyTwice by Test("typed", "channels::calls_are_spread_evenly"),
        /// Calls that wait for a session do not start when one opens.
        LineForgotten by Typed,
        /// A call that has left the line of waiting calls keeps its ticket.
        TicketKept by Typed,
        /// Any number of calls may wait for a session.
        LineUnbounded by Test("typed", "channels::the_queue_of_waiting_calls_is_bounded"),
        /// An empty answer of the resolver removes all servers.
        EmptyAnswerTaken by Typed,
        /// The resolver is not asked again when a server cannot be reached.
        FailureAsksNobody by Typed,
        /// A failure while the resolver is being asked does not make the channel ask again.
        StaleClearedLate by Test("typed", "channels::a_failure_during_a_query_leads_to_another"),
        /// An answer of the resolver stays valid after its time.
        AnswerNeverExpires by Typed,
        /// The resolver is asked again without a pause.
        ResolvePauseForgotten by Typed,
        /// A session that its channel gives up stays open.
        SessionNotClosed by Typed,
        /// A task that is aborted while it is ready keeps its generation, so that its id names the
        /// slot's next task.
        AbortKeepsGeneration by Test(
            "lib",
            "executor::tasks::tests::the_id_of_a_task_that_was_aborted_while_ready_is_stale"
        ),
        /// A task that is woken while a nested loop runs in its poll is not polled again.
        NestedWakeLost by Test("typed", "endpoints::a_task_that_is_woken_in_its_nested_loop_goes_on"),
        /// Wakers of other threads wake a task only once.
        RemoteWakeOnce by Test("lib", "executor::tasks::tests::another_thread_wakes_a_task_twice"),
        /// A sleep that is dropped leaves its timer.
        SleepTimerKept by Typed,
        /// The removal of a timer leaves the heap out of order.
        HeapNotMended by Test(
            "lib",
            "executor::timers::tests::removed_timers_are_never_due_and_the_rest_are_in_order"
        ),
        /// The flag of a cancelled call is set when the next call gets it.
        CancelFlagReused by Typed,
        /// The number of running tasks never falls.
        TaskCountLeak by Typed,
        /// A worker's handler does not learn that its call was cancelled.
        CancelFlagForgotten by Typed,
        /// The task of a cancelled call runs on.
        CancelLeavesTask by Typed,
        /// A call that a worker has answered stays in the table of running calls.
        WorkerCallKept by Typed,
        /// When the time of a drain is over, the calls that wait for a worker are not refused.
        DrainForgetsQueue by Typed,
        /// A worker starts a call that was cancelled in the queue.
        CancelledJobStarts by Typed,
        /// A worker starts a call after its deadline.
        LateJobStarts by Test(
            "typed",
            "served::a_call_that_waits_too_long_for_a_worker_does_not_start"
        ),
        /// A client that is gone without a word counts in its member of the listening group.
        LostClientCounts by Test(
            "lib",
            "protocol::tests::liveness::the_listen_group_no_longer_counts_an_ended_session"
        ),
        /// New sessions go to any member of a listening group, whatever its load is.
        LoadIgnored by Test(
            "lib",
            "protocol::server::listen::tests::the_member_with_fewer_sessions_of_two_is_chosen"
        ),
        /// Any number of short calls overtake a long one that waits for credits.
        OvertakenUncounted by Test(
            "lib",
            "protocol::client::credits::tests::a_long_call_is_overtaken_by_eight_short_ones_at_most"
        ),
        /// A session that has waited to send makes up for it after an idle time, by a burst.
        WaitNotForgotten by Test(
            "lib",
            "protocol::client::pacer::tests::a_call_that_starts_after_the_last_one_left_makes_up_for_no_lateness"
        ),
        /// A pool that needs room does not free what other threads have returned.
        ShrinkBlind by Test("lib", "buf::pool::tests::returned_memory_makes_room"),
        /// A msgbuf of another thread is not counted when the pool adopts it.
        AdoptUncounted by Test(
            "lib",
            "buf::pool::tests::an_adopted_buffer_is_counted_and_freed_like_the_pools_own"
        ),
        /// A msgbuf that a queue still reads is reused.
        QueuedBufferReused by Test(
            "lib",
            "buf::pool::tests::the_last_recycled_msgbuf_is_reused_first_if_it_is_small_and_unique"
        ),
        /// A block whose size is that of no class is kept as one of the next class.
        OddBlockKept by Test(
            "lib",
            "buf::pool::tests::an_adopted_buffer_is_counted_and_freed_like_the_pools_own"
        ),
        /// A reply is copied into a request that a queue still reads.
        SharedOverwritten by Test("lib", "buf::pool::tests::a_copy_spares_a_buffer_that_a_queue_reads"),
        /// The flag of a full inbox is set before the packet is in it.
        StrayFlagEarly by Test("lib", "transport::udp::stray::tests::no_stray_packet_is_stuck"),
        /// A run of packets contains packets of several members of a group.
        RunMixesMembers by Test(
            "lib",
            "transport::udp::tests::group::runs_are_steered_and_never_mix_members"
        ),
        /// A packet is dropped because of an error that belongs to another peer's packet.
        OthersErrorTaken by Test(
            "lib",
            "transport::udp::tests::errors::a_send_that_fails_with_another_peers_error_is_repeated"
        ),
        /// A run of packets goes on after a shorter packet.
        RunGoesOn by Test(
            "lib",
            "transport::udp::tests::runs_are_handed_out_in_bursts_and_in_order"
        ),
        /// A padded run has packets for several members of a group.
        PaddedRunMixesMembers by Test(
            "lib",
            "transport::udp::tests::group::padded_runs_never_mix_members"
        ),
        /// Padding makes a receiver's kernel count more for a packet than its sender expects.
        PaddingChangesCharge by Test(
            "lib",
            "transport::udp::tests::padding::messages_are_not_padded_if_the_receivers_kernel_may_count_more_for_them_then"
        ),
        /// A receiver takes padding for a part of the message.
        PaddingKept by Test(
            "lib",
            "protocol::tests::padded_messages::messages_arrive_without_their_padding"
        ),
        /// A receiver takes any bytes behind a message for padding.
        PaddingNotChecked by Test(
            "lib",
            "protocol::tests::padded_messages::bytes_behind_a_message_that_are_no_padding_are_not_ignored"
        ),
        /// A server sends bundles to a client that does not take them.
        BundlesUnasked by Test(
            "lib",
            "protocol::tests::negotiation::each_side_gets_bundles_only_if_it_takes_them"
        ),
        /// A receiver takes what follows any packet for another one.
        BundleOfAnyKind by Test("lib", "wire::bundle::tests::other_datagrams_are_one_packet"),
        /// A bundle has messages for several members of a group.
        BundleMixesMembers by Test(
            "lib",
            "transport::udp::tests::bundles::the_members_of_a_group_have_bundles_of_their_own"
        ),
        /// Open bundles are not sent with the other packets.
        BundleForgotten by Test(
            "lib",
            "transport::udp::tests::bundles::messages_that_leave_together_share_datagrams"
        ),
        /// A packet of a longer message is sent before earlier packets of the message.
        LongMessageMixed by Test(
            "lib",
            "transport::udp::tests::packets_of_one_length_leave_together_but_long_messages_stay_in_order"
        ),
        /// A datagram that the system has cut is taken for a whole one.
        CutTaken by Test(
            "lib",
            "transport::udp::tests::a_datagram_that_the_system_has_cut_is_dropped_whatever_its_length_is"
        ),
        /// A receiver sleeps although it has received packets that no burst has handed out.
        PendingForgotten by Test(
            "lib",
            "transport::udp::tests::a_sleeping_receiver_does_not_miss_pending_packets"
        ),
        /// The ring of a closed port is never removed.
        ClosedRingKept by Test(
            "lib",
            "transport::mem::tests::the_ring_of_a_port_that_closes_later_is_removed"
        ),
        /// Packets to a port go to the ring of an earlier port of that number.
        OldRingUsed by Test(
            "lib",
            "transport::mem::tests::a_new_port_with_an_old_number_receives_only_its_own_packets"
        ),
        /// The ring of a closed port is removed only when another port opens or closes.
        DrainedRingKept by Test(
            "lib",
            "transport::mem::tests::packets_of_a_closed_port_arrive_and_its_ring_is_removed"
        ),
        /// A receiver never tells the sender that it has read packets.
        ReleaseForgotten by Test(
            "lib",
            "transport::mem::tests::a_ring_holds_its_capacity_and_one_burst_more"
        ),
        /// Packets that are held back when the faults end arrive late or never.
        LateLeftBehind by Test("lib", "transport::fault::tests::faulty::packets_that_are_late_arrive_after_the_end_of_the_faults"),
        /// The counts of a former plan of faults are lost.
        PastForgotten by Test("lib", "transport::fault::tests::faulty::a_handle_changes_the_plan"),
        /// A packet that damage made too long is passed on.
        LongPacketPassed by Test("lib", "transport::fault::tests::faulty::packets_longer_than_the_largest_datagram_are_dropped"),
        /// Damage flips a bit back.
        FlippedBack by Test("lib", "transport::fault::tests::damage::a_bit_is_flipped_at_most_once"),
    }

    const NONE: u32 = u32::MAX;
    /// The environment was not asked yet.
    const UNASKED: u32 = NONE - 1;
    static CHOSEN: AtomicU32 = AtomicU32::new(UNASKED);

    /// Enables a bug, or disables it with `None`, for all threads of the process.
    pub fn choose(mutant: Option<Mutant>) {
        CHOSEN.store(mutant.map_or(NONE, |mutant| mutant as u32), Ordering::SeqCst);
    }

    /// Whether this bug is enabled.
    #[inline]
    #[must_use]
    pub fn is_chosen(mutant: Mutant) -> bool {
        let chosen = match CHOSEN.load(Ordering::Relaxed) {
            UNASKED => ask(),
            chosen => chosen,
        };
        chosen == mutant as u32
    }

    /// The bug that the environment variable `ERPC_BUG` names, for tests.
    #[cold]
    fn ask() -> u32 {
        let named = std::env::var("ERPC_BUG").ok().map(|name| {
            let is_it = |planted: &&Planted| format!("{:?}", planted.mutant) == name;
            let planted = ALL.iter().find(is_it);
            planted.unwrap_or_else(|| panic!("ERPC_BUG: there is no bug {name}")).mutant
        });
        choose(named);
        CHOSEN.load(Ordering::Relaxed)
    }
}
