//! Tests of the service from outside: by calls of the router, and over real sockets with a real HTTP client.

mod calls;
mod grpc;
mod lifecycle;
mod load;
mod model_control;
mod program;
mod protocol;
mod rollover;
mod slow_peers;
