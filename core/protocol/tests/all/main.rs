//! Messages from outside: round trips, damaged input, golden bytes.

mod inference_bodies;
mod messages;
