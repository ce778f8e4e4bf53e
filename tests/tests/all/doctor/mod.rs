//! `headwater doctor`: each provoked failure is named with its level, its name and what to do, and a whole site is well.

mod broker;
mod certificates;
mod provoked;
mod running_site;
mod settings;
