//! The servers: one per partition.

use std::error::Error;
use std::net::{SocketAddr, ToSocketAddrs};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use erpc::{Server, ServerHandle, shutdown_signal};

use super::{ServerArgs, endpoint_config, memory};
use crate::cache::{Config, Partition};
use crate::sequencer::Sequencer;
use crate::service::{Numbers, Partitioned};

/// The time for calls in flight when the program ends.
const DRAIN: Duration = Duration::from_secs(2);

/// The servers of all partitions, by number. The sequencer is at each of them.
pub(super) struct Servers(Vec<ServerHandle>);

impl Servers {
    /// Starts the servers, on consecutive ports from `listen`; with port 0 on any ports.
    pub(super) fn start(listen: &str, args: &ServerArgs) -> Result<Self, Box<dyn Error>> {
        let first = listen.to_socket_addrs()?.next();
        let first = first.ok_or_else(|| format!("{listen} has no address"))?;
        let partitions = args.partitions.get();
        let config = Config::new((args.log_mib.get() as usize) << 20);
        memory::check(config.memory().saturating_mul(partitions.into()))?;
        let block = NonZeroU64::new(args.block).ok_or("a block has no numbers")?;
        let open = |file| Sequencer::with_block(file, block);
        let sequencer = args.sequencer.as_deref().map(open).transpose()?;
        let sequencer = sequencer.map(|sequencer| Arc::new(Numbers(Arc::new(sequencer))));
        let mut servers = Vec::new();
        for number in 0..partitions {
            let port = match first.port() {
                0 => 0,
                port => port.checked_add(number).ok_or("the ports end at 65535")?,
            };
            let partition = Partitioned::new(Partition::new(config)?, number, partitions);
            let mut server = Server::builder().config(endpoint_config()).add_service(partition);
            if let Some(sequencer) = &sequencer {
                server = server.add_shared(Arc::clone(sequencer));
            }
            servers.push(server.spawn(SocketAddr::from((first.ip(), port)))?);
        }
        Ok(Self(servers))
    }

    /// The addresses of all partitions.
    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        self.0.iter().map(ServerHandle::local_addr).collect()
    }

    /// Serves until SIGINT or SIGTERM.
    pub(super) fn wait(self) -> Result<(), Box<dyn Error>> {
        let signal = shutdown_signal()?;
        let mut servers = self.0.into_iter();
        let first = servers.next().ok_or("there is no partition")?;
        first.wait_with_shutdown(signal, DRAIN)?;
        for server in servers {
            server.drain(DRAIN);
        }
        Ok(())
    }

    pub(super) fn stop(self) {
        self.0.into_iter().for_each(ServerHandle::shutdown);
    }
}
