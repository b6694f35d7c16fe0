//! The plan for each method: the options of its `.proto` file, with the changes of the builder.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use protox::prost_reflect::{
    DescriptorPool, MessageDescriptor, MethodDescriptor, ServiceDescriptor,
};

use crate::layout::{self, Layout, Layouts};
use crate::options::{self, DeclaredMode};
use crate::source::Source;
use crate::{Error, Misuse};

/// Where a method's handlers run; see [`Builder::mode`](crate::Builder::mode).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// In the event loop, on the received request. For handlers that take microseconds and never
    /// block. The default.
    Dispatch,
    /// On a worker thread. For handlers that compute for a long time or block.
    Worker,
    /// In the event loop as an `async fn`. For handlers that wait for other calls or for a timer.
    Async,
}

/// A setting of the builder that overrides a method's option in the `.proto` file.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change {
    Mode(Mode),
    Deadline(Duration),
    Idempotent(bool),
    MaxRequest(u32),
    MaxResponse(u32),
}

impl Change {
    /// The name of the builder's function.
    fn setting(self) -> &'static str {
        match self {
            Self::Mode(_) => "mode",
            Self::Deadline(_) => "deadline",
            Self::Idempotent(_) => "idempotent",
            Self::MaxRequest(_) => "max_request",
            Self::MaxResponse(_) => "max_response",
        }
    }
}

/// The kind of a method's handler.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shape {
    Dispatch,
    Worker,
    Async,
    ServerStreaming,
    ClientStreaming,
    Bidirectional,
}

impl Shape {
    /// Whether the handler is a plain `fn`, which the derive can move between the event loop and
    /// workers.
    pub(crate) fn is_sync(self) -> bool {
        matches!(self, Self::Dispatch | Self::Worker)
    }
}

/// The settings that a method is generated with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MethodPlan {
    pub(crate) shape: Shape,
    pub(crate) idempotent: bool,
    /// In microseconds. 0: none.
    pub(crate) deadline_us: u64,
    /// In bytes. 0: only the limit of the session applies.
    pub(crate) max_request: u32,
    /// In bytes. 0: only the limit of the session applies.
    pub(crate) max_response: u32,
}

/// All methods by full name, and the messages with a fixed layout or a view.
#[derive(Debug)]
pub(crate) struct Schema {
    methods: HashMap<String, MethodPlan>,
    layouts: Layouts,
}

impl Schema {
    /// Reads the options of all generated services and of all messages. `changes` are the builder's
    /// settings, with the full names of their methods.
    pub(crate) fn new(source: &Source, changes: &[(String, Change)]) -> Result<Self, Error> {
        let mut misuses = Vec::new();
        let mut methods = HashMap::new();
        let named =
            |service: &ServiceDescriptor| source.named.contains(service.parent_file().name());
        for method in source
            .pool
            .services()
            .filter(named)
            .flat_map(|service| service.methods().collect::<Vec<_>>())
        {
            let name = full_name(&method);
            let own = changes.iter().filter(|(method, _)| *method == name);
            let plan = plan(&method, own.map(|(_, change)| *change)).unwrap_or_else(|misuse| {
                misuses.push(misuse);
                MethodPlan::DEFAULT
            });
            methods.insert(name, plan);
        }
        let unknown = changes.iter().filter(|(method, _)| !methods.contains_key(method));
        misuses.extend(
            unknown
                .map(|(method, change)| unknown_method(change.setting(), method, methods.keys())),
        );
        let layouts = layout::read(&source.pool, &mut misuses);
        if misuses.is_empty() {
            Ok(Self { methods, layouts })
        } else {
            Err(Error::Options(misuses))
        }
    }

    /// The layout of the message with the name `full_name`; `None` for a plain message.
    pub(crate) fn layout(&self, full_name: &str) -> Option<Layout> {
        self.layouts.get(full_name).copied()
    }

    /// The messages with a fixed layout or a view, in the order of their files.
    pub(crate) fn messages<'a>(
        &'a self,
        pool: &'a DescriptorPool,
    ) -> impl Iterator<Item = (MessageDescriptor, Layout)> + 'a {
        pool.all_messages().filter_map(|message| {
            let layout = self.layout(message.full_name())?;
            Some((message, layout))
        })
    }

    /// The plan of the method with the name `full_name`, `package.Service/Method`.
    pub(crate) fn method(&self, full_name: &str) -> MethodPlan {
        self.methods.get(full_name).copied().unwrap_or(MethodPlan::DEFAULT)
    }
}

impl MethodPlan {
    const DEFAULT: Self = Self {
        shape: Shape::Dispatch,
        idempotent: false,
        deadline_us: 0,
        max_request: 0,
        max_response: 0,
    };
}

/// `package.Service/Method`.
fn full_name(method: &MethodDescriptor) -> String {
    format!("{}/{}", method.parent_service().full_name(), method.name())
}

fn plan(
    method: &MethodDescriptor,
    changes: impl Iterator<Item = Change>,
) -> Result<MethodPlan, Misuse> {
    let options = options::of_method(method);
    let mut mode = match options.mode() {
        DeclaredMode::Unspecified => None,
        DeclaredMode::Dispatch => Some(Mode::Dispatch),
        DeclaredMode::Worker => Some(Mode::Worker),
        DeclaredMode::Async => Some(Mode::Async),
    };
    let mut plan = MethodPlan {
        shape: Shape::Dispatch,
        idempotent: options.idempotent || options::is_idempotent(method),
        deadline_us: options.deadline_us,
        max_request: options.max_request,
        max_response: options.max_response,
    };
    for change in changes {
        match change {
            Change::Mode(other) => mode = Some(other),
            Change::Deadline(deadline) => plan.deadline_us = micros(deadline),
            Change::Idempotent(idempotent) => plan.idempotent = idempotent,
            Change::MaxRequest(bytes) => plan.max_request = bytes,
            Change::MaxResponse(bytes) => plan.max_response = bytes,
        }
    }
    plan.shape = shape(method, mode)?;
    Ok(plan)
}

/// The duration in microseconds. Rounded up, so that no short deadline becomes 0, which means no
/// deadline.
fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000)).unwrap_or(u64::MAX)
}

fn shape(method: &MethodDescriptor, mode: Option<Mode>) -> Result<Shape, Misuse> {
    let streaming = match (method.is_client_streaming(), method.is_server_streaming()) {
        (false, false) => None,
        (false, true) => Some(Shape::ServerStreaming),
        (true, false) => Some(Shape::ClientStreaming),
        (true, true) => Some(Shape::Bidirectional),
    };
    match (streaming, mode) {
        (Some(shape), None | Some(Mode::Async)) => Ok(shape),
        (Some(_), Some(_)) => Err(Misuse {
            at: format!("method {}", full_name(method)),
            problem: "streams, so its handler is always asynchronous; remove its `mode`".to_owned(),
        }),
        (None, None | Some(Mode::Dispatch)) => Ok(Shape::Dispatch),
        (None, Some(Mode::Worker)) => Ok(Shape::Worker),
        (None, Some(Mode::Async)) => Ok(Shape::Async),
    }
}

/// The error for an unknown method. Lists the methods of its service or, if the service is unknown
/// as well, all services.
fn unknown_method<'a>(
    setting: &str,
    method: &str,
    known: impl Iterator<Item = &'a String>,
) -> Misuse {
    let service = |name: &'a str| name.split_once('/').map_or(name, |(service, _)| service);
    let wanted = method.split_once('/').map_or(method, |(service, _)| service);
    let known: BTreeSet<_> = known.map(String::as_str).collect();
    let of_service: Vec<_> = known.iter().filter(|name| service(name) == wanted).copied().collect();
    let (what, there_are) = if of_service.is_empty() {
        let services: BTreeSet<_> = known.iter().map(|name| service(name)).collect();
        ("service", services.into_iter().collect())
    } else {
        ("method", of_service)
    };
    Misuse {
        at: format!("Builder::{setting}(\"{method}\", ..)"),
        problem: format!("there is no such {what}; there are: {}", there_are.join(", ")),
    }
}
