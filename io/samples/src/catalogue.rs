//! Catalogue of the data sets that open by name.
//!
//! To add a data set: write one file with a [`DataSetInfo`], and add one line to [`CATALOGUE`]. In `lib.rs`, declare the module and
//! give it a place in the diagram, which the test `module_orders` checks. Describe it in `docs/data.md`.

use std::fmt::Write;
use std::path::Path;

use crate::data_set::{DataSet, DataSetInfo, OpenOptions, PartsOrigin};
use crate::error::Mismatch;
use crate::{DataError, cifar, class_folders, eth80, fashion_6cam, files, mnist, mvmc, table};

/// All data sets that open by name.
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
/// [`DataError::Options`] for an unknown name or for options that the declaration excludes; [`DataError::DataSet`] for every error that
/// occurs while the data set opens.
pub fn open(name: &str, dir: &Path, options: OpenOptions<'_>) -> Result<Box<dyn DataSet>, DataError> {
    let Some(info) = find(name) else {
        let names = CATALOGUE.iter().map(|info| info.name).collect::<Vec<_>>().join(", ");
        return Err(Mismatch::new(format!("one of {names}"), format!("`{name}`")).options("data set"));
    };
    let refused = |expected: &str, found: String| {
        Err(Mismatch::new(expected, found).options(format!("data set {name}")))
    };
    if info.parts == PartsOrigin::Fixed {
        if options.split.is_some() {
            return refused("no split", "one; the data set has parts of its own".to_owned());
        }
        options.framings.check_default(name)?;
    }
    let regions = options.framings.regions.len();
    if let Some(slots) = options.slots.filter(|slots| regions > 0 && regions != *slots) {
        return refused(&format!("a region for each of {slots} slots"), format!("{regions} regions"));
    }
    let folds = if info.parts == PartsOrigin::Files { options.folds.unwrap_or(0) } else { info.folds };
    if let Some(fold) = options.fold.filter(|fold| *fold >= folds) {
        let expected = match folds {
            0 => "no fold".to_owned(),
            folds => format!("a fold from 0 to {}", folds - 1),
        };
        return refused(&expected, fold.to_string());
    }
    if let Some(seed) = options.view_seed.filter(|_| !info.has_view_seed) {
        return refused("no seed of views", format!("{seed}; its views are photographs"));
    }
    (info.open)(dir, options).map_err(|error| DataError::DataSet { name: info.name, source: Box::new(error) })
}

/// Name of the data set that a folder or archive holds, recognised by its files.
///
/// # Errors
/// [`DataError::Options`] if the files fit no data set or several; [`DataError::Read`] or [`DataError::Content`] for a folder or archive that
/// cannot be read.
pub fn detect(path: &Path) -> Result<&'static str, DataError> {
    let level = files::first_level(path)?;
    let is_file = |name: &str| level.get(name).is_some_and(|is_folder| !is_folder);
    let is_there = |mark: &&str| ["", ".gz", ".bz2"].iter().any(|end| is_file(&format!("{mark}{end}")));
    let told = CATALOGUE.iter().filter(|info| info.marks.iter().any(is_there));
    let told: Vec<&'static str> = told.map(|info| info.name).collect();
    let mismatch = match told.as_slice() {
        [name] => return Ok(*name),
        [] if let Some(name) = level.keys().find(|name| looks_like_a_table(name)) => {
            let found = format!("`{name}`, which looks like a table of labels");
            Mismatch::new(
                "the files of a data set",
                format!(
                    "{found}: save it as labels.csv (CSV UTF-8), or name the folders of classes by --data folders"
                ),
            )
        }
        [] if level.values().any(|is_folder| *is_folder) => return Ok(class_folders::INFO.name),
        [] => {
            let looked_for =
                CATALOGUE.iter().map(|DataSetInfo { name, files, .. }| format!("\n  {name}: {files}"));
            let found: Vec<String> = level.keys().take(3).map(|name| format!("`{name}`")).collect();
            let found = if found.is_empty() {
                "nothing".to_owned()
            } else {
                format!("no folder, and {}", found.join(", "))
            };
            let is_archive = |name: &&String| name.ends_with(".tar.gz") || name.ends_with(".tgz");
            let advice = level.keys().find(is_archive).map_or_else(String::new, |name| {
                format!("; for the archive in it give {}", path.join(name).display())
            });
            Mismatch::new(
                "the files of a data set",
                format!("{found}{advice}; looked for:{}", looked_for.collect::<String>()),
            )
        }
        several => {
            let found = format!("files that are those of {}; name one by --data", several.join(", "));
            Mismatch::new("the files of one data set", found)
        }
    };
    Err(mismatch.options(path.display()))
}

/// Returns true for a name that somebody may have meant as `labels.csv`.
fn looks_like_a_table(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.strip_prefix("labels.").is_some_and(|end| ["csv", "tsv", "txt", "xls", "xlsx", "ods"].contains(&end))
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
    fn a_data_set_is_told_by_its_files_and_what_they_leave_open_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let error = || detect(dir.path()).unwrap_err().to_string();
        assert!(error().contains("found nothing; looked for:\n  fashion-6cam: "), "{}", error());
        std::fs::write(path("photos.tar.gz"), "").unwrap();
        std::fs::create_dir(path(".git")).unwrap();
        let advice = format!(
            "no folder, and `photos.tar.gz`; for the archive in it give {}",
            path("photos.tar.gz").display()
        );
        assert!(error().contains(&advice), "{}", error());
        std::fs::create_dir(path("car")).unwrap();
        assert_eq!(detect(dir.path()).unwrap(), "folders");
        for name in ["Labels.csv", "labels.tsv", "LABELS.XLSX"] {
            std::fs::write(path(name), "").unwrap();
            assert!(error().contains(name) && error().contains("save it as labels.csv"), "{}", error());
            std::fs::remove_file(path(name)).unwrap();
        }
        std::fs::write(path("train-images-idx3-ubyte.gz"), "").unwrap();
        assert!(
            error().contains("those of fashion-6cam, fashion-mnist, mnist; name one by --data"),
            "{}",
            error()
        );
        std::fs::remove_file(path("train-images-idx3-ubyte.gz")).unwrap();
        for (file, name) in [
            ("labels.csv", "table"),
            ("mvmc.npz", "mvmc"),
            ("data_batch_1.bin.bz2", "cifar-10"),
            ("eth80-views-idx5-ubyte", "eth80"),
        ] {
            std::fs::write(path(file), "").unwrap();
            assert_eq!(detect(dir.path()).unwrap(), name);
            std::fs::remove_file(path(file)).unwrap();
        }
        assert!(matches!(detect(&path("none")), Err(DataError::Read { .. })));
    }

    #[test]
    fn an_archive_is_told_by_its_members() {
        let told = |member: &str| {
            let dir = tempfile::tempdir().unwrap();
            let file = dir.path().join("data.tar.gz");
            std::fs::write(&file, crate::testing::packed(&[(member, b"x")])).unwrap();
            detect(&file).map_err(|error| error.to_string())
        };
        assert_eq!(told("./labels.csv"), Ok("table"));
        assert_eq!(told("train/a/labels.csv"), Ok("folders"));
        assert!(told("x.png").unwrap_err().contains("no folder, and `x.png`"));
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
            let drawn = OpenOptions { fold: Some(90), folds: Some(90), ..fold };
            let expected = if info.parts == PartsOrigin::Files { "a fold from 0 to 89" } else { "fold" };
            assert!(error(drawn, info.name).contains(expected), "{}", info.name);
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
