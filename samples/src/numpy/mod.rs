//! Arrays as `NumPy` keeps them: one in a `.npy`, several in a `.npz`.

mod error;
mod npy;
mod npz;
#[cfg(test)]
mod tests;

pub use error::{ArrayError, NumpyError};
pub use npy::{Array, Element};
pub(crate) use npy::{each, pixel};
pub use npz::Npz;
