//! Which station has which address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use super::Mac;
use crate::time::Instant;

/// Largest number of neighbours. Addresses beyond it are refused while all entries are in use.
pub const MAX_NEIGHBOURS: usize = 4_096;
/// Frames that wait for one neighbour's answer. Later ones are dropped, and the protocol repeats
/// them.
pub const MAX_WAITING: usize = 8;
/// Questions without an answer before a neighbour counts as gone.
const TRIES: u8 = 5;
/// Time between two questions.
const RETRY: Duration = Duration::from_millis(200);
/// A known neighbour is asked again after this time.
const LIFETIME: Duration = Duration::from_secs(30);

/// What is known about a neighbour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resolution {
    /// Its MAC address.
    Known(Mac),
    /// It has been asked. The frame waits for the answer.
    Waiting,
    /// It must be asked now. The frame waits for the answer.
    Ask,
    /// The frame is dropped: too many wait.
    Full,
}

#[derive(Debug)]
struct Neighbour {
    mac: Option<Mac>,
    /// Configured, so never asked and never changed.
    is_fixed: bool,
    /// Questions since the last answer.
    asked: u8,
    /// When to ask next.
    due: Instant,
    waiting: Vec<Vec<u8>>,
}

/// The table of neighbours.
#[derive(Debug, Default)]
pub struct Neighbours {
    entries: HashMap<IpAddr, Neighbour>,
    /// Incremented when an address changes or goes.
    version: u32,
}

impl Neighbours {
    /// A table with fixed entries.
    #[must_use]
    pub fn new(fixed: impl IntoIterator<Item = (IpAddr, Mac)>) -> Self {
        let entry = |(ip, mac)| {
            let due = Instant::NEVER;
            (ip, Neighbour { mac: Some(mac), is_fixed: true, asked: 0, due, waiting: Vec::new() })
        };
        Self { entries: fixed.into_iter().map(entry).collect(), version: 0 }
    }

    /// Changes when an address that was [`Resolution::Known`] may be so no more.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Looks up `ip` for a frame, which `frame` makes if it is to wait.
    pub fn resolve(
        &mut self,
        ip: IpAddr,
        now: Instant,
        frame: impl FnOnce() -> Vec<u8>,
    ) -> Resolution {
        if !self.entries.contains_key(&ip) && self.entries.len() >= MAX_NEIGHBOURS {
            return Resolution::Full;
        }
        let is_new = !self.entries.contains_key(&ip);
        let entry = self.entries.entry(ip).or_insert_with(|| Neighbour {
            mac: None,
            is_fixed: false,
            asked: 1,
            due: now + RETRY,
            waiting: Vec::new(),
        });
        if let Some(mac) = entry.mac {
            return Resolution::Known(mac);
        }
        if entry.waiting.len() >= MAX_WAITING {
            return Resolution::Full;
        }
        entry.waiting.push(frame());
        if is_new { Resolution::Ask } else { Resolution::Waiting }
    }

    /// Notes that `ip` is at `mac`. Only an address that was asked for, or that `asks` for this
    /// host, gets an entry: the table is not filled by answers to no question. Returns the frames
    /// that have waited.
    pub fn learn(&mut self, ip: IpAddr, mac: Mac, asks: bool, now: Instant) -> Vec<Vec<u8>> {
        let has_room = asks && self.entries.len() < MAX_NEIGHBOURS;
        if !self.entries.contains_key(&ip) && !has_room {
            return Vec::new();
        }
        let entry = self.entries.entry(ip).or_insert_with(|| Neighbour {
            mac: None,
            is_fixed: false,
            asked: 0,
            due: now,
            waiting: Vec::new(),
        });
        if entry.is_fixed {
            return Vec::new();
        }
        if entry.mac.is_some_and(|old| old != mac) {
            self.version += 1;
        }
        entry.mac = Some(mac);
        entry.asked = 0;
        entry.due = now + LIFETIME;
        std::mem::take(&mut entry.waiting)
    }

    /// Asks all neighbours again with the next [`Neighbours::tick`], because others may have their
    /// addresses now: the link was down. Their MAC addresses are used until they answer.
    pub fn doubt(&mut self, now: Instant) {
        for entry in self.entries.values_mut().filter(|entry| !entry.is_fixed) {
            entry.due = now;
        }
    }

    /// Returns the addresses to ask for now, and removes those that never answer. The second value
    /// is the number of waiting frames that were dropped. Bounded by the table's size.
    pub fn tick(&mut self, now: Instant) -> (Vec<IpAddr>, u64) {
        let (mut ask, mut dropped) = (Vec::new(), 0);
        let version = &mut self.version;
        self.entries.retain(|ip, entry| {
            if entry.due > now {
                return true;
            }
            if entry.asked >= TRIES {
                dropped += entry.waiting.len() as u64;
                *version += 1;
                return false;
            }
            entry.asked += 1;
            entry.due = now + RETRY;
            ask.push(*ip);
            true
        });
        (ask, dropped)
    }
}
