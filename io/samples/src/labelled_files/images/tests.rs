use std::cell::{Cell, RefCell};
use std::time::{Duration, SystemTime};

use super::*;
use crate::image_codec::png;

const SHAPE: Shape = Shape::rgb(2, 3);

/// Name and content of a file.
type Image = (String, Vec<u8>);

/// Images that are filled with their numbers; the last one is grey and larger.
fn files() -> Vec<Image> {
    let image = |fill: u8| {
        let shape = if fill == 4 { Shape { channels: 1, height: 4, width: 6 } } else { SHAPE };
        (format!("{fill}.png"), png(&View::new(shape, vec![fill; shape.bytes()])).unwrap())
    };
    (0..5).map(image).collect()
}

/// Result of a preparation.
struct Found {
    pixels: Vec<u8>,
    notes: Vec<String>,
    /// Progress messages.
    lines: String,
    /// Number of views that were computed.
    computed: usize,
}

/// Prepares images. Their views are stored in a file in `folder`, or in memory without a folder.
fn prepared(folder: Option<&Path>, files: &[Image]) -> Result<Found, DataError> {
    prepared_again(folder, files, None)
}

/// As [`prepared`]; the files of `again` are read for the decoding, as if `files` had been too many to keep.
fn prepared_again(
    folder: Option<&Path>,
    files: &[Image],
    again: Option<&[Image]>,
) -> Result<Found, DataError> {
    let (lines, computed) = (RefCell::new(String::new()), Cell::new(0));
    let notify = |event: PreparationEvent<'_>| match event {
        PreparationEvent::Line(line) => lines.borrow_mut().push_str(line),
        PreparationEvent::Progress { done, .. } => computed.set(done),
    };
    let preparation = Preparation { folder, memory_bytes: 89, threads: 2, notify: Some(&notify) };
    let options = OpenOptions { shape: Some(SHAPE), preparation, ..OpenOptions::default() };
    let mut reader = ImageReader::new(Path::new("data"), options, decode_image);
    for (number, (name, bytes)) in files.iter().enumerate() {
        assert_eq!(reader.add(name, bytes.clone(), 0..1)?.view, number);
    }
    if again.is_some() {
        reader.kept = None;
    }
    let visit = |each: EachImage<'_>| {
        again.into_iter().flatten().try_for_each(|(name, bytes)| each(name, bytes.clone()))
    };
    let PreparedImages { shape, views, notes } = reader.prepare(&visit)?;
    assert_eq!((shape, matches!(views, StoredViews::File(_))), (SHAPE, folder.is_some()));
    let mut pixels = vec![0; files.len() * shape.bytes()];
    for (number, view) in pixels.chunks_exact_mut(shape.bytes()).enumerate() {
        match &views {
            StoredViews::Memory(all) => view.copy_from_slice(&all[number * view.len()..][..view.len()]),
            StoredViews::File(file) => file.read(number, view),
        }
    }
    let lines = lines.borrow().clone();
    Ok(Found { pixels, notes, lines, computed: computed.get() })
}

/// The only file of views in a folder.
fn view_file(folder: &Path) -> PathBuf {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files = entries.filter(|path| path.extension().is_some_and(|ending| ending == ENDING));
    let file = files.next().unwrap();
    assert!(files.next().is_none(), "one file");
    file
}

#[test]
fn views_from_memory_and_from_a_file_are_the_same_and_the_second_command_decodes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("made/by/the/command");
    let from_memory = prepared(None, &files()).unwrap();
    let expected: Vec<u8> = (0..5).flat_map(|fill| [fill; 18]).collect();
    assert_eq!((&from_memory.pixels, from_memory.computed), (&expected, 5));
    assert!(
        from_memory.notes[0].starts_with("1 of 5 images are resized for 3x2x3, such as `4.png` of 1x4x6")
    );
    assert!(from_memory.notes[1].contains("1 of 5 images are grey and made RGB"), "{:?}", from_memory.notes);
    for (again, computed) in [(false, 5), (true, 0)] {
        let found = prepared(Some(cache.as_path()), &files()).unwrap();
        assert_eq!((&found.pixels, &found.notes), (&expected, &from_memory.notes));
        assert_eq!(found.computed, computed);
        let is_named = found.lines.contains(&view_file(&cache).display().to_string());
        assert_eq!(is_named, !again, "a file is named when it is made: {}", found.lines);
    }
}

#[test]
fn a_damaged_a_cut_and_a_foreign_file_are_named_and_made_again() {
    let folder = tempfile::tempdir().unwrap();
    prepared(Some(folder.path()), &files()).unwrap();
    let file = view_file(folder.path());
    let whole = fs::read(&file).unwrap();
    let mut altered = whole.clone();
    *altered.last_mut().unwrap() ^= 1;
    let foreign = vec![b'x'; whole.len()];
    for (bytes, reason) in [
        (&altered[..], "its end differs from its check sum"),
        (&whole[..whole.len() / 2], "instead of"),
        (&foreign[..], "its head differs"),
    ] {
        fs::write(&file, bytes).unwrap();
        let found = prepared(Some(folder.path()), &files()).unwrap();
        assert!(found.lines.contains("a damaged file") && found.lines.contains(reason), "{}", found.lines);
        assert_eq!(found.computed, 5);
        assert_eq!(fs::read(&file).unwrap(), whole);
    }
}

#[test]
fn another_image_name_or_order_has_a_file_of_its_own_and_an_unfinished_file_does_not_stay() {
    let folder = tempfile::tempdir().unwrap();
    let unfinished = folder.path().join(UNFINISHED);
    fs::write(&unfinished, b"of a command that was killed").unwrap();
    fs::write(folder.path().join("notes.txt"), b"of the user").unwrap();
    let mut renamed = files();
    renamed[0].0 = "a.png".to_owned();
    let mut reversed = files();
    reversed.reverse();
    for (files, computed) in [(files(), 5), (renamed, 5), (reversed, 5), (files(), 0)] {
        assert_eq!(prepared(Some(folder.path()), &files).unwrap().computed, computed);
    }
    assert_eq!((names_with(folder.path(), ENDING), names_with(folder.path(), "txt")), (3, 1));
    assert!(!unfinished.exists());
}

fn names_with(folder: &Path, ending: &str) -> usize {
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().is_some_and(|found| found == ending)).count()
}

#[test]
fn files_that_are_too_many_to_keep_are_read_again_and_one_that_changed_is_named() {
    let again = files();
    let kept = prepared(None, &files()).unwrap();
    assert_eq!(prepared_again(None, &files(), Some(&again)).unwrap().pixels, kept.pixels);
    let folder = tempfile::tempdir().unwrap();
    let refused = |again: &[Image], name: &str| {
        let error = prepared_again(Some(folder.path()), &files(), Some(again)).err().unwrap().to_string();
        assert!(error.contains(name) && error.contains("changed while the data was read"), "{error}");
        assert!(names_with(folder.path(), ENDING) == 0 && !folder.path().join(UNFINISHED).exists());
    };
    let mut other = files();
    other[3].1 = other[2].1.clone();
    refused(&other, "data: `3.png`");
    let mut fewer = files();
    fewer.pop();
    refused(&fewer, "data: `4.png`");
    let mut more = files();
    more.push(("5.png".to_owned(), more[0].1.clone()));
    refused(&more, "data: `5.png`");
}

#[test]
fn an_image_that_cannot_be_decoded_is_named_and_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let mut cut = files();
    cut[1].1.truncate(30);
    for cache in [None, Some(folder.path())] {
        let error = prepared(cache, &cut).err().unwrap().to_string();
        assert!(error.starts_with("data: `1.png`"), "{error}");
    }
    assert!(names_with(folder.path(), ENDING) == 0 && !folder.path().join(UNFINISHED).exists());
}

#[test]
fn a_disk_without_room_is_named_with_what_is_needed_and_what_is_free() {
    let folder = Path::new("/cache");
    assert!(check_room(folder, 20_000_000_000, 20_067_108_864).is_ok());
    let error = check_room(folder, 20_000_000_000, 3_100_000_000).unwrap_err().to_string();
    for words in ["/cache", "expected 20.1 GB of room", "found 3.1 GB free", "--cache"] {
        assert!(error.contains(words), "{error}");
    }
    assert!(check_room(folder, u64::MAX, 0).is_err());
}

#[test]
fn a_folder_that_cannot_be_made_is_refused_with_both_remedies() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), b"").unwrap();
    let error = prepared(Some(&folder.path().join("file/below")), &files()).err().unwrap().to_string();
    for words in ["file/below: expected a folder for 1 MB of views", "--cache", "--view-memory-mib 1"] {
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn the_oldest_files_of_views_are_removed_and_no_file_of_others() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, start: &[u8], age_s: u64| {
        let path = folder.path().join(name);
        fs::write(&path, [start, &[0; 92]].concat()).unwrap();
        let made = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 - age_s);
        File::options().write(true).open(&path).unwrap().set_modified(made).unwrap();
        path
    };
    let name = |letter: &str| format!("{}.{ENDING}", letter.repeat(32));
    let [oldest, older, kept] =
        [("a", 50), ("b", 40), ("c", 60)].map(|(letter, age_s)| write(&name(letter), b"HWVIEWS1", age_s));
    let others = [write("mine.hwviews", b"HWVIEWS1", 90), write(&name("d"), b"PNGPNGPN", 90)];
    assert_eq!(bound(folder.path(), &kept, 300), 300);
    assert!(oldest.exists());
    assert_eq!(bound(folder.path(), &kept, 250), 200);
    assert!(!oldest.exists() && older.exists() && kept.exists());
    assert_eq!(bound(folder.path(), &kept, 0), 100);
    assert!(!older.exists() && kept.exists() && others.iter().all(|other| other.exists()));
}

/// SHA-256 of the pixels of a view.
const VIEW_HASH: &str = "c7504139cd9ec536dcf171f41f45488c9f57c97c3e9c4c75dc150b16dd4df88a";

#[test]
fn decoding_and_resizing_give_the_pixels_of_the_files_of_views_that_are_there() {
    let bytes = include_bytes!("../../../tests/images/sampled-420.jpg");
    let (view, _) = roi::decode_to(bytes, Some(Shape::rgb(24, 32)), Framing::default()).unwrap();
    let found = hex(&Sha256::digest(&view.pixels));
    assert_eq!(
        found, VIEW_HASH,
        "views have other pixels: raise MAGIC in view_file.rs, and put the new hash here"
    );
}

#[test]
fn two_commands_at_once_make_the_same_file() {
    let folder = tempfile::tempdir().unwrap();
    let pixels = thread::scope(|scope| {
        let start = |_| scope.spawn(|| prepared(Some(folder.path()), &files()).unwrap().pixels);
        let threads: Vec<_> = (0..4).map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(pixels.iter().all(|found| *found == pixels[0]));
    assert!(names_with(folder.path(), ENDING) == 1 && !folder.path().join(UNFINISHED).exists());
}
