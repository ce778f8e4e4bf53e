//! The service by its interface: the router called directly, and real sockets with a real HTTP client.

mod calls;
mod lifecycle;
mod load;
mod model_control;
mod program;
mod protocol;
mod rollover;
