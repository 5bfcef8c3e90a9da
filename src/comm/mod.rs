//! WHO IS THERE: rendezvous, topology, agreement, liveness, split.

mod birth;
mod communicator;
mod control;
mod departure;
mod join;
mod link;
mod net;
mod place;
mod post;
mod rendezvous;
mod session;
mod star;
#[cfg(test)]
mod tests;
mod topology;
mod wire;

pub use communicator::{CliqueInfo, Communicator, Dependent, Hierarchy, RouteChoice, TransportChoice};
pub use departure::depart_all;
pub use place::UniqueId;
pub use session::Session;
