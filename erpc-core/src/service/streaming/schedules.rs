//! Streams between a handle's thread and an endpoint's thread, under every schedule.

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;

use loom::future::block_on;
use loom::thread;

use super::Source;
use super::pipe::{InPipe, InPump, OutPipe, OutPump, Reader};
use super::testing::{Batches, Counts};
use crate::protocol::{CallError, Cause, RejectReason};
use crate::stream::{BATCH, Batch};

/// Bytes of an item that fills a pipe.
const LARGE: usize = 4 * BATCH;

/// Reads the next batch on this thread, and gives its memory back. Returns whether there was one.
fn read(pipe: &InPipe) -> Result<bool, CallError> {
    let batch = block_on(poll_fn(|cx| pipe.poll_batch(cx)))?;
    let memory = batch.map(Batch::into_message);
    Ok(memory.map(|memory| pipe.batch_read(memory)).is_some())
}

#[test]
fn a_reader_gets_all_batches_and_the_end() {
    loom::model(|| {
        let pipe = Arc::new(InPipe::new(Reader::Caller));
        let reader = {
            let pipe = Arc::clone(&pipe);
            thread::spawn(move || [read(&pipe), read(&pipe), read(&pipe)])
        };
        // The second batch has no room before the reader has given the first one back.
        let source = Rc::new(Batches::new(LARGE, 2).ending());
        block_on(InPump::new(&pipe).run(Rc::clone(&source) as _));
        assert_eq!(reader.join().expect("no panic"), [Ok(true), Ok(true), Ok(false)]);
        assert_eq!(source.taken.get(), 2);
    });
}

#[test]
fn a_dropped_reader_ends_the_pump() {
    loom::model(|| {
        let pipe = Arc::new(InPipe::new(Reader::Caller));
        let reader = {
            let pipe = Arc::clone(&pipe);
            thread::spawn(move || pipe.drop_reader())
        };
        let source = Rc::new(Batches::new(10, 1));
        block_on(InPump::new(&pipe).run(Rc::clone(&source) as _));
        assert!(source.dropped.get());
        reader.join().expect("no panic");
    });
}

#[test]
fn a_reader_gets_an_error_if_the_endpoint_ends() {
    loom::model(|| {
        let pipe = Arc::new(InPipe::new(Reader::Caller));
        let pump = InPump::new(&pipe);
        let reader = thread::spawn(move || read(&pipe));
        drop(pump);
        let ended = Err(CallError::NotExecuted(Cause::Shutdown));
        assert_eq!(reader.join().expect("no panic"), ended);
    });
}

#[test]
fn a_reader_that_outlives_the_handler_gets_the_end() {
    loom::model(|| {
        let pipe = Arc::new(InPipe::new(Reader::Handler));
        let reader = {
            let pipe = Arc::clone(&pipe);
            thread::spawn(move || read(&pipe))
        };
        pipe.close();
        // The pump ends at once, although its source never ends.
        block_on(InPump::new(&pipe).run(Rc::new(Batches::new(10, 0)) as _));
        assert_eq!(reader.join().expect("no panic"), Ok(false));
    });
}

/// Writes an item of `len` bytes on this thread.
fn write(pipe: &OutPipe, len: usize) -> Result<(), CallError> {
    let mut item = Some(vec![0; len]);
    block_on(poll_fn(|cx| pipe.poll_put(cx, &mut item)))
}

#[test]
fn a_writer_waits_for_room_and_every_item_leaves_the_pipe() {
    loom::model(|| {
        let pipe = Arc::new(OutPipe::default());
        let writer = {
            let pipe = Arc::clone(&pipe);
            thread::spawn(move || {
                let written = [write(&pipe, BATCH), write(&pipe, 1)];
                pipe.drop_writer();
                written
            })
        };
        let sink = Rc::new(Counts::default());
        assert_eq!(block_on(OutPump::new(&pipe).run(Rc::clone(&sink) as _)), Ok(()));
        assert_eq!(writer.join().expect("no panic"), [Ok(()), Ok(())]);
        assert_eq!((sink.items.get(), sink.ended.get()), (2, true));
    });
}

#[test]
fn a_writer_that_waits_for_room_ends_with_the_handler() {
    loom::model(|| {
        let pipe = Arc::new(OutPipe::default());
        write(&pipe, BATCH).expect("the pipe has room");
        let writer = {
            let pipe = Arc::clone(&pipe);
            thread::spawn(move || write(&pipe, 1))
        };
        pipe.close();
        let ended = Err(CallError::Rejected(RejectReason::StreamEnded));
        assert_eq!(writer.join().expect("no panic"), ended);
    });
}
