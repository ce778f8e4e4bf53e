//! Arrays in files of `NumPy`: one array in a `.npy`, several in a `.npz`.

mod npy;
mod npz;
#[cfg(test)]
mod tests;

pub(crate) use npy::{Array, to_pixels, values};
pub(crate) use npz::Npz;
