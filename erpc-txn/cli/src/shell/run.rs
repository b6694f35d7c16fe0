//! What commands do.

use std::cell::Cell;
use std::fmt::Display;
use std::time::Duration;

use erpc_txn::client::{Cluster, Transaction};
use erpc_txn::codec::TypedTable;
use erpc_txn::transaction::{Abort, Limits};

use super::command::{Access, Command, HELP, Names, What, show};
use super::input::{Line, Lines};
use crate::failure::Failure;
use crate::output;
use crate::status::layout;

/// How long a transaction may take, with the time for typing.
const TYPING: Duration = Duration::from_secs(60);

/// Runs commands until the input ends.
pub(super) async fn run(
    cluster: &Cluster,
    names: &Names,
    lines: Lines,
    is_terminal: bool,
) -> Result<(), Failure> {
    loop {
        let line = match lines.next("> ").await? {
            Line::Text(line) => line,
            Line::Interrupt => continue,
            Line::End => return Ok(()),
        };
        let done = match names.parse(&line) {
            Ok(None) => continue,
            Ok(Some(Command::Quit)) => return Ok(()),
            Ok(Some(Command::Access(access))) => alone(cluster, &access).await,
            Ok(Some(Command::Begin)) => transaction(cluster, names, &lines, is_terminal).await,
            Ok(Some(Command::Commit | Command::Abort)) => Err("no transaction has begun".into()),
            Ok(Some(Command::Status)) => status(cluster).await,
            Ok(Some(Command::Tables)) => Ok(names.to_string()),
            Ok(Some(Command::Help)) => Ok(HELP.to_owned()),
            Err(mistake) => Err(mistake),
        };
        match done {
            Ok(text) => output::line(text)?,
            Err(why) if is_terminal => output::line(why)?,
            Err(why) => return Err(Failure::new(why)),
        }
    }
}

/// Makes an access in a transaction of its own.
async fn alone(cluster: &Cluster, access: &Access) -> Result<String, String> {
    let text = cluster.transact(async |tx| make(&tx, access).await).await;
    text.map_err(|error| error.to_string())
}

/// Makes an access, and says what it found or did.
async fn make(tx: &Transaction, access: &Access) -> Result<String, Abort> {
    let (table, key) = (TypedTable::<u64, Vec<u8>>::new(access.table), access.key);
    match &access.what {
        What::Get => {
            let value = tx.read(table, key).await?;
            Ok(value.map_or("absent".into(), |value| show(&value)))
        }
        What::Put(value) => match tx.read_for_update(table, key).await? {
            Some(_) => tx.write(table, key, value).map(|()| "replaced".into()),
            None => tx.insert(table, key, value).await.map(|()| "inserted".into()),
        },
        What::Delete => match tx.read_for_update(table, key).await? {
            Some(_) => tx.delete(table, key).map(|()| "deleted".into()),
            None => Ok("absent".into()),
        },
    }
}

/// A transaction of several lines.
async fn transaction(
    cluster: &Cluster,
    names: &Names,
    lines: &Lines,
    is_terminal: bool,
) -> Result<String, String> {
    // Another attempt would need the same lines again.
    let limits = Limits::new().attempts(1).deadline(TYPING);
    let gives_up = Cell::new(false);
    let done = cluster
        .transact_within(limits, async |tx| {
            loop {
                let line = match lines.next("txn> ").await {
                    Ok(Line::Text(line)) => line,
                    Ok(Line::Interrupt | Line::End) => "abort".to_owned(),
                    Err(failure) => return Err(tx.abort(failure.to_string())),
                };
                let mistake = match names.parse(&line) {
                    Ok(None) => continue,
                    Ok(Some(Command::Commit)) => return Ok(()),
                    Ok(Some(Command::Abort | Command::Quit)) => {
                        gives_up.set(true);
                        return Err(tx.abort("aborted"));
                    }
                    Ok(Some(Command::Access(access))) => {
                        say(&tx, make(&tx, &access).await?)?;
                        continue;
                    }
                    Ok(Some(Command::Help)) => {
                        say(&tx, HELP)?;
                        continue;
                    }
                    Ok(Some(_)) => "not within a transaction; commit or abort it first".to_owned(),
                    Err(mistake) => mistake,
                };
                if !is_terminal {
                    return Err(tx.abort(mistake));
                }
                say(&tx, mistake)?;
            }
        })
        .await;
    match done {
        Ok(()) => Ok("committed".into()),
        Err(_) if gives_up.get() => Ok("aborted".into()),
        Err(error) => Err(error.to_string()),
    }
}

/// Prints within a transaction, which ends if nobody reads.
fn say(tx: &Transaction, text: impl Display) -> Result<(), Abort> {
    output::line(text).map_err(|failure| tx.abort(failure.to_string()))
}

async fn status(cluster: &Cluster) -> Result<String, String> {
    let of = cluster.describe().await.map_err(|error| error.to_string())?;
    let node = of.member.map_or(0, |member| member.node);
    let mut text = format!(
        "{}\nnode {node} answers: {} attempts, {} commits, {} running, of one of its threads",
        layout(&of),
        of.attempts,
        of.commits,
        of.running
    );
    if !of.unreachable.is_empty() {
        let nodes: Vec<_> = of.unreachable.iter().map(ToString::to_string).collect();
        text += &format!("\nit cannot reach nodes {}", nodes.join(", "));
    }
    Ok(text)
}
