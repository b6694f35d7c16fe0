//! Numbers that are given once, also if the process is killed and starts again.
//!
//! A file holds a number above all that may have been given. A thread of its own moves it ahead, a
//! block at a time, before the numbers below it are given. So a caller waits for no disk. A sequencer
//! that starts again goes on at the number in the file: after a crash, a part of a block is skipped.

use std::error::Error;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write};
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle, Thread};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};

/// Numbers that are reserved at once: three seconds at five million per second.
pub const BLOCK: NonZeroU64 = NonZeroU64::new(1 << 24).expect("it is not 0");

/// The first bytes of the file.
const MAGIC: [u8; 8] = *b"erpcseq1";

/// The whole file: the magic, the number, and a checksum of both.
const LEN: usize = 20;

/// After a failed write, the next attempt comes after this time.
const PAUSE: Duration = Duration::from_millis(100);

/// A sequencer.
#[derive(Debug)]
pub struct Sequencer {
    shared: Arc<Shared>,
    keeper: Option<JoinHandle<()>>,
    wake: Thread,
}

#[derive(Debug)]
struct Shared {
    /// The next number.
    next: AtomicU64,
    /// All numbers below may be given.
    reserved: AtomicU64,
    block: u64,
    /// The next block is reserved when fewer numbers are left: half a block, rounded up.
    few: u64,
    /// The thread that writes the file was woken.
    is_woken: AtomicBool,
    is_over: AtomicBool,
    /// Why the last write failed.
    failure: Mutex<Option<String>>,
}

/// A sequencer cannot start.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process uses the file.
    InUse(PathBuf),
    /// The content is not that of a sequencer's file.
    Damaged(PathBuf),
    /// The file cannot be read or written.
    Io(PathBuf, io::Error),
}

/// There is no number now. Ask again later.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TakeError {
    /// The file is being written.
    Waiting,
    /// The file could not be written. The sequencer tries again.
    Disk(String),
    /// All 2^64 numbers were given, or more than half a block is wanted.
    TooMany,
}

impl Sequencer {
    /// A sequencer with this file, which need not exist. Reserves [`BLOCK`] numbers at once.
    ///
    /// # Errors
    ///
    /// [`OpenError`] if another process uses the file, or it is damaged, or cannot be written.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        Self::with_block(path, BLOCK)
    }

    /// As [`open`](Self::open), but reserves `block` numbers at once.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn with_block(path: &Path, block: NonZeroU64) -> Result<Self, OpenError> {
        let file = Reservation::open(path)?;
        let first = file.read()?;
        let block = block.get();
        let reserved = first.saturating_add(block);
        file.write(reserved).map_err(|error| OpenError::Io(path.into(), error))?;
        let shared = Arc::new(Shared {
            next: AtomicU64::new(first),
            reserved: AtomicU64::new(reserved),
            block,
            few: block.div_ceil(2),
            is_woken: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            failure: Mutex::default(),
        });
        let of_keeper = Arc::clone(&shared);
        let keeper = thread::Builder::new().name("sequencer".into());
        let keeper = keeper.spawn(move || of_keeper.keep(&file));
        let keeper = keeper.map_err(|error| OpenError::Io(path.into(), error))?;
        Ok(Self { shared, wake: keeper.thread().clone(), keeper: Some(keeper) })
    }

    /// Takes `count` numbers, at most half a block, and returns the first.
    ///
    /// # Errors
    ///
    /// [`TakeError`] if they are not reserved yet. None is taken then.
    #[inline]
    pub fn take(&self, count: u64) -> Result<u64, TakeError> {
        let shared = &*self.shared;
        let reserved = shared.reserved.load(Acquire);
        let end = |next: u64| {
            next.checked_add(count).filter(|&end| end <= reserved && count <= shared.few)
        };
        let taken = shared.next.fetch_update(Relaxed, Relaxed, end);
        let (Ok(first), Some(end)) = (taken, taken.ok().and_then(end)) else {
            return Err(self.none(count));
        };
        if reserved - end < shared.few {
            self.wake();
        }
        Ok(first)
    }

    #[cold]
    fn none(&self, count: u64) -> TakeError {
        self.wake();
        if count > self.shared.few || self.shared.reserved.load(Acquire) == u64::MAX {
            return TakeError::TooMany;
        }
        let failure = self.shared.failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.clone().map_or(TakeError::Waiting, TakeError::Disk)
    }

    fn wake(&self) {
        if !self.shared.is_woken.load(Relaxed) && !self.shared.is_woken.swap(true, AcqRel) {
            self.wake.unpark();
        }
    }
}

impl Drop for Sequencer {
    /// Gives the unused numbers back.
    fn drop(&mut self) {
        self.shared.is_over.store(true, Release);
        self.wake.unpark();
        if let Some(keeper) = self.keeper.take() {
            // It does not panic.
            keeper.join().unwrap_or_default();
        }
    }
}

impl Shared {
    /// Keeps the number in the file ahead of those that are given, until the sequencer ends.
    fn keep(&self, file: &Reservation) {
        while !self.is_over.load(Acquire) {
            self.is_woken.store(false, Release);
            let (next, reserved) = (self.next.load(Relaxed), self.reserved.load(Relaxed));
            if reserved - next >= self.few || reserved == u64::MAX {
                thread::park();
                continue;
            }
            let more = reserved.saturating_add(self.block);
            let done = file.write(more);
            let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
            *failure = done.as_ref().err().map(ToString::to_string);
            drop(failure);
            match done {
                Ok(()) => self.reserved.store(more, Release),
                Err(_) => thread::park_timeout(PAUSE),
            }
        }
        // No number is given any more. If this fails, a part of a block is skipped.
        file.write(self.next.load(Relaxed)).unwrap_or_default();
    }
}

/// The file.
#[derive(Debug)]
struct Reservation {
    path: PathBuf,
    /// Locked while the sequencer runs.
    _lock: File,
}

impl Reservation {
    fn open(path: &Path) -> Result<Self, OpenError> {
        let io = |error| OpenError::Io(path.to_owned(), error);
        // The file itself is replaced by each write, so it cannot be the lock.
        let lock = File::create(beside(path, "lock")).map_err(io)?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { path: path.to_owned(), _lock: lock }),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(OpenError::InUse(path.to_owned())),
            Err(error) => Err(io(error.into())),
        }
    }

    /// The number in the file; 0 if there is no file.
    fn read(&self) -> Result<u64, OpenError> {
        let bytes = match fs::read(&self.path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            Err(error) => return Err(OpenError::Io(self.path.clone(), error)),
        };
        decode(&bytes).ok_or_else(|| OpenError::Damaged(self.path.clone()))
    }

    /// Replaces the file, so that it has the old or the new content after a crash.
    fn write(&self, number: u64) -> io::Result<()> {
        let new = beside(&self.path, "new");
        let mut file = File::create(&new)?;
        file.write_all(&encode(number))?;
        file.sync_all()?;
        fs::rename(&new, &self.path)?;
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    }
}

/// The path with another ending.
fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(ending);
    name.into()
}

fn encode(number: u64) -> [u8; LEN] {
    let mut bytes = [0; LEN];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..16].copy_from_slice(&number.to_le_bytes());
    let checksum = crc32c::crc32c(&bytes[..16]);
    bytes[16..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// None if the bytes are not those of a sequencer's file.
fn decode(bytes: &[u8]) -> Option<u64> {
    let bytes: &[u8; LEN] = bytes.try_into().ok()?;
    let (front, checksum) = bytes.split_at(16);
    let is_whole = front.starts_with(&MAGIC) && crc32c::crc32c(front).to_le_bytes() == *checksum;
    is_whole.then(|| u64::from_le_bytes(front[8..].try_into().expect("8 bytes")))
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InUse(path) => write!(
                f,
                "another process uses {}; stop it, or give each sequencer a file of its own",
                path.display()
            ),
            Self::Damaged(path) => write!(
                f,
                "{} is not a sequencer's file, or damaged; restore it, or the sequencer would give \
                 numbers again",
                path.display()
            ),
            Self::Io(path, error) => write!(f, "{}: {error}", path.display()),
        }
    }
}

impl Error for OpenError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Io(_, error) => Some(error),
            Self::InUse(_) | Self::Damaged(_) => None,
        }
    }
}

impl fmt::Display for TakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Waiting => f.write_str("the next numbers are being reserved; ask again"),
            Self::Disk(error) => {
                write!(f, "the next numbers cannot be reserved: {error}; free the disk, ask again")
            }
            Self::TooMany => f.write_str("there are not so many numbers"),
        }
    }
}

impl Error for TakeError {}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// A folder of the test, which is removed at the end.
    struct Folder(PathBuf);

    impl Folder {
        fn new(test: &str) -> Self {
            let name = format!("erpc-herd-sequencer-{test}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            fs::create_dir_all(&path).expect("a temporary folder");
            Self(path)
        }

        fn file(&self) -> PathBuf {
            self.0.join("numbers")
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap_or_default();
        }
    }

    fn block(numbers: u64) -> NonZeroU64 {
        NonZeroU64::new(numbers).expect("it is not 0")
    }

    /// Takes numbers, and waits while they are reserved.
    fn take(sequencer: &Sequencer, count: u64) -> u64 {
        loop {
            match sequencer.take(count) {
                Ok(first) => return first,
                Err(TakeError::Waiting) => thread::yield_now(),
                Err(error) => panic!("{error}"),
            }
        }
    }

    #[test]
    fn threads_get_different_numbers_beyond_the_first_block() {
        let folder = Folder::new("threads");
        let sequencer = Sequencer::with_block(&folder.file(), block(100)).expect("it opens");
        let many = || -> Vec<u64> {
            let counts = (0..2000).map(|turn| 1 + turn % 3);
            let ranges = counts.map(|count| (take(&sequencer, count), count));
            ranges.flat_map(|(first, count)| first..first + count).collect()
        };
        let all: Vec<u64> = thread::scope(|scope| {
            let threads: Vec<_> = (0..3).map(|_| scope.spawn(many)).collect();
            threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
        });
        assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len(), "a number came twice");
    }

    #[test]
    fn a_crash_skips_numbers_and_repeats_none() {
        let folder = Folder::new("crash");
        let sequencer = Sequencer::with_block(&folder.file(), block(1000)).expect("it opens");
        assert_eq!([(); 3].map(|()| take(&sequencer, 10)), [0, 10, 20]);
        let as_crashed = fs::read(folder.file()).expect("it was written");
        drop(sequencer);
        fs::write(folder.file(), as_crashed).expect("the folder is there");
        let sequencer = Sequencer::with_block(&folder.file(), block(1000)).expect("it opens");
        assert_eq!(take(&sequencer, 1), 1000);
    }

    #[test]
    fn half_a_block_can_always_be_taken() {
        let folder = Folder::new("half");
        for size in [1_u64, 2, 3, 7, 100] {
            let half = size.div_ceil(2);
            let sequencer = Sequencer::with_block(&folder.file(), block(size)).expect("it opens");
            let first = take(&sequencer, 1);
            assert_eq!(take(&sequencer, half), first + 1);
            assert_eq!(take(&sequencer, half), first + 1 + half);
            assert_eq!(sequencer.take(half + 1), Err(TakeError::TooMany));
        }
    }

    #[test]
    fn an_orderly_end_skips_none() {
        let folder = Folder::new("end");
        for turn in 0..3 {
            let sequencer = Sequencer::open(&folder.file()).expect("it opens");
            assert_eq!(take(&sequencer, 5), 5 * turn);
        }
    }

    #[test]
    fn only_one_process_uses_a_file() {
        let folder = Folder::new("lock");
        let _first = Sequencer::open(&folder.file()).expect("it opens");
        let error = Sequencer::open(&folder.file()).expect_err("it is in use");
        assert!(matches!(error, OpenError::InUse(_)), "{error}");
    }

    #[test]
    fn damaged_files_are_refused() {
        let folder = Folder::new("damaged");
        let whole = encode(77);
        assert_eq!(decode(&whole), Some(77));
        for len in 0..LEN {
            assert_eq!(decode(&whole[..len]), None);
        }
        for bit in 0..8 * LEN {
            let mut wrong = whole;
            wrong[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(&wrong), None, "bit {bit}");
        }
        fs::write(folder.file(), &whole[..19]).expect("the folder is there");
        let error = Sequencer::open(&folder.file()).expect_err("it is damaged");
        assert!(matches!(error, OpenError::Damaged(_)), "{error}");
    }

    #[test]
    fn a_disk_that_fails_stops_the_numbers_at_the_reserved_ones() {
        let folder = Folder::new("disk");
        let sequencer = Sequencer::with_block(&folder.file(), block(100)).expect("it opens");
        // A folder where the new file should be cannot be replaced by a file.
        fs::create_dir(beside(&folder.file(), "new")).expect("the name is free");
        let mut last = 0;
        let error = loop {
            match sequencer.take(1) {
                Ok(number) => last = number,
                Err(TakeError::Waiting) => thread::yield_now(),
                Err(error) => break error,
            }
        };
        assert_eq!(last, 99);
        assert!(matches!(error, TakeError::Disk(_)), "{error}");
        fs::remove_dir(beside(&folder.file(), "new")).expect("it is empty");
        let number = loop {
            match sequencer.take(1) {
                Ok(number) => break number,
                Err(_) => thread::yield_now(),
            }
        };
        assert!(number >= 100);
    }

    #[test]
    fn numbers_end_with_an_error() {
        let folder = Folder::new("last");
        fs::write(folder.file(), encode(u64::MAX - 5)).expect("the folder is there");
        let sequencer = Sequencer::with_block(&folder.file(), block(100)).expect("it opens");
        assert_eq!(take(&sequencer, 3), u64::MAX - 5);
        assert_eq!(sequencer.take(3), Err(TakeError::TooMany));
        assert_eq!(sequencer.take(u64::MAX), Err(TakeError::TooMany));
    }
}
