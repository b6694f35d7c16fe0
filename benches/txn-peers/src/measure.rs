//! The load and its figures: clients that run transactions one after the other, all on one thread.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use erpc_txn::workloads::Random;
use futures_util::future::try_join_all;
use hdrhistogram::Histogram;

use crate::failure::Failure;
use crate::session::Session;
use crate::work::{Row, Work};
use crate::{RunArgs, cpu};

/// Longer latencies are counted as this one.
const LONGEST: Duration = Duration::from_secs(60);

/// What the clients did in the measured time.
struct Tally {
    attempts: Cell<u64>,
    commits: Cell<u64>,
    failed: Cell<u64>,
    /// Money that all transactions have added, measured or not.
    added: Cell<i64>,
    /// Of commits, in ns.
    latencies: RefCell<Histogram<u64>>,
    start: Cell<Option<Mark>>,
    end: Cell<Option<Mark>>,
}

/// A moment.
#[derive(Clone, Copy)]
struct Mark {
    time: Instant,
    client: Duration,
    servers: Duration,
}

impl Mark {
    fn now(args: &RunArgs) -> Self {
        Self { time: Instant::now(), client: cpu::own(), servers: cpu::of(&args.server_pids) }
    }
}

/// Loads the workload, runs it, checks the sum of all money, and returns the line of JSON.
pub(crate) async fn run<S: Session>(
    mut sessions: Vec<S>,
    work: &Work,
    args: &RunArgs,
) -> Result<String, Failure> {
    load(&mut sessions, work).await?;
    let before = total(&mut sessions, work).await?;
    let tally = Tally {
        attempts: Cell::default(),
        commits: Cell::default(),
        failed: Cell::default(),
        added: Cell::default(),
        latencies: RefCell::new(
            Histogram::new_with_max(LONGEST.as_nanos() as u64, 3).expect("the bounds are valid"),
        ),
        start: Cell::default(),
        end: Cell::default(),
    };
    let began = Instant::now();
    let clients = sessions.iter_mut().enumerate();
    try_join_all(clients.map(|(number, session)| {
        let random = Random::of_row(args.seed, number as u64);
        client(session, work, args, &tally, began, random)
    }))
    .await?;
    let after = total(&mut sessions, work).await?;
    let added = tally.added.get();
    if before + added != after {
        return Err(Failure::new(format!(
            "the money was {before}, and transactions added {added}, but it is {after}"
        )));
    }
    tally.json(work, args)
}

/// Stores the population. The clients take chunks in turn.
async fn load<S: Session>(sessions: &mut [S], work: &Work) -> Result<(), Failure> {
    let mut rows = Vec::new();
    work.rows(|table, key, value| {
        rows.push((Row { table, key }, value.to_vec()));
        Ok::<_, Failure>(())
    })?;
    rows.sort_by_key(|(row, _)| row.table);
    let tables = rows.chunk_by(|(a, _), (b, _)| a.table == b.table);
    let chunks: Vec<_> = tables.flat_map(|rows| rows.chunks(S::CHUNK)).collect();
    let next = Cell::new(0);
    try_join_all(sessions.iter_mut().map(async |session| {
        while let Some(chunk) = chunks.get(next.get()) {
            next.set(next.get() + 1);
            session.load(chunk).await?;
        }
        Ok(())
    }))
    .await
    .map(drop)
}

/// The sum of all money.
async fn total<S: Session>(sessions: &mut [S], work: &Work) -> Result<i64, Failure> {
    let accounts = work.accounts();
    let tables = accounts.chunk_by(|a, b| a.table == b.table);
    let chunks: Vec<_> = tables.flat_map(|rows| rows.chunks(S::CHUNK)).collect();
    let (next, sum) = (Cell::new(0), Cell::new(0));
    try_join_all(sessions.iter_mut().map(async |session| {
        while let Some(chunk) = chunks.get(next.get()) {
            next.set(next.get() + 1);
            for value in session.read(chunk).await? {
                let balance = value.as_deref().and_then(|value| value.try_into().ok());
                let balance = balance.ok_or_else(|| Failure::new("an account is missing"))?;
                sum.set(sum.get() + i64::from_le_bytes(balance));
            }
        }
        Ok::<_, Failure>(())
    }))
    .await?;
    Ok(sum.get())
}

/// One client.
async fn client<S: Session>(
    session: &mut S,
    work: &Work,
    args: &RunArgs,
    tally: &Tally,
    began: Instant,
    mut random: Random,
) -> Result<(), Failure> {
    let secs = Duration::from_secs_f64(args.secs);
    let (start, end) = (began + secs / 5, began + secs / 5 + secs);
    loop {
        let choice = work.choose(&mut random);
        let now = Instant::now();
        // The first client that sees the start or the end takes the marks.
        if now >= start && tally.start.get().is_none() {
            tally.start.set(Some(Mark::now(args)));
        }
        if now >= end {
            if tally.end.get().is_none() {
                tally.end.set(Some(Mark::now(args)));
            }
            return Ok(());
        }
        let ran = session.run(&choice).await?;
        tally.added.set(tally.added.get() + ran.added.unwrap_or(0));
        if tally.start.get().is_some() && tally.end.get().is_none() {
            tally.attempts.set(tally.attempts.get() + ran.attempts);
            match ran.added {
                Some(_) => {
                    tally.commits.set(tally.commits.get() + 1);
                    let took = now.elapsed().as_nanos() as u64;
                    tally.latencies.borrow_mut().saturating_record(took);
                }
                None => tally.failed.set(tally.failed.get() + 1),
            }
        }
    }
}

impl Tally {
    fn json(&self, work: &Work, args: &RunArgs) -> Result<String, Failure> {
        let (Some(start), Some(end)) = (self.start.get(), self.end.get()) else {
            return Err(Failure::new("no transaction ended in the measured time"));
        };
        let (attempts, commits) = (self.attempts.get(), self.commits.get());
        let conflicts = attempts - commits - self.failed.get();
        let secs = (end.time - start.time).as_secs_f64();
        let quantile = |q| self.latencies.borrow().value_at_quantile(q) as f64 / 1e3;
        let per_commit = |cpu: Duration| cpu.as_secs_f64() * 1e6 / commits as f64;
        let client = per_commit(end.client - start.client);
        let servers = per_commit(end.servers.saturating_sub(start.servers));
        Ok(format!(
            "{{\"store\":\"{}\",\"workload\":\"{}\",\"rows\":{},\"clients\":{},\"secs\":{secs:.3},\
             \"commits_per_s\":{:.0},\"attempts\":{attempts},\"commits\":{commits},\
             \"abort_rate\":{:.5},\"p50_us\":{:.1},\"p99_us\":{:.1},\"cpu_us_per_txn\":{:.2},\
             \"cpu_client_us_per_txn\":{client:.2},\"cpu_server_us_per_txn\":{servers:.2}}}",
            args.label,
            work.name(),
            args.work.rows,
            args.clients,
            commits as f64 / secs,
            conflicts as f64 / attempts.max(1) as f64,
            quantile(0.5),
            quantile(0.99),
            client + servers,
        ))
    }
}
