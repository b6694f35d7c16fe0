//! Logs that the rate of the link to the network is unknown.

use std::fmt::Display;
use std::sync::Once;

use crate::protocol::CongestionControl;

/// Logs that the rate of the link to `peer` was not configured and is unknown to the transport, and
/// what that means for `control`. Logs once per process for Swift, whose sessions are controlled
/// anyway, and once for Timely and DCQCN, whose sessions are not. Logs nothing for
/// [`CongestionControl::None`].
pub(super) fn note_unknown_rate(control: &CongestionControl, peer: &dyn Display) {
    static CONTROLLED: Once = Once::new();
    static UNCONTROLLED: Once = Once::new();
    match control {
        CongestionControl::None => {}
        CongestionControl::Swift(_) => CONTROLLED.call_once(|| {
            log::info!(
                "erpc does not know the rate of the link to {peer}: only round-trip times control its sessions. \
                 EndpointConfig::link_rate sets the rate. This is not logged again."
            );
        }),
        CongestionControl::Timely(_) | CongestionControl::Dcqcn(_) => UNCONTROLLED.call_once(|| {
            log::warn!(
                "erpc does not know the rate of the link to {peer}: its sessions have no congestion control, because Timely and DCQCN need \
                 the rate. EndpointConfig::link_rate sets it; Swift does not need it. This is not logged again."
            );
        }),
    }
}
