//! WHO IS THERE: rendezvous, topology, agreement, liveness, split.

mod answers;
mod birth;
mod clique;
mod communicator;
mod control;
mod departure;
mod desk;
mod in_step;
mod join;
mod link;
mod net;
mod place;
mod post;
mod rendezvous;
mod seat;
mod session;
mod star;
#[cfg(test)]
mod tests;
mod topology;
mod used;
mod wire;
mod words;

pub use clique::CliqueInfo;
pub use communicator::{Communicator, Dependent, Hierarchy, RouteChoice, TransportChoice};
pub use departure::depart_all;
pub use place::UniqueId;
pub use session::Session;
