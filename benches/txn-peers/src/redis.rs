//! Redis: WATCH and a read, then MULTI, the writes and EXEC: two round trips. What only reads is one
//! MGET, which is atomic.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Pipeline, RedisError, Value};

use crate::failure::Failure;
use crate::session::{Ran, Session};
use crate::work::{Choice, Row, Values};

pub(crate) struct Connected(MultiplexedConnection);

pub(crate) async fn sessions(url: &str, count: u32) -> Result<Vec<Connected>, Failure> {
    let client = Client::open(url).map_err(Failure::of("no address of Redis"))?;
    // Longer than any answer takes.
    let config = AsyncConnectionConfig::new().set_response_timeout(Some(Duration::from_secs(60)));
    let mut sessions = Vec::new();
    for _ in 0..count {
        let connection = client.get_multiplexed_async_connection_with_config(&config).await;
        sessions.push(Connected(connection.map_err(Failure::of("no connection to Redis"))?));
    }
    redis::cmd("FLUSHALL").exec_async(&mut sessions[0].0).await.map_err(failed)?;
    Ok(sessions)
}

fn failed(error: RedisError) -> Failure {
    Failure::new(format!("Redis: {error}"))
}

/// Ten bytes.
fn key(row: Row) -> Vec<u8> {
    let mut key = row.table.to_be_bytes().to_vec();
    key.extend_from_slice(&row.key.to_be_bytes());
    key
}

fn add_command(pipe: &mut Pipeline, name: &str, keys: &[Vec<u8>]) {
    pipe.cmd(name);
    for key in keys {
        pipe.arg(key);
    }
}

impl Connected {
    async fn get(&mut self, keys: &[Vec<u8>]) -> Result<Values, Failure> {
        redis::cmd("MGET").arg(keys).query_async(&mut self.0).await.map_err(failed)
    }

    /// One attempt of a transaction that writes; none if another client was faster.
    async fn attempt(
        &mut self,
        choice: &Choice,
        keys: &[Vec<u8>],
    ) -> Result<Option<Option<i64>>, Failure> {
        let mut pipe = redis::pipe();
        add_command(&mut pipe, "WATCH", keys);
        pipe.ignore();
        add_command(&mut pipe, "MGET", keys);
        let (values,): (Values,) = pipe.query_async(&mut self.0).await.map_err(failed)?;
        let Some(changes) = choice.changes(&values) else {
            redis::cmd("UNWATCH").exec_async(&mut self.0).await.map_err(failed)?;
            return Ok(Some(None));
        };
        let mut pipe = redis::pipe();
        pipe.cmd("MULTI").ignore();
        for (row, balance) in &changes.writes {
            pipe.cmd("SET").arg(key(*row)).arg(&balance.to_le_bytes()).ignore();
        }
        pipe.cmd("EXEC");
        let (executed,): (Value,) = pipe.query_async(&mut self.0).await.map_err(failed)?;
        Ok(match executed {
            Value::Nil => None,
            _ => Some(Some(changes.added)),
        })
    }
}

impl Session for Connected {
    const CHUNK: usize = 1000;

    async fn load(&mut self, rows: &[(Row, Vec<u8>)]) -> Result<(), Failure> {
        let mut command = redis::cmd("MSET");
        for (row, value) in rows {
            command.arg(key(*row)).arg(value);
        }
        command.exec_async(&mut self.0).await.map_err(failed)
    }

    async fn read(&mut self, rows: &[Row]) -> Result<Values, Failure> {
        let keys: Vec<_> = rows.iter().copied().map(key).collect();
        self.get(&keys).await
    }

    async fn run(&mut self, choice: &Choice) -> Result<Ran, Failure> {
        let keys: Vec<_> = choice.reads().into_iter().map(key).collect();
        if choice.only_reads() {
            let values = self.get(&keys).await?;
            let added = choice.changes(&values).map(|changes| changes.added);
            return Ok(Ran { attempts: 1, added });
        }
        let mut attempts = 0;
        loop {
            attempts += 1;
            if let Some(added) = self.attempt(choice, &keys).await? {
                return Ok(Ran { attempts, added });
            }
        }
    }
}
