//! Views and the samples they form: loaders, decoding, resizing, simulated cameras, archives of frames.
//!
//! Pixels are prepared here and nowhere else, so training and serving see the same bytes. The crate knows
//! nothing of networks, messages or sockets, reads no environment and holds no clock: paths come from its
//! caller.

pub mod archive;
pub mod cifar;
pub mod data_dir;
pub mod data_set;
pub mod eth80;
pub mod fashion_6cam;
mod files;
pub mod folder_form;
mod gathered;
pub mod idx;
pub mod image_codec;
pub mod mnist;
pub mod mvmc;
pub mod numpy;
pub mod roi;
pub mod split;
mod stored;
pub mod table;
pub mod tree;
mod view;

pub use data_set::{DataSet, Part};
pub use files::ReadError;
pub use gathered::GatherError;
pub use stored::Stored;
pub use view::{SampleViews, Shape, View};
