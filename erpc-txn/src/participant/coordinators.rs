//! What a participant keeps for each coordinator.

use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{Participant, Refusal, Settings, Target};
use crate::cluster::{NodeId, Placement};
use crate::log::{Coordinator, Log};
use crate::mutants::mutant;

/// The records of a coordinator, if they are stored here, and its transactions that have ended.
///
/// An `Execute` may arrive after its transaction's end: its session broke, and the coordinator gave
/// it up. The locks would stay. So when a coordinator unlocks and does not know whether an `Execute`
/// still travels, it also *buries* the transaction: no later `Execute` of it locks anything. Below
/// the floor all transactions have ended, so the buried ones need not be kept for ever.
#[derive(Debug)]
pub(super) struct Coordinated {
    log: Option<Log>,
    floor: u64,
    /// Sequence numbers from `floor` on.
    buried: BTreeSet<u64>,
    /// The coordinator is a thread of this node, and has begun.
    is_open: bool,
}

impl Coordinated {
    pub(super) fn new(logged: Option<&Settings>) -> Self {
        let log = logged.map(|settings| Log::new(settings.log_bytes, settings.log_records));
        Self { log, floor: 0, buried: BTreeSet::new(), is_open: false }
    }

    pub(super) fn has_ended(&self, sequence: u64) -> bool {
        if mutant!(EndedNotChecked) {
            return false;
        }
        sequence < self.floor || self.buried.contains(&sequence)
    }

    pub(super) fn bury(&mut self, sequence: u64) {
        if sequence >= self.floor {
            self.buried.insert(sequence);
        }
    }

    fn raise_floor(&mut self, floor: u64) {
        if floor > self.floor {
            self.floor = floor;
            if !self.buried.is_empty() {
                self.buried = self.buried.split_off(&floor);
            }
            if let Some(log) = &mut self.log {
                log.raise_floor(floor);
            }
        }
    }

    /// Frees the records of transactions that have ended. See [`Participant::finish`].
    pub(super) fn end(&mut self, floor: u64, ended: impl IntoIterator<Item = u64>, bury: bool) {
        self.raise_floor(floor);
        for sequence in ended {
            if bury {
                self.bury(sequence);
            }
            if let Some(log) = &mut self.log {
                log.free(sequence);
            }
        }
    }

    pub(super) fn log(&mut self, of: Coordinator) -> Result<&mut Log, Refusal> {
        self.log.as_mut().ok_or(Refusal::Coordinator(of))
    }
}

/// What is kept for all coordinators. A lookup is two loads of small arrays, because each record and
/// each lock of a transaction needs one.
#[derive(Debug)]
pub(super) struct Coordinators {
    /// By the number of a node, its place among the nodes.
    places: Vec<Option<u16>>,
    threads: u16,
    /// By the place of the node, then by thread. Each has a lock of its own, which is free if the
    /// threads of different nodes talk in pairs.
    states: Vec<Mutex<Coordinated>>,
}

impl Coordinators {
    pub(super) fn new(me: NodeId, placement: &dyn Placement, settings: &Settings) -> Self {
        let (mut places, mut states) = (Vec::new(), Vec::new());
        for (place, &node) in placement.nodes().iter().enumerate() {
            places.resize(usize::from(node.0), None);
            places.push(Some(place as u16));
            let is_logged = placement.log_replicas(node).contains(&me);
            for _ in 0..settings.threads {
                let state = Coordinated::new(is_logged.then_some(settings));
                states.push(Mutex::new(state));
            }
        }
        Self { places, threads: settings.threads, states }
    }

    fn get(&self, of: Coordinator) -> Option<MutexGuard<'_, Coordinated>> {
        let place = (*self.places.get(usize::from(of.node))?)?;
        // A thread that does not exist must not be one of the next node.
        let thread = Some(of.thread).filter(|&thread| thread < self.threads)?;
        let at = usize::from(place) * usize::from(self.threads) + usize::from(thread);
        Some(lock(&self.states[at]))
    }

    fn all(&self) -> impl Iterator<Item = MutexGuard<'_, Coordinated>> {
        self.states.iter().map(lock)
    }
}

/// A coordinator's log, which is locked while this exists.
#[derive(Debug)]
pub struct LogRef<'a>(MutexGuard<'a, Coordinated>);

impl Deref for LogRef<'_> {
    type Target = Log;

    fn deref(&self) -> &Log {
        // `Participant::log` makes only references to logs that are there.
        self.0.log.as_ref().expect("the log is there")
    }
}

impl Participant {
    /// The log of a coordinator, if the node stores its records.
    #[must_use]
    pub fn log(&self, coordinator: Coordinator) -> Option<LogRef<'_>> {
        let state = self.coordinators.get(coordinator)?;
        state.log.is_some().then_some(LogRef(state))
    }

    /// The number of transactions of which the participant keeps that they have ended. It returns
    /// to 0 when their coordinators' floors have passed them.
    #[must_use]
    pub fn buried(&self) -> usize {
        self.coordinators.all().map(|state| state.buried.len()).sum()
    }

    /// Frees the records of transactions that have ended: those in `ended`, and all before `floor`,
    /// both sequence numbers of this coordinator. If `bury` is set, late repetitions of their
    /// requests change nothing any more.
    ///
    /// # Errors
    ///
    /// [`Refusal`] if the request is for another member, or there is no such coordinator.
    pub fn finish(
        &self,
        target: Target,
        coordinator: Coordinator,
        floor: u64,
        ended: impl IntoIterator<Item = u64>,
        bury: bool,
    ) -> Result<(), Refusal> {
        self.check(target)?;
        self.coordinated(coordinator)?.end(floor, ended, bury);
        Ok(())
    }

    /// Notes that a thread of this node coordinates from now on. False if it does so already, or if
    /// there is no such thread.
    pub(crate) fn open_thread(&self, thread: u16) -> bool {
        let of = Coordinator { node: self.node.0, thread };
        let state = self.coordinated(of);
        state.is_ok_and(|mut state| !std::mem::replace(&mut state.is_open, true))
    }

    pub(super) fn coordinated(
        &self,
        of: Coordinator,
    ) -> Result<MutexGuard<'_, Coordinated>, Refusal> {
        self.coordinators.get(of).ok_or(Refusal::Coordinator(of))
    }
}

fn lock(state: &Mutex<Coordinated>) -> MutexGuard<'_, Coordinated> {
    // The state has no invariant that a panic could break.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
