//! The authority of a site: certificates for every tier, revocation, and Mosquitto's configuration and access rules.
//!
//! ```text
//! hall/                           folder of the site
//!   site.json  site.lock          every certificate that was issued; one program at a time
//!   authority.crt  authority.key  revoked.crl
//!   broker/                       mosquitto.conf  access.rules, and the four files of every member:
//!   cloud/                        certificate.pem  key.pem  authority.pem  revoked.crl
//!   gate/cam-0/  gate/leader/     the same for the members of a group
//! ```
//! The subject of a certificate names the holder: `O` is the site, `OU` the group, `CN` the name. Mosquitto takes the subject as the user
//! name, and the access rules have one block for each user.
//!
//! A module imports only modules to its right or in the lines below. The test `module_orders` checks this diagram:
//!
//! ```text
//! site            unfinished  site
//! certificates    issue  signing
//! members         access  member  role  host
//! broker          mosquitto
//! files           files  error
//! ```

mod access;
mod error;
mod files;
mod host;
mod issue;
mod member;
mod mosquitto;
mod role;
mod signing;
mod site;
mod unfinished;

pub use error::EnrollError;
pub use member::{Member, PageRights};
pub use mosquitto::BrokerOptions;
pub use role::Role;
pub use signing::{read_signing_key, write_signing_key};
pub use site::{Issued, Site};
pub use unfinished::Unfinished;
