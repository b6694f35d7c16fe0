//! A ring of two slots under every schedule.

use loom::thread;

use super::*;

/// Datagrams of two lengths, so that both slot arrays are used. Each byte is the number.
fn datagram(number: u8) -> Vec<u8> {
    vec![number; if number.is_multiple_of(2) { 40 } else { 200 }]
}

fn take(consumer: &mut Consumer) -> Option<Vec<u8>> {
    let mut loans = [Loan::none(())];
    let (count, _) = consumer.take((), &mut loans);
    // SAFETY: the consumer releases nothing before the bytes are copied.
    (count == 1).then(|| unsafe { loans[0].bytes() }.to_vec())
}

#[test]
fn datagrams_arrive_in_order_and_are_not_overwritten_while_lent() {
    loom::model(|| {
        let (mut producer, mut consumer) = ring(2, 256).expect("memory");
        let sender = thread::spawn(move || {
            let mut sent = 0;
            for _ in 0..4 {
                let bytes = datagram(sent);
                if producer.stage(&bytes[..24], &bytes[24..]).is_ok() {
                    sent += 1;
                }
                producer.publish();
            }
            (producer, sent)
        });
        let mut received = 0;
        let mut burst = |consumer: &mut Consumer| {
            consumer.release();
            while let Some(bytes) = take(consumer) {
                assert_eq!(bytes, datagram(received));
                received += 1;
            }
        };
        burst(&mut consumer);
        burst(&mut consumer);
        let (producer, sent) = sender.join().expect("no panic");
        burst(&mut consumer);
        assert_eq!(received, sent);
        assert_eq!(consumer.overflowed(), 4 - u64::from(sent));
        drop(producer);
    });
}

#[test]
fn a_batch_is_visible_as_a_whole_or_not_at_all() {
    loom::model(|| {
        let (mut producer, mut consumer) = ring(2, 256).expect("memory");
        let sender = thread::spawn(move || {
            for number in 0..2 {
                producer.stage(&datagram(number), &[]).expect("room");
            }
            producer.publish();
        });
        if take(&mut consumer).is_some() {
            assert_eq!(take(&mut consumer), Some(datagram(1)));
        }
        sender.join().expect("no panic");
    });
}

#[test]
fn a_ring_is_finished_only_when_it_is_empty() {
    loom::model(|| {
        let (mut producer, mut consumer) = ring(2, 256).expect("memory");
        let sender = thread::spawn(move || {
            producer.stage(&datagram(0), &[]).expect("room");
            producer.close();
        });
        let finished = consumer.is_finished();
        assert!(!finished, "a datagram is queued, or the producer is still open");
        assert!(!consumer.is_abandoned() || take(&mut consumer).is_some());
        sender.join().expect("no panic");
    });
}
