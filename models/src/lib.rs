//! Trains the sections and exits of a distributed network together and exports them as one bundle.
//!
//! An [`experiment::Experiment`] is a network spec, a recipe and the choice of data. [`network::Network`] has the layers,
//! [`training::Trainer`] minimises the joint loss over every exit ([`loss`]), [`reduction`] combines the gradients of the workers.
//! [`tuning`] chooses temperatures and thresholds on the validation part, [`sample_cost`] counts bytes and compute of samples, [`report`] counts where samples leave and writes
//! the figures. [`table`] trains the rows of an experiment and makes their table from files of logits. [`export`] writes the bundle after an engine has agreed with the trained network. [`run`] stores a run in a folder that
//! survives a kill.
//!
//! The crate knows no sockets, services and time limits. Outside [`run`] it reads no clock, and no file but spec and recipe.
//!
//! A module imports only modules to its right or in the lines below. The test `module_orders` checks this diagram:
//!
//! ```text
//! experiments     table
//! runs            run  single_camera
//! training        training  scale_out
//! results         report  export  checkpoint
//! evaluation      evaluation  coding_fit
//! gradients       reduction  optimiser  loss
//! experiment      experiment  recipe
//! network         network  layers
//! thresholds      tuning  promise  account  sample_cost  logits_file  part_logits
//! computing       onnx  fused  workers
//! inputs          data  spec
//! ground          by_exit  message  number_file  random  wire_coding  file_error
//! ```

pub mod account;
pub mod by_exit;
pub mod checkpoint;
pub mod coding_fit;
pub mod data;
pub mod evaluation;
pub mod experiment;
pub mod export;
pub mod file_error;
pub mod fused;
pub mod layers;
pub mod logits_file;
pub mod loss;
pub mod message;
pub mod network;
pub mod number_file;
pub mod onnx;
pub mod optimiser;
pub mod part_logits;
pub mod promise;
pub mod random;
pub mod recipe;
pub mod reduction;
pub mod report;
pub mod run;
pub mod sample_cost;
pub mod scale_out;
pub mod single_camera;
pub mod spec;
pub mod table;
pub mod training;
pub mod tuning;
pub mod wire_coding;
pub mod workers;
