//! The crate from outside: the shipped bundle, and the distributed network against the whole one.

mod distributed;
mod shipped;
