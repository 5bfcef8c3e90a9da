//! WHO IS THERE: rendezvous, topology, agreement, liveness, split.

mod communicator;

pub use communicator::{
    CliqueInfo, Communicator, Dependent, Hierarchy, RouteChoice, Session, TransportChoice, UniqueId,
};
