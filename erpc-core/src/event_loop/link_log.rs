//! A line in the log where the rate of the link to the network is not known.

use std::fmt::Display;
use std::sync::Once;

use crate::protocol::CongestionControl;

/// The link to `peer` has a rate that was not set and that the transport does not know. Says what that means for `control`: once per
/// process where sessions are controlled all the same, and once where they are not.
pub(super) fn note_unknown_rate(control: &CongestionControl, peer: &dyn Display) {
    static CONTROLLED: Once = Once::new();
    static UNCONTROLLED: Once = Once::new();
    match control {
        CongestionControl::None => {}
        CongestionControl::Swift(_) => CONTROLLED.call_once(|| {
            log::info!(
                "erpc does not know the rate of the link to {peer}: round trips alone control its sessions. \
                 EndpointConfig::link_rate sets the rate. This is not logged again."
            );
        }),
        CongestionControl::Timely(_) | CongestionControl::Dcqcn(_) => UNCONTROLLED.call_once(|| {
            log::warn!(
                "erpc does not know the rate of the link to {peer}: nothing controls its sessions, for Timely and DCQCN need \
                 the rate. EndpointConfig::link_rate sets it, and Swift needs none. This is not logged again."
            );
        }),
    }
}
