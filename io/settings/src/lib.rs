//! Settings of every program: one declaration per key gives flag, environment variable, TOML key, help, default and example file.
//!
//! A program declares its settings as structs in [`settings!`], one struct per section of the file:
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

mod command_line;
mod declare;
mod load;
mod reader;
mod sections;
mod security;
mod show;
mod sources;
#[cfg(feature = "testing")]
mod testing;
mod values;

pub use declare::{
    Declared, Field, Section, Tables, default, flat, optional, required, secret, section, switch, tables,
};
pub use headwater_toml_file::nearest;
pub use load::{Loaded, Program, Stop, checked_live, defaults, load, print_result};
pub use reader::{Origin, Reader, Value};
pub use sections::{AdminSettings, BrokerSettings, CommandLine, LogSettings};
pub use security::{SecuritySettings, TlsSettings};
pub use show::example;
pub use sources::Sources;
pub use values::{List, Misfit, Mistake, within, word};
