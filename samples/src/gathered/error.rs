//! Why samples do not make a data set.

use std::path::PathBuf;

/// Why samples do not make a data set.
#[derive(Debug, thiserror::Error)]
pub enum GatherError {
    /// One picture in two parts.
    #[error(
        "{}: expected no picture in two parts, found the same bytes in `{first}` and `{second}`; keep all pictures of one scene in one \
         part, or results on test mean nothing (a camera that does not see a sample has no picture; --allow-leaks takes the data as it is)",
        root.display()
    )]
    Leak {
        /// Folder or archive.
        root: PathBuf,
        /// One.
        first: String,
        /// The other.
        second: String,
    },
    /// One group in two parts.
    #[error(
        "{}: expected no group in two parts, found `{group}` of samples `{first}` and `{second}`; keep a group in one part, or results on \
         test mean nothing (--allow-leaks takes the data as it is)",
        root.display()
    )]
    LeakingGroup {
        /// Folder or archive.
        root: PathBuf,
        /// The group.
        group: String,
        /// One.
        first: String,
        /// The other.
        second: String,
    },
    /// A part without samples.
    #[error("{}: expected samples in each of train, val and test, found none in {part}; take whole scenes out of another part for it", root.display())]
    NoPart {
        /// Folder or archive.
        root: PathBuf,
        /// The part.
        part: &'static str,
    },
    /// Parts for some samples and none for others.
    #[error("{}: expected a part for every sample or for none, found one for `{with}` and none for `{without}`", root.display())]
    SomeParts {
        /// Folder or archive.
        root: PathBuf,
        /// A sample that has one.
        with: String,
        /// A sample that has none.
        without: String,
    },
    /// A split for data that has parts.
    #[error("{}: expected no split, found one; the data has parts of its own", root.display())]
    OwnParts {
        /// Folder or archive.
        root: PathBuf,
    },
    /// A class that cannot be in every part.
    #[error(
        "{}: class `{class}`: expected samples in each of train, val and test, found {groups} groups to share out, and no way to do so; a \
         group (one scene, one picture) stays in one part: add others, or say the part of each sample yourself",
        root.display()
    )]
    FewGroups {
        /// Folder or archive.
        root: PathBuf,
        /// The class.
        class: String,
        /// Its groups.
        groups: usize,
    },
    /// A class that is not trained.
    #[error("{}: sample `{sample}`: expected a class of train ({}), found `{class}`", root.display(), known.join(", "))]
    UnknownClass {
        /// Folder or archive.
        root: PathBuf,
        /// The class.
        class: String,
        /// A sample of it.
        sample: String,
        /// Classes of the train part.
        known: Vec<String>,
    },
    /// More classes than there can be.
    #[error("{}: expected at most {most} classes, found {found}", root.display())]
    Classes {
        /// Folder or archive.
        root: PathBuf,
        /// Most.
        most: usize,
        /// Classes found.
        found: usize,
    },
}
