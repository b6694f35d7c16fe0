//! An endpoint in the world: its life, its interface, its clock.

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

/// Packets of sessions in one life of an endpoint.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Answers {
    pub(crate) sent: u64,
    /// Those that what it was handed may have asked for.
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
    /// Forged packets that it was handed in this life.
    pub(crate) forged: u64,
    pub(crate) answers: Answers,
    /// What it has told its clients in this life.
    pub(crate) told: ToldWindows,
    seed: u64,
}

impl Node {
    /// Endpoint `index`, not born yet.
    pub(crate) fn new(index: usize, plan: &EndpointPlan, seed: u64, start: Instant) -> Self {
        let world_seed = seed;
        let seed = mix(world_seed ^ (index as u64 + 1) << 32);
        let (rx, tx) = &plan.faults;
        let random = Random::new(seed);
        Self {
            rpc: None,
            port: Port::new(plan.route, plan.nic),
            party: Party::new((index, 0), &random.fork(2), plan.config.memory()),
            // Clocks of different hosts have nothing to do with each other.
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

    /// It is born, or born again. `group` is what its host listens as.
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

    /// It dies; nothing of it remains but what is on its way.
    pub(crate) fn die(&mut self) {
        self.rpc = None;
    }

    /// How long its loop is away after this turn, in nanoseconds.
    pub(crate) fn absent_for(&mut self) -> u64 {
        self.loop_pauses.map_or(0, |loop_pauses| loop_pauses.after_turn(&mut self.pause_random))
    }

    /// Nothing happens to its packets any more, and its loop turns when something comes.
    pub(crate) fn heal(&mut self) -> FaultCounts {
        let mut counts = self.rx.counts();
        counts += self.tx.counts();
        self.loop_pauses = None;
        self.rx = Injector::new(0, Faults::none(), Instant::ZERO);
        self.tx = Injector::new(0, Faults::none(), Instant::ZERO);
        counts
    }
}
