//! Single events of a plan: their numbers, and their descriptions.

use std::time::Duration;

use super::Plan;
use crate::net::LinkId;

/// A single event of the plan.
#[derive(Clone, PartialEq, Debug)]
pub enum PlannedEvent {
    /// All endpoints on an endpoint's host die, and restart after this time in ns.
    Crash(usize, u64),
    /// A link stops.
    Stop(u32),
    /// A stopped link works again.
    Resume(u32),
    /// This many recorded packets are replayed.
    Replay(u32),
    /// This many forged packets are sent.
    Forge(u32),
    /// This many ICMP messages about packets that were delivered are forged.
    ForgeReports(u32),
    /// The clock of an endpoint's host stands still for this time, in ns.
    Stall(usize, u64),
    /// The clock of an endpoint's host jumps ahead by this time, in ns.
    Leap(usize, u64),
    /// An endpoint's user allocates all free memory, for this time in ns.
    Hoard(usize, u64),
    /// An endpoint closes one of its sessions and opens another.
    Reconnect(usize),
}

impl Plan {
    /// Leaves out the events with these numbers. The remaining events keep their numbers.
    pub(super) fn skip(&mut self, numbers: &[usize]) {
        let mut at = 0..;
        self.events.retain(|_| at.next().is_none_or(|at| !numbers.contains(&at)));
        self.skipped = numbers.to_vec();
    }

    /// The event at `index` of [`Plan::events`] in words, with the number that `--skip` takes.
    ///
    /// # Panics
    /// Panics if there is no such event.
    #[must_use]
    pub fn event_in_words(&self, index: usize) -> String {
        let number = (0..).filter(|number| !self.skipped.contains(number)).nth(index);
        let number = number.unwrap_or(index);
        format!("event {number}: {}", self.in_words(&self.events[index].1))
    }

    fn in_words(&self, event: &PlannedEvent) -> String {
        let route = |index: usize| self.endpoints[index].route;
        let host = |index: usize| route(index).host;
        let link = |link: u32| self.topology.link_in_words(LinkId(link));
        let time = Duration::from_nanos;
        match *event {
            PlannedEvent::Crash(who, nanos) => {
                format!("host {} dies, and restarts {:?} later", host(who), time(nanos))
            }
            PlannedEvent::Stop(at) => format!("the link {} stops", link(at)),
            PlannedEvent::Resume(at) => format!("the link {} works again", link(at)),
            PlannedEvent::Replay(count) => format!("{count} recorded packets are replayed"),
            PlannedEvent::Forge(count) => format!("{count} forged packets are sent"),
            PlannedEvent::ForgeReports(count) => {
                format!("{count} reports that packets were not delivered are forged")
            }
            PlannedEvent::Stall(who, nanos) => {
                format!("the clock of host {} stands still for {:?}", host(who), time(nanos))
            }
            PlannedEvent::Leap(who, nanos) => {
                format!("the clock of host {} jumps ahead by {:?}", host(who), time(nanos))
            }
            PlannedEvent::Hoard(who, nanos) => {
                format!("the user of {} takes all free memory for {:?}", route(who), time(nanos))
            }
            PlannedEvent::Reconnect(who) => {
                format!("{} closes a session and opens another", route(who))
            }
        }
    }
}
