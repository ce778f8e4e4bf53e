//! What tests compare the kernels with.

pub mod reference;
