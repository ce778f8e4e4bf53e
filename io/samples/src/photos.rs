//! Photos without classes: files, and the images of folders, as samples of one camera or several.
//!
//! ```text
//! day/17.jpg                        one camera: each photo is a sample
//! day/17/cam0.jpg  day/17/cam3.jpg  several cameras: a folder is a sample; cameras without a file do not see it
//! day/cam0/17.jpg  day/cam3/17.jpg  several cameras: photos of one name are a sample
//! ```
//! Images of folders are recognised and left out by the rules of a data set.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::error::Mismatch;
use crate::file_names::{camera, image_stem, text_of};
use crate::files::{FolderImages, read_plain};
use crate::image_codec::MAX_FILE_BYTES;
use crate::roi::{self, Framing};
use crate::{DataError, Shape, View};

/// A photo that is not read yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Photo {
    /// The file.
    pub path: PathBuf,
    /// Reason why the file cannot be opened, if the listing of its folder found one.
    fault: Option<String>,
}

/// Photos of one sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PhotoSample {
    /// Name of the sample: its file or folder, or the name that its files share without the camera and the ending.
    pub name: String,
    /// Photo of each slot; `None` for a slot that does not see the sample.
    pub photos: Vec<Option<Photo>>,
}

impl Photo {
    fn new(path: PathBuf) -> Self {
        Self { path, fault: None }
    }

    /// Reads the view in the photo with the framing of its slot, as the training data and a device's frames are read.
    ///
    /// # Errors
    /// The reason why the file gives no view, in words.
    pub fn view(&self, shape: Shape, framing: Framing) -> Result<View, String> {
        if let Some(fault) = &self.fault {
            return Err(fault.clone());
        }
        let bytes = read_plain(&self.path, MAX_FILE_BYTES).map_err(|error| error.to_string())?;
        roi::decode(&bytes, shape, framing).map_err(|error| error.to_string())
    }
}

/// Lists photos in the order of `paths`, photos of a folder in the order of their names. A path that is no folder is a photo, also if it
/// cannot be read. Also returns remarks about what is left out.
///
/// # Errors
/// [`DataError::Read`] for a folder that cannot be listed.
pub fn list(paths: &[PathBuf]) -> Result<(Vec<Photo>, Vec<String>), DataError> {
    let (mut photos, mut notes) = (Vec::new(), Vec::new());
    for path in paths {
        if !path.is_dir() {
            photos.push(Photo::new(path.clone()));
            continue;
        }
        let FolderImages { images, broken, left_out } = FolderImages::of(path)?;
        let broken = broken.into_iter().map(|(path, error)| Photo { path, fault: Some(error.to_string()) });
        let mut found: Vec<Photo> = images.into_iter().map(Photo::new).chain(broken).collect();
        found.sort_by(|a, b| a.path.cmp(&b.path));
        photos.extend(found);
        notes.extend(left_out);
    }
    Ok((photos, notes))
}

/// Samples of a network of `slots` cameras, in the order of their first photos.
///
/// # Errors
/// With several slots, [`DataError::Content`] for a photo whose path names no camera below `slots`, and for a second photo of a camera in a sample.
pub fn samples(photos: Vec<Photo>, slots: usize) -> Result<Vec<PhotoSample>, DataError> {
    if slots == 1 {
        let sample = |photo: Photo| PhotoSample { name: text(&photo.path), photos: vec![Some(photo)] };
        return Ok(photos.into_iter().map(sample).collect());
    }
    let mut samples: Vec<PhotoSample> = Vec::new();
    let mut index_of: HashMap<String, usize> = HashMap::new();
    for photo in photos {
        let Some((name, slot)) = camera_of(&photo.path).filter(|(_, slot)| *slot < slots) else {
            let last = slots - 1;
            let expected = format!(
                "a photo of one of {slots} cameras, SAMPLE/camN.jpg or camN/SAMPLE.jpg with N from 0 to {last}"
            );
            return Err(Mismatch::new(expected, "a path that names none").invalid(photo.path.display()));
        };
        let index = *index_of.entry(name).or_insert_with_key(|name| {
            samples.push(PhotoSample { name: name.clone(), photos: vec![None; slots] });
            samples.len() - 1
        });
        let place = &mut samples[index].photos[slot];
        if let Some(first) = &*place {
            let found = format!("`{}` and this one", first.path.display());
            let expected = format!("one photo of camera {slot} for a sample");
            return Err(Mismatch::new(expected, found).invalid(photo.path.display()));
        }
        *place = Some(photo);
    }
    Ok(samples)
}

/// Samples of one camera whose frames hold the regions of all `slots`: each slot sees each photo. `None` if a photo names its camera.
#[must_use]
pub fn of_one_camera(photos: &[Photo], slots: usize) -> Option<Vec<PhotoSample>> {
    let sample =
        |photo: &Photo| PhotoSample { name: text(&photo.path), photos: vec![Some(photo.clone()); slots] };
    photos.iter().all(|photo| camera_of(&photo.path).is_none()).then(|| photos.iter().map(sample).collect())
}

/// Name of the sample and the camera of a photo. The file or its folder names the camera; `None` if neither does.
fn camera_of(path: &Path) -> Option<(String, usize)> {
    let file = text_of(path.file_name()?);
    let (stem, _) = image_stem(&file);
    let folder = path.parent()?;
    if let Some(slot) = camera(stem) {
        return Some((text(folder), slot));
    }
    let slot = camera(&text_of(folder.file_name()?))?;
    Some((text(&folder.parent()?.join(stem)), slot))
}

fn text(path: &Path) -> String {
    text_of(path.as_os_str())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::testing::directory;

    #[test]
    fn photos_come_in_the_order_of_the_paths_and_what_is_no_image_is_counted() {
        let dir = directory(&["b/2.jpg", "b/1.png", "a.png", ".hidden/3.png", "b/no ending"]);
        fs::write(dir.path().join("notes.txt"), "not an image").unwrap();
        fs::write(dir.path().join("empty.jpg"), "").unwrap();
        let missing = dir.path().join("missing.jpg");
        let (photos, notes) = list(&[missing, dir.path().to_owned()]).unwrap();
        let names: Vec<_> = photos
            .iter()
            .map(|photo| photo.path.strip_prefix(dir.path()).unwrap().to_str().unwrap())
            .collect();
        assert_eq!(names, ["missing.jpg", "a.png", "b/1.png", "b/2.jpg", "b/no ending", "empty.jpg"]);
        assert!(
            notes.len() == 1 && notes[0].contains("1 .txt") && notes[0].contains("1 hidden"),
            "{notes:?}"
        );
        let shape = Shape::rgb(4, 4);
        let views: Vec<_> =
            photos.iter().map(|photo| photo.view(shape, Framing::default()).map(|view| view.shape)).collect();
        assert!(views[0].is_err() && views[5].is_err(), "{views:?}");
        assert!(views[1..5].iter().all(|view| *view == Ok(shape)), "{views:?}");
    }

    #[cfg(unix)]
    #[test]
    fn a_link_to_nothing_that_is_named_as_an_image_is_a_photo_with_its_fault() {
        let dir = directory(&["1.png", "3.png"]);
        std::os::unix::fs::symlink("nowhere", dir.path().join("2.png")).unwrap();
        let (photos, _) = list(&[dir.path().to_owned()]).unwrap();
        assert_eq!(photos.len(), 3);
        let fault = photos[1].view(Shape::rgb(2, 2), Framing::default()).unwrap_err();
        assert!(fault.contains("links to nothing"), "{fault}");
    }

    #[track_caller]
    fn check(names: &[&str], slots: usize, expected: &[(&str, &[usize])]) {
        let photos = names.iter().map(|name| Photo::new(name.into())).collect();
        let samples = samples(photos, slots).unwrap();
        let seen = |sample: &PhotoSample| -> Vec<usize> {
            (0..slots).filter(|slot| sample.photos[*slot].is_some()).collect()
        };
        let found: Vec<_> = samples.iter().map(|sample| (sample.name.as_str(), seen(sample))).collect();
        let expected: Vec<_> = expected.iter().map(|(name, slots)| (*name, slots.to_vec())).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn photos_of_one_camera_are_samples_and_those_of_several_are_grouped_by_name() {
        check(&["b/7.jpg", "cam0.jpg"], 1, &[("b/7.jpg", &[0]), ("cam0.jpg", &[0])]);
        check(&["a/7/cam0.jpg", "a/7/cam2.png", "a/8/cam1.jpg"], 3, &[("a/7", &[0, 2]), ("a/8", &[1])]);
        check(&["a/cam0/7.jpg", "a/cam0/8.jpg", "a/cam2/7.png"], 3, &[("a/7", &[0, 2]), ("a/8", &[0])]);
    }

    #[test]
    fn each_slot_sees_the_photos_of_one_camera_unless_one_names_its_camera() {
        let photos = |names: &[&str]| names.iter().map(|name| Photo::new(name.into())).collect::<Vec<_>>();
        let samples = of_one_camera(&photos(&["b/7.jpg", "8.jpg"]), 3).unwrap();
        assert_eq!((samples.len(), samples[0].photos.len()), (2, 3));
        assert!(samples[0].photos.iter().all(|photo| *photo == Some(Photo::new("b/7.jpg".into()))));
        assert_eq!(of_one_camera(&photos(&["7.jpg", "a/8/cam1.jpg"]), 3), None);
    }

    #[test]
    fn a_photo_without_a_camera_or_there_twice_is_refused() {
        let refused = |names: &[&str]| {
            samples(names.iter().map(|name| Photo::new(name.into())).collect(), 2).unwrap_err().to_string()
        };
        for wrong in ["7.jpg", "left/7.jpg", "a/cam2.jpg", "cam/7.jpg", "a/cam+1.jpg"] {
            let error = refused(&[wrong]);
            assert!(
                error.starts_with(wrong) && error.contains("camN/SAMPLE.jpg with N from 0 to 1"),
                "{error}"
            );
        }
        let error = refused(&["cam0/7.jpg", "cam0/7.png"]);
        assert!(error.contains("one photo of camera 0 for a sample, found `cam0/7.jpg`"), "{error}");
    }
}
