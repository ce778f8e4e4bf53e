//! Addresses and TCP connections of every tier.
//!
//! An [`Endpoint`] is the address of a peer. A [`Connector`] opens connections to endpoints, counts the bytes on their sockets, and
//! is the one place that knows TLS ([`tls`]). The features `http-client` and `http-server` add HTTP/1, `grpc-server` adds calls of gRPC.
//! The crate does not know what the bytes mean.
//!
//! A module imports only modules to its right or in the lines below. The test `module_orders` checks this diagram:
//!
//! ```text
//! access          broker_access
//! HTTP            http_client  http_server
//! connections     connector  connection  held_port  reachable
//! TLS             tls
//! files           secret  reloading  file
//! sockets         socket  endpoint  redacted  random  log_limit
//! ```

mod broker_access;
mod connection;
mod connector;
mod endpoint;
mod file;
mod held_port;
#[cfg(feature = "http-client")]
mod http_client;
#[cfg(feature = "http-server")]
mod http_server;
mod log_limit;
mod random;
mod reachable;
mod redacted;
mod reloading;
mod secret;
mod socket;
pub mod tls;

pub use broker_access::{BrokerAccess, Credentials};
pub use connection::Connection;
pub use connector::{Connector, UnknownHost};
pub use endpoint::{Endpoint, EndpointError, Scheme};
pub use file::{
    PUBLIC_MODE, SECRET_MODE, folder_of, lock_folder_of, lock_within, read_bounded, readers, replace_file,
    rewrite_file, sync_folder_of, warn_of_readers,
};
pub use held_port::held_port;
#[cfg(feature = "http-client")]
pub use http_client::{HttpAnswers, HttpClient, HttpClientConfig, HttpConnector};
#[cfg(feature = "grpc-server")]
pub use http_server::grpc::{GrpcCall, GrpcLimits, GrpcMessageError, GrpcStatus, serve_grpc};
#[cfg(feature = "http-server")]
pub use http_server::{
    CloseReason, ClosedConnections, HttpListener, RequestConnection, ServerLimits, listen, serve,
};
pub use log_limit::{LOG_WINDOW, LogLimit};
pub use random::random;
pub use reachable::reachable_address;
pub use redacted::redacted;
pub use reloading::Reloading;
pub use secret::Secret;
pub use socket::WireBytes;
