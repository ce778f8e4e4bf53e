//! `headwater doctor`: provoked failures are reported with their level, name and advice, and a whole site has no findings that fail.

mod broker;
mod certificates;
mod provoked;
mod running_site;
mod settings;
