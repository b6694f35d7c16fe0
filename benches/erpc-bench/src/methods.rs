//! Method ids of the raw layer's workloads, and the calls by which a client asks how the server is.

use std::time::Duration;

use erpc::service::method_id;

/// Answers with what it was sent.
pub(crate) const MIRROR: u32 = method_id("bench.v1.Raw/Mirror");
/// Answers with as many bytes as it is asked for; see [`payload`](crate::payload).
pub(crate) const ECHO: u32 = method_id("bench.v1.Raw/Echo");
/// Takes large requests.
pub(crate) const SINK: u32 = method_id("bench.v1.Raw/Sink");
/// Answers a [`Control`] with a [`ServerState`].
pub(crate) const CONTROL: u32 = method_id("bench.v1.Raw/Control");

/// A request to the server's process rather than to a service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Control {
    /// Says how it is.
    State,
    /// Says how it is, then leaves its core alone for that long.
    Park(Duration),
}

impl Control {
    /// Bytes of a request.
    pub(crate) const LEN: usize = 4;
    /// Nobody parks a server for longer.
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

/// How the server is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ServerState {
    /// CPU time of its process.
    pub(crate) cpu_time: Duration,
    /// The core that the endpoint which answered runs on.
    pub(crate) core: u32,
    /// The machine; see [`boot_id`](crate::machine::boot_id).
    pub(crate) boot_id: [u8; 16],
}

impl ServerState {
    /// Bytes of an answer.
    pub(crate) const LEN: usize = 28;

    pub(crate) fn to_bytes(self) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        out[..8].copy_from_slice(&(self.cpu_time.as_nanos() as u64).to_le_bytes());
        out[8..12].copy_from_slice(&self.core.to_le_bytes());
        out[12..].copy_from_slice(&self.boot_id);
        out
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (cpu_time, rest) = bytes.split_first_chunk()?;
        let (core, boot_id) = rest.split_first_chunk()?;
        Some(Self {
            cpu_time: Duration::from_nanos(u64::from_le_bytes(*cpu_time)),
            core: u32::from_le_bytes(*core),
            boot_id: boot_id.try_into().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_messages_survive_the_wire_and_parking_is_bounded() {
        for control in [Control::State, Control::Park(Duration::from_millis(300))] {
            assert_eq!(Control::from_bytes(&control.to_bytes()), Some(control));
        }
        assert_eq!(
            Control::from_bytes(&u32::MAX.to_le_bytes()),
            Some(Control::Park(Control::MAX_PARK))
        );
        let state = ServerState {
            cpu_time: Duration::from_nanos(123_456_789_012),
            core: 3,
            boot_id: [7; 16],
        };
        assert_eq!(ServerState::from_bytes(&state.to_bytes()), Some(state));
        assert_eq!(ServerState::from_bytes(&[0; ServerState::LEN + 1]), None);
    }
}
