//! Trains the sections and exits of a distributed network together and exports them as one bundle.
//!
//! An [`experiment::Experiment`] is a network spec, a recipe and the choice of data. [`network::Network`] has the layers,
//! [`joint::Trainer`] minimises the joint loss over every exit ([`loss`]), [`reduction`] combines the gradients of the workers.
//! [`report`] writes the figures of a run, [`export`] the bundle, after every engine has agreed with the trained network. [`run`] stores a
//! run in a folder, from which a killed run resumes. [`transfer`] begins with the weights of another run.
//!
//! The crate knows no sockets, services and time limits. Outside [`run`] it reads no clock, and outside [`run`] and [`checkpoint`] no file but
//! spec, recipe and the files of Linux that tell the memory of the machine.
//!
//! A module imports only modules to its right or in the lines below. The test `module_orders` checks this diagram:
//!
//! ```text
//! runs            run  untrained  single_camera  memory
//! training        joint  scale_out
//! results         training_weights  report  warnings  export  checkpoint
//! evaluation      coding_fit  evaluation
//! gradients       reduction  optimiser  loss
//! first weights   transfer
//! experiment      experiment  recipe
//! network         network  layers
//! computing       onnx  fused  workers
//! ```

pub mod checkpoint;
pub mod coding_fit;
pub mod evaluation;
pub mod experiment;
pub mod export;
pub mod fused;
pub mod joint;
pub mod layers;
pub mod loss;
pub mod memory;
pub mod network;
pub mod onnx;
pub mod optimiser;
pub mod recipe;
pub mod reduction;
pub mod report;
pub mod run;
pub mod scale_out;
pub mod single_camera;
#[cfg(test)]
mod testing;
pub mod training_weights;
pub mod transfer;
pub mod untrained;
pub mod warnings;
pub mod workers;
