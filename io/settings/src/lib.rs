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
//!
//! A module imports only modules to its right or in the lines below. The test `module_orders` checks this diagram:
//!
//! ```text
//! tests           testing
//! checks          certificates  disk  finding
//! reading         show  load  command_line
//! shared settings security  sections
//! declaration     declare  values
//! ground          release_file  stop  sources
//! ```

mod certificates;
mod command_line;
mod declare;
mod disk;
mod finding;
mod load;
mod release_file;
mod sections;
mod security;
mod show;
mod sources;
mod stop;
#[cfg(feature = "testing")]
mod testing;
mod values;

pub use certificates::expiry;
pub use declare::{
    Declared, Field, Origin, Reader, Section, Tables, Value, default, flat, optional, required, secret,
    section, switch, tables,
};
pub use disk::Written;
pub use finding::{
    Finding, Level, add_mistakes, bundles, no_file, print_checked, readable_secret, split_advice,
};
pub use headwater_toml_file::nearest;
pub use load::{Loaded, Outside, Program, checked_live, defaults, load, load_each};
pub use sections::{AdminSettings, BrokerSettings, CommandLine, LogSettings};
pub use security::{SecuritySettings, TlsSettings};
pub use show::example;
pub use sources::{Sources, read_document};
pub use stop::{Stop, print_result};
pub use values::{List, Misfit, Mistake, within, word};
