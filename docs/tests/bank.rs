//! The bank of chapter 11, with three members and a program outside of the cluster.

use std::collections::BTreeMap;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use erpc::{Channel, Endpoint, Handle, Nexus, UdpConfig, join_all};
use erpc_guide::bank::{self, ACCOUNTS, Refused, Transfer, member};
use erpc_txn::cluster::{NodeId, Placement, Ring};
use erpc_txn::{Cluster, Limits, Reason, TransactError};

type Outcome = Result<(), Box<dyn Error>>;

/// Upper limit for a test. Long enough for a machine that stalls for a while.
const TEST_LIMIT: Duration = Duration::from_secs(20);

/// Three members, each on a thread.
struct Bank {
    members: Vec<Running>,
    addresses: Vec<SocketAddr>,
}

struct Running {
    stop: Arc<AtomicBool>,
    handle: Handle,
    thread: JoinHandle<()>,
}

impl Bank {
    fn start() -> Result<Self, Box<dyn Error>> {
        let bind = |_| Nexus::bind("127.0.0.1:0".parse().expect("an address"), 1, UdpConfig::new());
        let nexuses = (0..3).map(bind).collect::<Result<Vec<_>, _>>()?;
        let addresses: Vec<_> = nexuses.iter().map(Nexus::local_addr).collect();
        let by_node: BTreeMap<_, _> = (0..).map(NodeId).zip(addresses.iter().copied()).collect();
        let ready = Arc::new(AtomicUsize::new(0));
        let mut members = Vec::new();
        for (nexus, me) in nexuses.into_iter().zip((0..).map(NodeId)) {
            let seat = nexus.into_seats().pop().expect("one seat");
            let stop = Arc::new(AtomicBool::new(false));
            let (by_node, ready, until) = (by_node.clone(), ready.clone(), stop.clone());
            let (give, take) = std::sync::mpsc::channel();
            let thread = thread::spawn(move || {
                let (endpoint, node) = member::open(me, 1, &by_node, seat).expect("it opens");
                give.send(endpoint.handle()).expect("the test waits");
                endpoint.block_on(node.ready()).expect("they belong together");
                ready.fetch_add(1, Ordering::Release);
                endpoint.run_until(|| until.load(Ordering::Acquire));
            });
            let handle = take.recv()?;
            members.push(Running { stop, handle, thread });
        }
        let limit = Instant::now() + TEST_LIMIT;
        while ready.load(Ordering::Acquire) < 3 {
            assert!(Instant::now() < limit, "the members do not meet");
            thread::sleep(Duration::from_millis(1));
        }
        Ok(Self { members, addresses })
    }

    /// Ends a member, which tells nobody.
    fn kill(&mut self, at: usize) {
        self.members.remove(at).end();
    }
}

impl Running {
    fn end(self) {
        self.stop.store(true, Ordering::Release);
        self.handle.wake();
        self.thread.join().expect("no panic");
    }
}

impl Drop for Bank {
    fn drop(&mut self) {
        self.members.drain(..).for_each(Running::end);
    }
}

fn connect(addresses: &[SocketAddr]) -> Result<(Endpoint, Cluster), Box<dyn Error>> {
    let endpoint = Endpoint::udp()?;
    let channel = Channel::connect(&endpoint, addresses)?;
    let cluster = endpoint.block_on(Cluster::connect(channel))?;
    Ok((endpoint, cluster))
}

#[test]
fn the_bank_moves_money_once_and_loses_none() -> Outcome {
    let running = Bank::start()?;
    let (endpoint, cluster) = connect(&running.addresses)?;
    let bank = &cluster;
    endpoint.block_on(async {
        for account in 0..10 {
            bank::open(bank, account, 10_000).await?;
        }
        let again = bank::open(bank, 3, 10_000).await;
        assert!(matches!(again, Err(TransactError::Aborted(Reason::Present(_)))), "{again:?}");

        let rent = Transfer { id: 77, from: 1, to: 2, cents: 9_000 };
        bank::transfer(bank, &rent).await?;
        // The client did not get the answer, and asks again.
        bank::transfer(bank, &rent).await?;
        assert_eq!(bank.transact(async |tx| tx.read(ACCOUNTS, 1).await).await?, Some(1_000));

        let more = Transfer { id: 78, ..rent };
        let refused = bank::transfer(bank, &more).await.expect_err("too little money");
        assert_eq!(bank::refusal(&refused), Some(Refused::TooLittle(1_000)));
        for (wrong, why) in [
            (Transfer { id: 79, to: 99, ..rent }, Refused::NoAccount(99)),
            (Transfer { id: 80, to: 1, ..rent }, Refused::SameAccount),
        ] {
            let refused = bank::transfer(bank, &wrong).await.expect_err("it is wrong");
            assert_eq!(bank::refusal(&refused), Some(why));
        }

        assert!(bank::settle(bank, 77).await?);
        assert!(!bank::settle(bank, 81).await?);
        let late = Transfer { id: 81, from: 2, to: 1, cents: 1 };
        let refused = bank::transfer(bank, &late).await.expect_err("it is cancelled");
        assert_eq!(bank::refusal(&refused), Some(Refused::Cancelled));

        assert_eq!(bank::audit(bank, 0..10).await?, 100_000);
        Ok::<(), TransactError>(())
    })?;
    Ok(())
}

#[test]
fn clients_and_audits_at_once_see_no_money_appear_or_vanish() -> Outcome {
    let running = Bank::start()?;
    let (endpoint, cluster) = connect(&running.addresses)?;
    let bank = &cluster;
    endpoint.block_on(async {
        for account in 0..4 {
            bank::open(bank, account, 1_000).await?;
        }
        // Each client moves a cent around, so all are in each other's way.
        let clients = (0..8).map(|client| {
            Box::pin(async move {
                for number in 0..20 {
                    let from = (client + number) % 4;
                    let id = client * 100 + number;
                    let transfer = Transfer { id, from, to: (from + 1) % 4, cents: 1 };
                    while let Err(error) = bank::transfer(bank, &transfer).await {
                        let is_in_the_way = matches!(
                            error,
                            TransactError::Aborted(
                                Reason::Conflict(_) | Reason::Changed(_) | Reason::Deadline
                            )
                        );
                        assert!(is_in_the_way, "{error}");
                    }
                }
                bank::audit(bank, 0..4).await
            })
        });
        for sum in join_all(clients).await {
            assert_eq!(sum?, 4_000);
        }
        Ok::<(), TransactError>(())
    })?;
    Ok(())
}

#[test]
fn a_member_that_is_dead_is_named() -> Outcome {
    let mut running = Bank::start()?;
    let (endpoint, cluster) = connect(&running.addresses[..1])?;
    let bank = &cluster;
    let ring = Ring::new(1, (0..3).map(NodeId), 2)?;
    let primary = |account: &u64| ring.replicas(ring.partition_of(*account))[0];
    let at =
        |node| (0..).find(|account| primary(account) == NodeId(node)).expect("it has accounts");
    let (here, there) = (at(0), at(2));
    endpoint.block_on(async {
        bank::open(bank, here, 10_000).await?;
        bank::open(bank, there, 10_000).await
    })?;
    running.kill(2);
    let limits = Limits::new().deadline(TEST_LIMIT);
    endpoint.block_on(async {
        let read = bank.transact_within(limits, async |tx| tx.read(ACCOUNTS, there).await).await;
        let read = read.expect_err("its primary is dead");
        assert!(matches!(read, TransactError::Aborted(Reason::Unavailable(NodeId(2)))), "{read}");
        let transfer = Transfer { id: 1, from: here, to: there, cents: 1 };
        let made = bank::transfer(bank, &transfer).await.expect_err("a replica is dead");
        assert!(matches!(made, TransactError::Aborted(_)), "{made}");
        // What has its primary elsewhere can be read.
        let read = bank.transact(async |tx| tx.read(ACCOUNTS, here).await).await?;
        assert_eq!(read, Some(10_000));
        Ok::<(), TransactError>(())
    })?;
    Ok(())
}

#[test]
fn chapter_11_shows_the_file_of_the_cluster() {
    let chapter = include_str!("../11-transactions.md");
    let file = include_str!("../bank.toml");
    assert!(chapter.contains(&format!("```toml\n{file}```\n")), "it shows another bank.toml");
}
