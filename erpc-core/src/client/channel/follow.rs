//! The task that keeps a channel's list of servers up to date.

use std::pin::pin;
use std::rc::{Rc, Weak};

use super::balancer::Balancer;
use super::resolver::{Resolver, panicked};
use super::stale::StaleFlag;
use crate::executor::join::caught;
use crate::executor::scheduler::Scheduler;
use crate::executor::sleep::Sleep;
use crate::mutants::mutant;
use crate::time::Instant;
use crate::transport::Transport;

/// Starts the task that keeps a channel's list of servers up to date.
pub(super) fn follow<T: Transport>(balancer: &Rc<Balancer<T>>, resolver: impl Resolver<T::Route>) {
    let task = resolve_again(
        Rc::downgrade(balancer),
        Rc::clone(balancer.endpoint().scheduler()),
        Rc::clone(balancer.stale()),
        resolver,
    );
    balancer.asks(balancer.endpoint().scheduler().spawn_internal(task));
}

async fn resolve_again<T: Transport>(
    balancer: Weak<Balancer<T>>,
    scheduler: Rc<Scheduler>,
    stale: Rc<StaleFlag>,
    mut resolver: impl Resolver<T::Route>,
) {
    loop {
        // Clear the flag before the query, not after it. A session may fail during the query and
        // set the flag again. The resolver's answer may be from before this failure, so the
        // resolver must then be asked again.
        stale.clear();
        let answer = caught(async {
            let found = resolver.resolve().await;
            (found, resolver.good_for())
        });
        // A panic counts as a failed query, and the resolver is asked again later. So it must
        // remain consistent after a panic, like a handler.
        let (found, good_for) = answer.await.unwrap_or_else(|_panic| (Err(panicked()), None));
        if mutant!(StaleClearedLate) {
            stale.clear();
        }
        let asked = scheduler.now();
        let Some(channel) = balancer.upgrade() else { return };
        let pause = channel.resolve_pause();
        channel.resolved(found, || resolver.name());
        drop(channel);
        let good_until = good_for
            .filter(|_| !mutant!(AnswerNeverExpires))
            .map_or(Instant::NEVER, |time| asked + time);
        // Wait until the flag is set or the answer expires, whichever is first.
        let stale = pin!(stale.wait(scheduler.executor()));
        Sleep::new(&scheduler, good_until).limit(stale).await.unwrap_or(());
        if !mutant!(ResolvePauseForgotten) {
            Sleep::new(&scheduler, asked + pause).await;
        }
    }
}
