//! The server process.

use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};

use clap::Args;

use super::bulk::{self, UdpSink};
use super::link::{Joined, Many, Single, SingleSender, StreamReceiver, StreamSender};
use super::watch::Alive;
use super::{Mode, echo, prepare_tcp, prepare_udp};
use crate::failure::Failure;
use crate::machine;

#[derive(Args)]
pub(crate) struct ServerArgs {
    #[arg(long, value_enum)]
    mode: Mode,
    #[arg(long)]
    core: usize,
    #[arg(long)]
    req: usize,
    #[arg(long)]
    resp: usize,
    #[arg(long)]
    bulk: bool,
    #[arg(long)]
    segments: u32,
    #[arg(long)]
    block: bool,
    #[arg(long)]
    yields: bool,
}

fn ready(address: SocketAddr) {
    println!("READY {address}");
}

/// Serves one client until it has ended.
pub(crate) fn serve(args: &ServerArgs) -> Result<(), Failure> {
    machine::pin(args.core)?;
    let mut alive = Alive::new(args.block);
    if args.mode == Mode::Tcp { serve_tcp(args, &mut alive) } else { serve_udp(args, &mut alive) }
        .map_err(Failure::of("the raw server failed"))
}

fn serve_udp(args: &ServerArgs, alive: &mut Alive) -> io::Result<()> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    prepare_udp(&socket, args.block)?;
    if args.bulk {
        bulk::prepare(&socket, args.mode)?;
        ready(socket.local_addr()?);
        return UdpSink::new(&socket, args.mode, args.req).serve(alive);
    }
    match args.mode {
        Mode::Mmsg => {
            ready(socket.local_addr()?);
            let (mut rx, mut tx) =
                (Many::new(&socket, args.req, false), Many::new(&socket, args.resp, false));
            echo::serve(&mut rx, &mut tx, alive, args.yields)
        }
        Mode::Gso => {
            let mut rx = Joined::receiver(&socket, args.req, false)?;
            let mut tx = Joined::sender(&socket, args.resp, args.segments, false)?;
            ready(socket.local_addr()?);
            echo::serve(&mut rx, &mut tx, alive, args.yields)
        }
        Mode::Single | Mode::Tcp => {
            ready(socket.local_addr()?);
            let (mut rx, mut tx) = (Single::new(&socket), SingleSender(&socket));
            echo::serve(&mut rx, &mut tx, alive, args.yields)
        }
    }
}

fn serve_tcp(args: &ServerArgs, alive: &mut Alive) -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    ready(listener.local_addr()?);
    let (stream, _) = listener.accept()?;
    prepare_tcp(&stream, args.block)?;
    if args.bulk {
        return bulk::serve_stream(&stream, alive);
    }
    let (mut rx, mut tx) = (StreamReceiver::new(&stream, args.req), StreamSender::new(&stream));
    echo::serve(&mut rx, &mut tx, alive, args.yields)
}
