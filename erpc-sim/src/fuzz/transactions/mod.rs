//! Fuzz targets of the transaction store: records of its log, and requests to a participant.

mod requests;
mod seeds;

use erpc_txn::log::{Appended, DecodeError, Log, LogError, Record};

pub use requests::txn_requests;
pub(super) use seeds::seeds;

/// In the first byte of `txn_record`: whether the target makes the record's length and checksum
/// correct. Otherwise few changed records would be decoded.
const REPAIRED: u8 = 1;

/// Fuzzes the decoder of log records. `data` is a byte of options and a record.
///
/// # Panics
/// Panics if a decoded record does not encode to the same bytes, or a log does not give it back.
pub fn txn_record(data: &[u8]) {
    let Some((&options, data)) = data.split_first() else { return };
    let mut bytes = data.to_vec();
    if options & REPAIRED != 0 {
        repair(&mut bytes);
    }
    let (record, len) = match Record::decode(&bytes) {
        Ok(decoded) => decoded,
        Err(DecodeError::Incomplete(needed)) => return assert!(needed > bytes.len()),
        Err(_) => return,
    };
    let whole = &bytes[..len];
    let encoded = reencoded(&record);
    assert_eq!(encoded, whole);
    for shorter in [0, len / 2, len - 1] {
        let refused = Record::decode(&bytes[..shorter]).expect_err("a part of a record");
        assert!(matches!(refused, DecodeError::Incomplete(needed) if needed > shorter));
    }

    // Room for one and a half.
    let mut log = Log::new(len + len / 2, 2);
    for expected in [Appended::Now, Appended::Before] {
        assert_eq!(log.append(7, whole), Ok(expected));
    }
    assert_eq!(log.append(7, &whole[1..]), Err(LogError::Different));
    assert_eq!(log.append(8, whole), Err(LogError::Full));
    assert_eq!(log.record(7), Some(whole));
    let decoded: Vec<_> =
        log.records().map(|record| record.map(|record| reencoded(&record))).collect();
    assert_eq!(decoded, [Ok(encoded)]);
    assert!(log.free(7) && !log.free(7));
    assert_eq!((log.len(), log.bytes()), (0, 0));
    assert_eq!(log.append(8, whole), Ok(Appended::Now));
    log.raise_floor(9);
    assert_eq!(log.append(8, whole), Ok(Appended::Before), "it has ended");
    assert_eq!((log.len(), log.bytes()), (0, 0));
}

fn reencoded(record: &Record<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    record.encode(&mut bytes).expect("what was decoded is consistent");
    bytes
}

/// Makes the magic number, the length and the checksum of a record correct.
fn repair(record: &mut [u8]) {
    let len = record.len() as u32;
    if record.len() >= 12 {
        record[..4].copy_from_slice(b"eTXl");
        record[8..12].copy_from_slice(&len.to_le_bytes());
        let checksum = crc32c::crc32c(&record[8..]);
        record[4..8].copy_from_slice(&checksum.to_le_bytes());
    }
}
