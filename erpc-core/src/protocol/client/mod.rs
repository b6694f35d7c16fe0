//! The client's role: sessions that this endpoint opened, and the calls on them.
//!
//! | file | what it owns |
//! |---|---|
//! | `table` | all sessions: finds the one that a packet, a timer or a caller names, and does what its step asks for |
//! | `phases`: `connecting`, `session`, `closing` | a session in each phase of its life |
//! | `followup` | what a step of a session asks of the table |
//! | `common`, `repeat` | its name, timer and queue of calls; messages that are sent until they are answered |
//! | `slot`, `call`, `response` | a request slot, the call in it, and its response while that comes in |
//! | `retry`, `recovery` | when an answer is overdue; which losses were repaired |
//! | `probing`, `method_times`, `recent_max` | of a server: whether it is there, and how long its handlers lately took |
//! | `reservation` | what a packet reserves before it leaves, and what that is taken from |
//! | `credits`, `credit_limit`, `pacer`, `pace` | what limits one session, and its calls that wait for it |
//! | `cut`, `path_size` | how messages are cut into packets, and what size of them the path carries |
//! | `lines` | what all sessions share, and the calls that wait for it |
//! | `liveness`, `kept` | whether the server is there; what it keeps until it is told |

mod call;
mod closing;
mod common;
mod connecting;
mod credit_limit;
mod credits;
mod cut;
mod followup;
mod kept;
mod lines;
mod liveness;
mod method_times;
mod pace;
mod pacer;
mod path_size;
mod phases;
mod probing;
mod recent_max;
mod recovery;
mod repeat;
mod reservation;
mod response;
mod retry;
mod session;
mod slot;
mod table;

pub(super) use call::Finished;
pub(super) use table::ClientTable;
