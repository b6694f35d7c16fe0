//! The client's role: sessions that this endpoint opened, and the calls on them.
//!
//! | file | what it owns |
//! |---|---|
//! | `table` | all sessions; finds the session of a packet, timer or caller and runs its step |
//! | `phases`: `connecting`, `session`, `closing` | a session in each phase of its life |
//! | `followup` | what the table does after a step of a session |
//! | `common`, `repeat` | id, timer and call queue of a session; messages repeated until answered |
//! | `slot`, `call`, `response` | a request slot, the call in it, and a response in reassembly |
//! | `retry`, `recovery` | when an answer is overdue; which losses were repaired |
//! | `probing`, `method_times`, `recent_max` | per server: is it alive, how slow are its handlers |
//! | `reservation` | what a packet reserves before it is sent |
//! | `credits`, `credit_limit`, `pacer`, `pace` | limits of one session, and its waiting calls |
//! | `cut`, `path_size` | how messages are cut into packets; which packet size the path carries |
//! | `lines` | what all sessions share, and the calls that wait for it |
//! | `liveness`, `kept` | whether the server is alive; which responses it still keeps |

mod call;
mod closing;
mod common;
mod connecting;
mod credit_limit;
mod credits;
mod cut;
mod followup;
mod inquiry;
mod kept;
mod lines;
mod liveness;
mod long_responses;
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
