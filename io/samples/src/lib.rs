//! Views and the samples they form: file formats, data sets, archives of frames, and the preparation of pixels.
//!
//! Pixels are prepared here and nowhere else, so training and serving see the same bytes. The crate knows no network and no socket,
//! reads no environment and has no clock: its callers give the paths.
//!
//! A module imports only modules to its right or in the lines below. The test `module_orders` checks this diagram:
//!
//! ```text
//! catalogue       catalogue
//! data sets       fashion_6cam  mnist  cifar  eth80  mvmc  class_folders  table
//! sample files    archive  labelled_files  image_sizes  photos
//! interface       in_memory
//! file formats    view_file  idx  numpy  files  left_out  tar_gz  file_names
//! interface       data_set  split  part
//! errors          error
//! pixels          roi  image_codec  image_structure  jpeg  view
//! ```

pub mod archive;
pub mod catalogue;
mod cifar;
pub mod class_folders;
pub mod data_set;
mod error;
mod eth80;
pub mod fashion_6cam;
mod file_names;
mod files;
mod idx;
pub mod image_codec;
mod image_sizes;
mod image_structure;
mod in_memory;
mod jpeg;
mod labelled_files;
mod left_out;
pub mod mnist;
mod mvmc;
mod numpy;
mod part;
pub mod photos;
pub mod roi;
pub mod split;
mod table;
mod tar_gz;
#[cfg(test)]
mod testing;
mod view;
mod view_file;

pub use data_set::{DataSet, NO_CLASS, NONE_NAME};
pub use error::{DataError, Mismatch};
pub use file_names::{is_hidden, is_image_name};
pub use files::read_plain;
pub use image_sizes::{ImageSizes, image_sizes};
pub use in_memory::InMemory;
pub use part::Part;
pub use view::{SampleViews, Shape, View};
