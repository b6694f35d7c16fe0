//! Tests of blocks and their home under all thread schedules that loom explores; see `.ci/loom`.
//! Loom itself fails a test that leaks a block or a home or frees one twice.

use loom::thread;

use super::*;

fn home() -> Arc<Home> {
    Arc::new(Home::new(None))
}

fn block(home: &Arc<Home>) -> BlockRef {
    Block::allocate(64, Some(Arc::clone(home))).expect("memory").activate()
}

fn write(block: &mut BlockRef) {
    // SAFETY: the block's capacity is 64.
    let bytes = unsafe { block.slice_mut(0, 8) };
    bytes[0] += 1;
}

fn read(block: &BlockRef) -> u8 {
    // SAFETY: the block's capacity is 64.
    let bytes = unsafe { block.slice(0, 8) };
    bytes[0]
}

/// A thread that reads the block and then drops its reference, like a transmit queue.
fn reader(queued: BlockRef) -> thread::JoinHandle<()> {
    thread::spawn(move || assert_eq!(read(&queued), 0))
}

#[test]
fn a_block_returned_while_the_pool_is_dropped_is_freed_once() {
    loom::model(|| {
        let home = home();
        let threads = [block(&home), block(&home)].map(|block| thread::spawn(move || drop(block)));
        home.close();
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    });
}

#[test]
fn a_returned_block_is_found_once_and_can_be_written() {
    loom::model(|| {
        let home = home();
        // Loom tries both orders of two accesses to a variable only if one of them is the latest
        // access to this variable. The load by which `collect` finds the list empty is never the
        // latest, because each push starts with a load of its own. So loom alone would not swap
        // `collect` and a push. Therefore all threads also access `order`: loom swaps these
        // accesses, and with them `collect` and a push.
        let order = Arc::new(AtomicU32::new(0));
        let threads = [block(&home), block(&home)].map(|mut block| {
            let order = Arc::clone(&order);
            thread::spawn(move || {
                write(&mut block);
                drop(block);
                order.fetch_add(1, Ordering::Relaxed);
            })
        });
        let mut found = 0;
        let mut collect = || {
            for block in home.take_returned() {
                let mut again = block.activate();
                assert_eq!(read(&again), 1);
                write(&mut again);
                found += 1;
                // Free the block. If it were dropped instead, it would return to `home`, and the
                // second `collect` would find it again.
                drop(again.reclaim(&home).ok().expect("the only reference"));
            }
        };
        order.fetch_add(1, Ordering::Relaxed);
        collect();
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        collect();
        assert_eq!(found, 2);
    });
}

#[test]
fn a_block_is_not_written_before_its_readers_finish() {
    loom::model(|| {
        let mut own = Block::allocate(64, None).expect("memory").activate();
        let queued = own.share();
        let queue = reader(queued);
        if own.is_unique() {
            write(&mut own);
        }
        queue.join().expect("no panic");
        assert!(own.is_unique());
    });
}

#[test]
fn the_last_reference_frees_the_block_after_all_others_have_read() {
    loom::model(|| {
        let own = Block::allocate(64, None).expect("memory").activate();
        let threads = [own.share(), own.share()].map(reader);
        drop(own);
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    });
}

#[test]
fn a_block_is_either_reclaimed_or_returned() {
    loom::model(|| {
        let home = home();
        let own = block(&home);
        let queued = own.share();
        let queue = reader(queued);
        let reclaimed = own.reclaim(&home).is_ok();
        queue.join().expect("no panic");
        let returned = home.take_returned().count();
        assert_eq!(usize::from(reclaimed) + returned, 1);
    });
}

#[test]
fn an_adopted_block_returns_to_its_new_home() {
    loom::model(|| {
        let home = home();
        let mut foreign = Block::allocate(64, None).expect("memory").activate();
        let queued = foreign.share();
        let queue = reader(queued);
        let adopted = foreign.adopt(&home);
        drop(foreign);
        queue.join().expect("no panic");
        assert_eq!(home.take_returned().count(), usize::from(adopted));
    });
}
