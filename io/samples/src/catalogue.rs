//! Catalogue of the data sets that open by name.
//!
//! To add a data set: write one file with a [`DataSetInfo`], and add one line to [`CATALOGUE`]. In `lib.rs`, declare the module and
//! give it a place in the diagram, which the test `module_orders` checks. Describe it in `docs/data.md`.

use std::fmt::Write;
use std::path::Path;

use crate::data_set::{DataSet, DataSetInfo, OpenOptions, PartsOrigin};
use crate::error::Mismatch;
use crate::{DataError, cifar, class_folders, eth80, fashion_6cam, mnist, mvmc, table};

/// All data sets that open by name. The first one is the default of commands.
pub const CATALOGUE: &[DataSetInfo] = &[
    fashion_6cam::INFO,
    mnist::FASHION_MNIST,
    mnist::MNIST,
    cifar::INFO,
    eth80::INFO,
    mvmc::INFO,
    class_folders::INFO,
    table::INFO,
];

/// The declaration of the data set with this name; `None` for an unknown name.
#[must_use]
pub fn find(name: &str) -> Option<&'static DataSetInfo> {
    CATALOGUE.iter().find(|info| info.name == name)
}

/// Opens the data set `name`, whose files are in `dir`.
///
/// # Errors
/// [`DataError::Options`] for an unknown name or for options that do not fit, [`DataError::DataSet`] for missing or unsound files.
pub fn open(name: &str, dir: &Path, options: OpenOptions) -> Result<Box<dyn DataSet>, DataError> {
    let Some(info) = find(name) else {
        let names = CATALOGUE.iter().map(|info| info.name).collect::<Vec<_>>().join(", ");
        return Err(Mismatch::new(format!("one of {names}"), format!("`{name}`")).options("data set"));
    };
    if options.split.is_some() && info.parts == PartsOrigin::Fixed {
        let mismatch = Mismatch::new("no split", "one; the data set has parts of its own");
        return Err(mismatch.options(format!("data set {name}")));
    }
    if let Some(fold) = options.fold.filter(|fold| *fold >= info.folds) {
        let expected = match info.folds {
            0 => "no fold".to_owned(),
            folds => format!("a fold from 0 to {}", folds - 1),
        };
        return Err(Mismatch::new(expected, fold.to_string()).options(format!("data set {name}")));
    }
    if let Some(seed) = options.view_seed.filter(|_| !info.has_view_seed) {
        let mismatch = Mismatch::new("no seed of views", format!("{seed}; its views are photographs"));
        return Err(mismatch.options(format!("data set {name}")));
    }
    (info.open)(dir, options).map_err(|error| DataError::DataSet { name: info.name, source: Box::new(error) })
}

/// Help text with a paragraph for each data set.
#[must_use]
pub fn help() -> String {
    let mut text = String::new();
    for DataSetInfo { name, content, files, licence, .. } in CATALOGUE {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{name}: {content}. Files: {files}. Licence: {licence}.");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::split::Split;

    #[test]
    fn every_data_set_has_one_name_and_a_line_of_help() {
        let help = help();
        for (at, info) in CATALOGUE.iter().enumerate() {
            assert_eq!(CATALOGUE.iter().position(|other| other.name == info.name), Some(at));
            assert!(help.lines().nth(at).unwrap().starts_with(&format!("{}: ", info.name)), "{help}");
        }
    }

    #[test]
    fn an_unknown_name_is_refused_with_all_names() {
        let error = open("imagenet", Path::new("."), OpenOptions::default()).err().unwrap().to_string();
        for info in CATALOGUE {
            assert!(error.contains(info.name) && error.ends_with("found `imagenet`"), "{error}");
        }
    }

    #[test]
    fn a_fold_or_a_view_seed_that_a_data_set_does_not_have_is_refused() {
        let error = |options, name| open(name, Path::new("/nowhere"), options).err().unwrap().to_string();
        for info in CATALOGUE {
            let fold = OpenOptions { fold: Some(info.folds), ..OpenOptions::default() };
            assert!(error(fold, info.name).contains(&format!("found {}", info.folds)), "{}", info.name);
            let seed = OpenOptions { view_seed: Some(3), ..OpenOptions::default() };
            assert_eq!(error(seed, info.name).contains("expected no seed of views"), !info.has_view_seed);
        }
    }

    #[test]
    fn a_split_is_refused_by_every_data_set_with_fixed_parts() {
        let options = OpenOptions { split: Some(Split::default()), ..OpenOptions::default() };
        for info in CATALOGUE {
            let error = open(info.name, Path::new("/nowhere"), options).err().unwrap().to_string();
            assert_eq!(error.contains("expected no split"), info.parts == PartsOrigin::Fixed, "{error}");
        }
    }
}
