//! Client of one group of devices: sends triggers, receives results, and keeps account of every sample.
//!
//! ```text
//!                      trigger
//! GroupClient ───────────────────────> broker ──> devices, leader
//!      │        result, settled,         │
//!      │        birth, status            │
//!      └──────── SampleAccount <─────────┘
//! ```
//!
//! Every sample that is triggered or captured ends in one decision or one drop. [`SampleAccount`] shows how many samples are lost
//! and which have two different decisions. The feature `start` adds [`start`], which runs the services of a group in this
//! process or as programs. The crate does not know how a sample is decided.
//!
//! A module imports only modules to its right or in the lines below. The test `module_orders` checks this diagram:
//!
//! ```text
//! start           start
//! client          waits  policy_client  client
//! accounts        sample_account  known_devices
//! errors          error
//! ```

mod client;
mod error;
mod known_devices;
mod policy_client;
mod sample_account;
#[cfg(feature = "start")]
pub mod start;
mod waits;

pub use client::{ClientSettings, GroupClient, GroupEvent};
pub use error::GroupError;
pub use known_devices::KnownDevices;
pub use policy_client::PolicyClient;
pub use sample_account::{AccountedSample, SampleAccount};
