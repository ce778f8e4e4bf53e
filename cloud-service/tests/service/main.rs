//! The service as its callers see it: the router called directly, and real sockets with a real HTTP client.

mod calls;
mod director;
mod lifecycle;
mod load;
mod program;
mod protocol;
mod rollover;
