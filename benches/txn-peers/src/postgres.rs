//! PostgreSQL: serializable transactions of prepared statements. BEGIN and the reads are sent
//! together, then the writes and COMMIT: two round trips. What only reads is one round trip.

use std::collections::BTreeMap;

use futures_util::future::{join, join_all, join3};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Error, NoTls, Statement};

use crate::failure::Failure;
use crate::session::{Ran, Session};
use crate::work::{Choice, Row, Values, Work};

pub(crate) struct Connected {
    client: Client,
    tables: BTreeMap<u16, Statements>,
}

/// The statements of a table: a primary key of 64 bits, and a value of bytes.
struct Statements {
    select: Statement,
    update: Statement,
}

pub(crate) async fn sessions(
    settings: &str,
    work: &Work,
    count: u32,
) -> Result<Vec<Connected>, Failure> {
    let tables = work.tables();
    let mut sessions = Vec::new();
    for number in 0..count {
        let connected = tokio_postgres::connect(settings, NoTls).await;
        let (client, connection) = connected.map_err(Failure::of("no connection to PostgreSQL"))?;
        // The connection ends with the client, whose calls have its errors.
        tokio::spawn(async move { drop(connection.await) });
        if number == 0 {
            for id in &tables {
                let create = format!(
                    "DROP TABLE IF EXISTS t{id};
                     CREATE TABLE t{id} (key BIGINT PRIMARY KEY, value BYTEA NOT NULL)"
                );
                client.batch_execute(&create).await.map_err(failed)?;
            }
        }
        let mut statements = BTreeMap::new();
        for id in &tables {
            let select = format!("SELECT value FROM t{id} WHERE key = $1");
            let update = format!("UPDATE t{id} SET value = $2 WHERE key = $1");
            let select = client.prepare(&select).await.map_err(failed)?;
            let update = client.prepare(&update).await.map_err(failed)?;
            statements.insert(*id, Statements { select, update });
        }
        sessions.push(Connected { client, tables: statements });
    }
    Ok(sessions)
}

fn failed(error: Error) -> Failure {
    // The text of the error itself does not say what the server said.
    match error.as_db_error() {
        Some(said) => Failure::new(format!("PostgreSQL: {said}")),
        None => Failure::new(format!("PostgreSQL: {error}")),
    }
}

/// Another transaction was in the way.
fn is_conflict(error: &Error) -> bool {
    [SqlState::T_R_SERIALIZATION_FAILURE, SqlState::T_R_DEADLOCK_DETECTED]
        .iter()
        .any(|state| error.code() == Some(state))
}

/// Keys are numbers without a sign, and PostgreSQL has only numbers with one.
fn key(row: Row) -> i64 {
    row.key.cast_signed()
}

impl Connected {
    async fn select(&self, row: Row) -> Result<Option<Vec<u8>>, Error> {
        let found = self.client.query_opt(&self.tables[&row.table].select, &[&key(row)]).await?;
        Ok(found.map(|row| row.get(0)))
    }

    /// `begin`, then the reads, sent together.
    async fn begin(&self, begin: &str, rows: &[Row]) -> Result<Values, Error> {
        let reads = join_all(rows.iter().map(|row| self.select(*row)));
        let (begun, values) = join(self.client.batch_execute(begin), reads).await;
        begun?;
        values.into_iter().collect()
    }

    /// One attempt; its result, unless another transaction is in the way.
    async fn attempt(&self, choice: &Choice, rows: &[Row]) -> Result<Option<i64>, Error> {
        if let (true, [row]) = (choice.only_reads(), rows) {
            // A statement alone is a transaction.
            let values = [self.select(*row).await?];
            return Ok(choice.changes(&values).map(|changes| changes.added));
        }
        if choice.only_reads() {
            let begin = self.client.batch_execute("BEGIN READ ONLY");
            let reads = join_all(rows.iter().map(|row| self.select(*row)));
            let commit = self.client.batch_execute("COMMIT");
            let (begun, values, ended) = join3(begin, reads, commit).await;
            begun?;
            let values: Values = values.into_iter().collect::<Result<_, _>>()?;
            ended?;
            return Ok(choice.changes(&values).map(|changes| changes.added));
        }
        let values = match self.begin("BEGIN", rows).await {
            Ok(values) => values,
            Err(error) => {
                self.client.batch_execute("ROLLBACK").await?;
                return Err(error);
            }
        };
        let Some(mut changes) = choice.changes(&values) else {
            self.client.batch_execute("ROLLBACK").await?;
            return Ok(None);
        };
        // All lock rows in the same order, so that there is no deadlock.
        changes.writes.sort_unstable();
        let writes = changes.writes.iter().map(|(row, balance)| async {
            let value = balance.to_le_bytes();
            let update = &self.tables[&row.table].update;
            self.client.execute(update, &[&key(*row), &value.as_slice()]).await
        });
        // After an error, COMMIT rolls back.
        let (written, ended) = join(join_all(writes), self.client.batch_execute("COMMIT")).await;
        written.into_iter().collect::<Result<Vec<_>, _>>()?;
        ended?;
        Ok(Some(changes.added))
    }
}

impl Session for Connected {
    const CHUNK: usize = 1000;

    async fn load(&mut self, rows: &[(Row, Vec<u8>)]) -> Result<(), Failure> {
        let Some((first, _)) = rows.first() else { return Ok(()) };
        let insert =
            format!("INSERT INTO t{} SELECT * FROM unnest($1::BIGINT[], $2::BYTEA[])", first.table);
        let keys: Vec<i64> = rows.iter().map(|(row, _)| key(*row)).collect();
        let values: Vec<&[u8]> = rows.iter().map(|(_, value)| value.as_slice()).collect();
        self.client.execute(&insert, &[&keys, &values]).await.map(drop).map_err(failed)
    }

    async fn read(&mut self, rows: &[Row]) -> Result<Values, Failure> {
        let values = join_all(rows.iter().map(|row| self.select(*row))).await;
        values.into_iter().collect::<Result<_, _>>().map_err(failed)
    }

    async fn run(&mut self, choice: &Choice) -> Result<Ran, Failure> {
        let rows = choice.reads();
        let mut attempts = 0;
        loop {
            attempts += 1;
            match self.attempt(choice, &rows).await {
                Ok(added) => return Ok(Ran { attempts, added }),
                Err(error) if is_conflict(&error) => {}
                Err(error) => return Err(failed(error)),
            }
        }
    }
}
