//! What the transactions do.

use super::{
    ACCESS_INFO, CALL_FORWARDING, CallForwarding, Choice, SEC_SUBSCRIBER, SPECIAL_FACILITY,
    SUBSCRIBER, Start, SubNbr, Typed,
};
use crate::transaction::{Abort, Backend, Transaction};
use crate::workloads::Failed;

impl Start {
    /// The facility.
    pub(super) fn facility(self) -> Typed {
        Typed { s_id: self.s_id, of: self.sf_type }
    }

    /// The facility's forwardings that begin up to this hour.
    pub(super) fn until(self) -> impl Iterator<Item = Self> {
        (0..=self.start_time).step_by(8).map(move |start_time| Self { start_time, ..self })
    }
}

pub(super) async fn run<B: Backend>(tx: &Transaction<B>, choice: &Choice) -> Result<i64, Abort> {
    match *choice {
        Choice::GetSubscriberData { s_id } => {
            tx.read(SUBSCRIBER, s_id).await?.ok_or(Failed)?;
        }
        Choice::GetAccessData { key } => {
            tx.read(ACCESS_INFO, key).await?.ok_or(Failed)?;
        }
        Choice::GetNewDestination { key, end_time } => {
            new_destination(tx, key, end_time).await?;
        }
        Choice::UpdateSubscriberData { key, bits, data_a } => {
            let mut batch = tx.batch();
            let subscriber = batch.read_for_update(SUBSCRIBER, key.s_id);
            let facility = batch.read_for_update(SPECIAL_FACILITY, key);
            let mut results = batch.send().await?;
            let mut subscriber = results.take(subscriber)?.ok_or(Failed)?;
            let mut facility = results.take(facility)?.ok_or(Failed)?;
            subscriber.bits = bits.into();
            facility.data_a = data_a;
            tx.write(SUBSCRIBER, key.s_id, &subscriber)?;
            tx.write(SPECIAL_FACILITY, key, &facility)?;
        }
        Choice::UpdateLocation { s_id, vlr_location } => {
            let s_id = subscriber_of(tx, s_id).await?;
            let mut subscriber = tx.read_for_update(SUBSCRIBER, s_id).await?.ok_or(Failed)?;
            subscriber.vlr_location = vlr_location.into();
            tx.write(SUBSCRIBER, s_id, &subscriber)?;
        }
        Choice::InsertCallForwarding { key, row } => insert(tx, key, row).await?,
        Choice::DeleteCallForwarding { key } => {
            let key = Start { s_id: subscriber_of(tx, key.s_id).await?, ..key };
            tx.read_for_update(CALL_FORWARDING, key).await?.ok_or(Failed)?;
            tx.delete(CALL_FORWARDING, key)?;
        }
    }
    Ok(0)
}

/// Looks for a forwarding that lasts longer than `end_time`.
async fn new_destination<B: Backend>(
    tx: &Transaction<B>,
    key: Start,
    end_time: u8,
) -> Result<(), Abort> {
    let facility = tx.read(SPECIAL_FACILITY, key.facility()).await?.ok_or(Failed)?;
    if facility.is_active == 0 {
        return Err(Failed.into());
    }
    let rows = tx.read_all(CALL_FORWARDING, key.until()).await?;
    let found = rows.iter().flatten().any(|row| end_time < row.end_time);
    if found { Ok(()) } else { Err(Failed.into()) }
}

async fn insert<B: Backend>(
    tx: &Transaction<B>,
    key: Start,
    row: CallForwarding,
) -> Result<(), Abort> {
    let key = Start { s_id: subscriber_of(tx, key.s_id).await?, ..key };
    tx.read(SPECIAL_FACILITY, key.facility()).await?.ok_or(Failed)?;
    tx.insert(CALL_FORWARDING, key, &row).await
}

/// The subscriber with the telephone number of `s_id`.
async fn subscriber_of<B: Backend>(tx: &Transaction<B>, s_id: u32) -> Result<u32, Abort> {
    let row = tx.read(SEC_SUBSCRIBER, SubNbr::of(s_id)).await?.ok_or(Failed)?;
    Ok(row.s_id.get())
}
