//! A `tracing` subscriber that keeps all events, for tests of the log.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// An event, with its fields as text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Logged {
    /// The target.
    pub target: &'static str,
    /// The level.
    pub level: Level,
    /// The message.
    pub message: String,
    /// The other fields.
    pub fields: BTreeMap<&'static str, String>,
}

impl Logged {
    /// The text of a field.
    ///
    /// # Panics
    /// If the event does not have the field.
    #[must_use]
    #[track_caller]
    pub fn field(&self, name: &str) -> &str {
        self.fields.get(name).unwrap_or_else(|| panic!("no field `{name}`: {self:?}"))
    }

    /// The value of a field that is a number.
    ///
    /// # Panics
    /// If the event does not have the field, or it is no number.
    #[must_use]
    #[track_caller]
    pub fn number(&self, name: &str) -> u64 {
        self.field(name).parse().unwrap_or_else(|_| panic!("`{name}` is no number: {self:?}"))
    }
}

/// The events of this process, since [`EventLog::install`].
#[derive(Debug, Default)]
pub struct EventLog {
    events: Mutex<Vec<Logged>>,
    grown: Condvar,
}

/// An event is expected within this time.
const LIMIT: Duration = Duration::from_secs(20);

impl EventLog {
    /// The log of this process, which is the subscriber of all threads from now on. It wants the
    /// events of targets that begin with `erpc`.
    ///
    /// # Panics
    /// If the process has another subscriber.
    pub fn install() -> &'static Self {
        static LOG: OnceLock<&'static EventLog> = OnceLock::new();
        LOG.get_or_init(|| {
            let log: &'static Self = Box::leak(Box::default());
            tracing::subscriber::set_global_default(Keeper(log)).expect("the only subscriber");
            log
        })
    }

    fn events(&self) -> MutexGuard<'_, Vec<Logged>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The events so far that `is_wanted` selects, oldest first.
    pub fn all(&self, is_wanted: impl Fn(&Logged) -> bool) -> Vec<Logged> {
        self.events().iter().filter(|event| is_wanted(event)).cloned().collect()
    }

    /// Waits for an event with this message that `is_wanted` selects. Returns the first one.
    ///
    /// # Panics
    /// If there is none after 20 s.
    #[track_caller]
    pub fn expect(&self, message: &str, is_wanted: impl Fn(&Logged) -> bool) -> Logged {
        let end = Instant::now() + LIMIT;
        let mut events = self.events();
        loop {
            let is_it = |event: &&Logged| event.message == message && is_wanted(event);
            if let Some(event) = events.iter().find(is_it) {
                return event.clone();
            }
            let left = end.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "no such event `{message}` in {:#?}", *events);
            let waited = self.grown.wait_timeout(events, left);
            events = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// The subscriber of an [`EventLog`].
struct Keeper(&'static EventLog);

impl Subscriber for Keeper {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("erpc")
    }

    fn event(&self, event: &Event<'_>) {
        let metadata = event.metadata();
        let mut logged = Logged {
            target: metadata.target(),
            level: *metadata.level(),
            message: String::new(),
            fields: BTreeMap::new(),
        };
        event.record(&mut Fields(&mut logged));
        self.0.events().push(logged);
        self.0.grown.notify_all();
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Collects the fields of an event.
struct Fields<'l>(&'l mut Logged);

impl Visit for Fields<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = format!("{value:?}");
        if field.name() == "message" {
            self.0.message = text;
        } else {
            self.0.fields.insert(field.name(), text);
        }
    }
}
