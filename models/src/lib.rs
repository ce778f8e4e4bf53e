//! Trains the sections and exits of a distributed network together and exports them as one bundle.
//!
//! A [`spec::Spec`] says which network, a [`recipe::Recipe`] how it is trained. [`network::Network`] holds the layers,
//! [`training::Trainer`] minimises the joint loss over every exit, [`calibration`] chooses temperatures and thresholds on the
//! validation part, [`export`] writes the bundle after an engine has agreed with the trained network. [`run`] keeps all of it in a
//! folder that survives a kill.
//!
//! It refuses to know sockets, services and time limits; the part outside [`run`] reads no clock and no file but spec and recipe.

pub mod bundle_logits;
pub mod by_exit;
pub mod calibration;
pub mod data;
pub mod evaluation;
pub mod export;
pub mod fused;
pub mod layers;
pub mod loss;
pub mod network;
pub mod random;
pub mod recipe;
pub mod run;
pub mod single_camera;
pub mod spec;
pub mod training;
