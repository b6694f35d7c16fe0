//! The windows that a server has told its clients.

use std::collections::{BTreeMap, BTreeSet};

use erpc_core::wire::control::Control;
use erpc_core::wire::{Header, ReplyInfo};

use crate::SimRoute;
use crate::hostile::craft;

/// The last window that a server endpoint has told each client, by address and steer byte.
#[derive(Default)]
pub(crate) struct ToldWindows {
    pub(crate) windows: BTreeMap<(SimRoute, u8), u32>,
    /// Sessions that were ever opened, by the client's address and the client's id of the session.
    opened: BTreeSet<(SimRoute, u64)>,
    /// The client of the last `Opened`. `None` if that `Opened` was a repetition.
    pub(crate) last_opened: Option<SimRoute>,
}

impl ToldWindows {
    /// Records a packet that the server sends.
    pub(crate) fn record(&mut self, to: SimRoute, header: &Header, bytes: &[u8]) {
        let connection = header.connection;
        if connection.is_server_role() || connection.is_endpoint() {
            return;
        }
        let told = match craft::read_control(bytes) {
            Some((_, Control::Opened { parameters, .. })) => {
                // A repeated `Opened` does not count, because it gives the client no further
                // session.
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
