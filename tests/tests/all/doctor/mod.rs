//! `headwater doctor` reports each provoked failure with level, name and advice, and has no finding of level `fail` on a sound site.

mod broker;
mod certificates;
mod provoked;
mod running_site;
mod settings;
