//! An endpoint in the world: its lives, its interface, its clock. A life is the time from a start
//! of the endpoint to its death.

use std::rc::Rc;
use std::sync::Arc;

use erpc_core::event_loop::Rpc;
use erpc_core::protocol::{Acceptor, ListenGroup};
use erpc_core::time::Instant;
use erpc_core::transport::fault::{FaultCounts, Faults, Injector};
use erpc_test_tools::random::mix;

use crate::clock::Clock;
use crate::party::Party;
use crate::plan::EndpointPlan;
use crate::probe_budget::ProbeBudget;
use crate::timeout_budget::TimeoutBudget;
use crate::told_windows::ToldWindows;
use crate::transport::{Port, SimTransport};
use crate::{LoopPauses, Random};

/// Packets of sessions, without control messages, that an endpoint has sent in its current life.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Answers {
    pub(crate) sent: u64,
    /// The most packets with which the endpoint may answer the packets that it has received.
    pub(crate) asked_for: u64,
}

/// One endpoint, alive or dead.
pub(crate) struct Node {
    pub(crate) rpc: Option<Rpc<SimTransport>>,
    pub(crate) port: Rc<Port>,
    pub(crate) party: Party,
    pub(crate) clock: Clock,
    pub(crate) rx: Injector,
    pub(crate) tx: Injector,
    loop_pauses: Option<LoopPauses>,
    pause_random: Random,
    pub(crate) turns: u64,
    pub(crate) timeout_budget: TimeoutBudget,
    pub(crate) probe_budget: ProbeBudget,
    /// Forged packets delivered to the endpoint in its current life.
    pub(crate) forged: u64,
    pub(crate) answers: Answers,
    /// Windows that the endpoint has told its clients in its current life.
    pub(crate) told: ToldWindows,
    seed: u64,
}

impl Node {
    /// Endpoint `index`, not started yet.
    pub(crate) fn new(index: usize, plan: &EndpointPlan, seed: u64, start: Instant) -> Self {
        let world_seed = seed;
        let seed = mix(world_seed ^ (index as u64 + 1) << 32);
        let (rx, tx) = &plan.faults;
        let random = Random::new(seed);
        Self {
            rpc: None,
            port: Port::new(plan.route, plan.nic),
            party: Party::new((index, 0), &random.fork(2), plan.config.memory()),
            // Clocks of different hosts are independent.
            clock: Clock::new((mix(world_seed ^ u64::from(plan.route.host)) >> 24) as i64),
            rx: Injector::new(seed ^ 1, rx.clone(), start),
            tx: Injector::new(seed ^ 2, tx.clone(), start),
            loop_pauses: plan.loop_pauses,
            pause_random: Random::new(seed).fork(3),
            turns: 0,
            timeout_budget: TimeoutBudget::default(),
            probe_budget: ProbeBudget::default(),
            forged: 0,
            answers: Answers::default(),
            told: ToldWindows::default(),
            seed,
        }
    }

    /// Starts the endpoint, or starts it again after its death. `group` is the listening group of
    /// its host.
    pub(crate) fn start(&mut self, plan: &EndpointPlan, group: &Arc<ListenGroup>) {
        let life = self.party.incarnation().1;
        let seed = mix(self.seed ^ u64::from(life + 1) << 8);
        self.port = Port::new(plan.route, plan.nic);
        let config = plan.config.clone().seed(seed);
        let mut rpc = Rpc::new(SimTransport::new(Rc::clone(&self.port)), config)
            .expect("the plan's settings are within their bounds");
        if let Some(place) = plan.group.iter().position(|&port| port == plan.route.port) {
            rpc.listen(Acceptor::new(Arc::clone(group), place as u8));
        }
        self.party = self.party.reborn(&Random::new(seed).fork(2), plan.config.memory());
        self.rpc = Some(rpc);
        self.timeout_budget = TimeoutBudget::default();
        self.probe_budget = ProbeBudget::default();
        self.forged = 0;
        self.answers = Answers::default();
        self.told = ToldWindows::default();
    }

    /// The endpoint dies. Only its packets in flight remain.
    pub(crate) fn die(&mut self) {
        self.rpc = None;
    }

    /// How long the loop pauses after this turn, in ns.
    pub(crate) fn absent_for(&mut self) -> u64 {
        self.loop_pauses.map_or(0, |loop_pauses| loop_pauses.after_turn(&mut self.pause_random))
    }

    /// Ends the packet faults and the loop's pauses. Returns how often faults acted.
    pub(crate) fn heal(&mut self) -> FaultCounts {
        let mut counts = self.rx.counts();
        counts += self.tx.counts();
        self.loop_pauses = None;
        self.rx = Injector::new(0, Faults::none(), Instant::ZERO);
        self.tx = Injector::new(0, Faults::none(), Instant::ZERO);
        counts
    }
}
