//! Thresholds and promises of the exits of a trained network, from its logits. No tensor library, no weights.
//!
//! [`tuning`] chooses temperatures, rules and thresholds on the validation part, [`promise`] tests on the calibration part how much the
//! thresholds lose, [`sample_cost`] counts bytes and compute of samples, [`account`] counts the samples that leave at each exit.
//! [`evaluation`] runs a bundle over a part of the data, [`by_class`] lists confusions and wrong answers by class.
//!
//! A module imports only modules to its right or in the lines below. The test `module_orders` checks this diagram:
//!
//! ```text
//! thresholds      tuning
//! wrong answers   by_class
//! tests           promise
//! figures         account  sample_cost
//! logits          evaluation  logits_file  part_logits
//! data            data  wire_coding
//! ground          by_exit  message  number_file  random
//! ```

pub mod account;
pub mod by_class;
pub mod by_exit;
pub mod data;
pub mod evaluation;
pub mod logits_file;
pub mod message;
pub mod number_file;
pub mod part_logits;
pub mod promise;
pub mod random;
pub mod sample_cost;
pub mod tuning;
pub mod wire_coding;
