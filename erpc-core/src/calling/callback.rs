//! Callbacks, and a cache of their boxes.
//!
//! A callback is boxed while its call is in flight. The box is reused for the next callback of the
//! same type, so that consecutive calls do not allocate. Spare boxes are stored in stacks, selected
//! by a hash of the callback's type. Types can share a stack: a downcast tells whether a box has
//! the right type. If not, the box is freed.

use std::any::{Any, TypeId};
use std::cell::RefCell;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;

use super::response::{MALFORMED, named, too_large};
use crate::protocol::CallError;
use crate::service::{Codec, Method};

/// Number of stacks of spare boxes.
const STACKS: usize = 16;
/// Maximum number of spare boxes in a stack, and maximum size of a spare box in bytes.
const SPARES: usize = 256;
const SPARE_BYTES: usize = 512;

/// A callback that waits for its call's outcome. It runs once.
pub(crate) trait Callback: Any {
    /// Runs the callback on the bytes of the response message.
    fn reply(&mut self, bytes: &[u8]);

    fn fail(&mut self, error: CallError);

    /// The index of the stack for this callback's box.
    fn stack(&self) -> usize;
}

/// A callback for messages of type `M`, which `D` reads.
struct TypedCallback<M, D, F> {
    /// The method's full name.
    method: &'static str,
    /// Longest message, in bytes.
    limit: u32,
    /// `None` once it has run.
    done: Option<F>,
    types: PhantomData<fn() -> (M, D)>,
}

impl<M, D, F> Callback for TypedCallback<M, D, F>
where
    M: 'static,
    D: Codec<M>,
    F: for<'v> FnOnce(Result<D::View<'v>, CallError>) + 'static,
{
    fn reply(&mut self, bytes: &[u8]) {
        let Some(done) = self.done.take() else { return };
        if bytes.len() > self.limit as usize {
            return done(Err(too_large(bytes)));
        }
        // `done` is called in both arms, so that the message is built in place as its argument.
        match D::view(bytes) {
            Ok(message) => done(Ok(message)),
            Err(_) => done(Err(MALFORMED)),
        }
    }

    #[cold]
    fn fail(&mut self, error: CallError) {
        if let Some(done) = self.done.take() {
            done(Err(named(error, self.method)));
        }
    }

    fn stack(&self) -> usize {
        stack_of::<Self>()
    }
}

/// The spare callback boxes of an endpoint.
#[derive(Default)]
pub(crate) struct Callbacks {
    stacks: [RefCell<Vec<Box<dyn Callback>>>; STACKS],
}

impl Callbacks {
    /// Boxes a callback that reads the response and passes it to `done`.
    #[inline(always)]
    pub(crate) fn wrap<Req, M: 'static, C, D: Codec<M>, F>(
        &self,
        method: &Method<Req, M, C, D>,
        done: F,
    ) -> Box<dyn Callback>
    where
        F: for<'v> FnOnce(Result<D::View<'v>, CallError>) + 'static,
    {
        let (method, limit) = (method.full_name(), method.response_limit());
        let stack = self.stacks.get(stack_of::<TypedCallback<M, D, F>>());
        let spare = stack.and_then(|stack| stack.borrow_mut().pop());
        let fitting =
            spare.map(|spare| (spare as Box<dyn Any>).downcast::<TypedCallback<M, D, F>>());
        match fitting {
            Some(Ok(mut place)) => {
                (place.method, place.limit) = (method, limit);
                place.done = Some(done);
                place
            }
            _ => Box::new(TypedCallback::<M, D, F> {
                method,
                limit,
                done: Some(done),
                types: PhantomData,
            }),
        }
    }

    /// Stores the box of a callback that has run, for reuse.
    #[inline(always)]
    pub(crate) fn keep(&self, spare: Box<dyn Callback>) {
        let Some(stack) = self.stacks.get(spare.stack()) else { return };
        let mut stack = stack.borrow_mut();
        if stack.len() < SPARES {
            stack.push(spare);
        }
    }
}

/// The index of the stack for boxes of type `W`. It is `STACKS`, which is no valid index, if `W`
/// has more than [`SPARE_BYTES`] bytes. The compiler computes the index.
#[inline(always)]
fn stack_of<W: 'static>() -> usize {
    if size_of::<W>() > SPARE_BYTES {
        return STACKS;
    }
    let mut number = TypeIdHasher(0);
    TypeId::of::<W>().hash(&mut number);
    number.0 as usize % STACKS
}

/// Hasher for a `TypeId`, whose bits are a hash already.
struct TypeIdHasher(u64);

impl Hasher for TypeIdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    #[inline(always)]
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(byte.into()));
    }

    #[inline(always)]
    fn write_u64(&mut self, number: u64) {
        self.0 = self.0.rotate_left(8) ^ number;
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;

    const DOUBLE: Method<u32, u32> = Method::new("math.v1.Math/Double");

    #[test]
    fn a_box_is_used_again_for_its_own_type_only() {
        let callbacks = Callbacks::default();
        let held = Rc::new(());
        let wrap = |held: Rc<()>| callbacks.wrap(&DOUBLE, move |_| drop(held));
        let mut first = wrap(Rc::clone(&held));
        let place = (&raw const *first).cast::<()>();
        first.reply(&[]);
        assert_eq!(
            Rc::strong_count(&held),
            1,
            "a callback drops its captures when it runs, though its box stays"
        );
        callbacks.keep(first);
        let mut other = callbacks.wrap(&DOUBLE, |_| {});
        other.reply(&[]);
        let second = wrap(Rc::clone(&held));
        assert_eq!((&raw const *second).cast::<()>(), place);
        drop(second);
        assert_eq!(Rc::strong_count(&held), 1, "a callback that has not run drops its captures");
    }

    #[test]
    fn spare_boxes_are_few_and_small() {
        let callbacks = Callbacks::default();
        let large = [0u8; SPARE_BYTES];
        callbacks.keep(callbacks.wrap(&DOUBLE, move |_| assert_eq!(large[0], 0)));
        let spares = || callbacks.stacks.iter().map(|stack| stack.borrow().len()).sum::<usize>();
        assert_eq!(spares(), 0);
        let many: Vec<_> = (0..2 * SPARES).map(|_| callbacks.wrap(&DOUBLE, |_| {})).collect();
        many.into_iter().for_each(|callback| callbacks.keep(callback));
        assert_eq!(spares(), SPARES);
    }
}
