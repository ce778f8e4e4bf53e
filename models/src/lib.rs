//! Network specs, layers, joint training, calibration, thresholds and export to one bundle.

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
pub mod spec;
pub mod training;
