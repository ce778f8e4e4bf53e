//! References that tests compare the kernels with.

pub mod reference;
