//! Control calls of a client to the server process. They use a separate session, so that they do
//! not disturb the measured sessions.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use erpc::raw::Rpc;
use erpc::{EndpointConfig, Udp};

use crate::client::socket_to;
use crate::failure::Failure;
use crate::load::Load;
use crate::machine;
use crate::methods::{Control, ServerState};
use crate::payload;

/// Makes a control call to the server at `server`, on a new endpoint.
pub(crate) fn ask(server: SocketAddr, control: Control) -> Result<ServerState, Failure> {
    let socket = Udp::bind(&socket_to(server)).map_err(Failure::of("no socket"))?;
    let mut rpc = Rpc::new(socket, EndpointConfig::new()).map_err(Failure::of("no endpoint"))?;
    let mut load = Load::new(payload::MIN_ECHO, payload::MIN_ECHO)?;
    load.connect(&mut rpc, server.into(), 1, || {})?;
    let state = load.control(&mut rpc, control)?;
    rpc.shutdown();
    Ok(state)
}

/// Upper bound of the time that a ping-pong needs to start and to stop.
const MARGIN: Duration = Duration::from_millis(50);

/// [`machine::ping_pong`] between this thread's core and the server's. `None` if they are not two
/// cores of one machine, if the server does not answer, or if the ping-pong has no result.
pub(crate) fn ping_pong(server: SocketAddr) -> Option<f64> {
    let state = ask(server, Control::State).ok()?;
    let here = rustix::thread::sched_getcpu();
    if state.boot_id != machine::boot_id() || state.core as usize == here {
        return None;
    }
    let start = Instant::now();
    let park = machine::PING_PONG_TIME + MARGIN * 2;
    ask(server, Control::Park(park)).ok()?;
    let nanos = machine::ping_pong(here, state.core as usize);
    // Waits until the server is no longer parked: a parked server does not answer the next call.
    thread::sleep((park + MARGIN).saturating_sub(start.elapsed()));
    nanos
}
