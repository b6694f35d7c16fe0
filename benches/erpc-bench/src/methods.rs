//! Method ids of the raw layer's workloads, and the control calls, by which a client reads the
//! state of the server process.

use std::time::Duration;

use erpc::LoopGaps;
use erpc::service::method_id;

/// The answer is the request.
pub(crate) const MIRROR: u32 = method_id("bench.v1.Raw/Mirror");
/// The answer has the size that the request asks for; see [`payload`](crate::payload).
pub(crate) const ECHO: u32 = method_id("bench.v1.Raw/Echo");
/// Takes large requests. The answer is a short checksum.
pub(crate) const SINK: u32 = method_id("bench.v1.Raw/Sink");
/// The answer has the size that the request asks for, and is large.
pub(crate) const SOURCE: u32 = method_id("bench.v1.Raw/Source");
/// Answers a [`Control`] with a [`ServerState`].
pub(crate) const CONTROL: u32 = method_id("bench.v1.Raw/Control");

/// A request to the server process itself, not to a service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Control {
    /// The server reports its state.
    State,
    /// The server reports its state, then its thread sleeps for this time to free the core.
    Park(Duration),
}

impl Control {
    /// Bytes of a request.
    pub(crate) const LEN: usize = 4;
    /// Longest time to park. Longer requests are shortened.
    const MAX_PARK: Duration = Duration::from_secs(1);

    pub(crate) fn to_bytes(self) -> [u8; Self::LEN] {
        let park = match self {
            Self::State => Duration::ZERO,
            Self::Park(time) => time,
        };
        (park.as_millis() as u32).to_le_bytes()
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let millis = u32::from_le_bytes(bytes.try_into().ok()?);
        Some(match Duration::from_millis(millis.into()) {
            Duration::ZERO => Self::State,
            time => Self::Park(time.min(Self::MAX_PARK)),
        })
    }
}

/// The state of the server process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ServerState {
    /// CPU time of the server process since its start.
    pub(crate) cpu_time: Duration,
    /// Stalls of the event loop that answered.
    pub(crate) gaps: LoopGaps,
    /// The core of the endpoint that answered.
    pub(crate) core: u32,
    /// The machine; see [`boot_id`](crate::machine::boot_id).
    pub(crate) boot_id: [u8; 16],
}

impl ServerState {
    /// Bytes of an answer.
    pub(crate) const LEN: usize = 44;

    pub(crate) fn to_bytes(self) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        let LoopGaps { count, longest } = self.gaps;
        let [cpu, longest] = [self.cpu_time, longest].map(|time| time.as_nanos() as u64);
        for (at, word) in [cpu, count, longest].into_iter().enumerate() {
            out[at * 8..][..8].copy_from_slice(&word.to_le_bytes());
        }
        out[24..28].copy_from_slice(&self.core.to_le_bytes());
        out[28..].copy_from_slice(&self.boot_id);
        out
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (words, rest) = bytes.split_first_chunk::<24>()?;
        let (core, boot_id) = rest.split_first_chunk()?;
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| words[at * 8 + byte]));
        Some(Self {
            cpu_time: Duration::from_nanos(word(0)),
            gaps: LoopGaps { count: word(1), longest: Duration::from_nanos(word(2)) },
            core: u32::from_le_bytes(*core),
            boot_id: boot_id.try_into().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_messages_round_trip_and_the_park_time_is_capped() {
        for control in [Control::State, Control::Park(Duration::from_millis(300))] {
            assert_eq!(Control::from_bytes(&control.to_bytes()), Some(control));
        }
        assert_eq!(
            Control::from_bytes(&u32::MAX.to_le_bytes()),
            Some(Control::Park(Control::MAX_PARK))
        );
        let state = ServerState {
            cpu_time: Duration::from_nanos(123_456_789_012),
            gaps: LoopGaps { count: 7, longest: Duration::from_micros(1_234) },
            core: 3,
            boot_id: [7; 16],
        };
        assert_eq!(ServerState::from_bytes(&state.to_bytes()), Some(state));
        assert_eq!(ServerState::from_bytes(&[0; ServerState::LEN + 1]), None);
    }
}
