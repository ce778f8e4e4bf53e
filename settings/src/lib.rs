//! Settings of every program: one declaration per key gives flag, environment variable, TOML key, help, default and example file.
//!
//! A program declares its settings as structs that derive [`conf::Conf`], one struct per section of the file:
//!
//! ```text
//! flag --broker-address        ─┐ wins over
//! HEADWATER_BROKER_ADDRESS     ─┤ wins over     load::<S>() ─> S, and where each value came from
//! [broker] address = "..."     ─┤ wins over                    or every mistake at once
//! default of the declaration   ─┘
//! ```
//!
//! The key of a setting is its path in the structs (`broker.address`). The crate knows no setting of a single program, opens no
//! socket and starts no service. Only [`Sources::of_process`] reads the process's arguments and environment.

mod declared;
mod load;
mod misfits;
mod mistakes;
mod sections;
mod security;
mod show;
mod sources;
#[cfg(feature = "testing")]
mod testing;
mod values;

pub use conf::Conf;
pub use declared::Declared;
pub use load::{
    Loaded, Origin, Settings, Stop, Value, checked_live, defaults, keys, load, load_with_tables, print_result,
};
pub use mistakes::nearest;
pub use sections::{AdminSettings, BrokerSettings, CommandLine, LogSettings};
pub use security::{SecuritySettings, TlsSettings};
pub use show::example;
pub use sources::Sources;
pub use values::{Bounded, List, Mistake, word};
