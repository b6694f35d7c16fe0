//! The windows that servers tell.

use std::collections::{BTreeMap, BTreeSet};

use erpc_core::wire::control::Control;
use erpc_core::wire::{Header, ReplyInfo};

use crate::SimRoute;
use crate::hostile::craft;

/// The windows that a server endpoint has told its clients last, by address and steer byte.
#[derive(Default)]
pub(crate) struct ToldWindows {
    pub(crate) windows: BTreeMap<(SimRoute, u8), u32>,
    /// Sessions that were ever opened, by the client's address and id.
    opened: BTreeSet<(SimRoute, u64)>,
    /// Where the session was opened from that was the last to be told so, if that was its first time and nothing has asked since.
    pub(crate) last_opened: Option<SimRoute>,
}

impl ToldWindows {
    /// The server sends a packet.
    pub(crate) fn record(&mut self, to: SimRoute, header: &Header, bytes: &[u8]) {
        let connection = header.connection;
        if connection.is_server_role() || connection.is_endpoint() {
            return;
        }
        let told = match craft::read_control(bytes) {
            Some((_, Control::Opened { parameters, .. })) => {
                // Said again, of a session that is open, or that has opened once more and may have taken the room since.
                let is_first = self.opened.insert((to, connection.to_u64()));
                self.last_opened = is_first.then_some(to);
                ReplyInfo::new(0, parameters.window)
            }
            _ => header.reply_info(),
        };
        if let Some(window) = told.window() {
            self.windows.insert((to, connection.steer()), window);
        }
    }
}
