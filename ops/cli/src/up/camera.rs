//! The cameras of a site file, each with a source that a text or the device's own settings of a source name.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use headwater_toml_file::{Document, Located, Mistake};
use headwater_transport::redacted;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Camera {
    pub(super) name: String,
    pub(super) line: usize,
    /// Settings of the camera's device that begin with `source.`.
    pub(super) source: BTreeMap<String, Located>,
}

/// Endings of the file names of videos that ffmpeg must decode.
const ENCODED: [&str; 6] = [".mp4", ".avi", ".mkv", ".mov", ".webm", ".m4v"];

/// Endings of the file names of videos that the device reads itself.
const READ: [&str; 6] = [".y4m", ".ppm", ".pgm", ".pnm", ".mjpeg", ".mjpg"];

impl Camera {
    /// The cameras of the table `[cameras]` in the order of their lines, which is the order of the slots.
    pub(super) fn all(table: Document, mistakes: &mut Vec<Mistake>) -> Vec<Self> {
        let mut cameras: BTreeMap<String, Self> = BTreeMap::new();
        for (key, found) in table.values {
            let (name, own) = key.split_once('.').unwrap_or((key.as_str(), "from"));
            let line = found.line;
            let new = || Self { name: name.into(), line, source: BTreeMap::new() };
            let camera = cameras.entry(name.into()).or_insert_with(new);
            camera.line = camera.line.min(line);
            if own != "from" {
                camera.source.insert(format!("source.{own}"), found);
                continue;
            }
            let text = found.value.as_str().ok_or_else(|| "expected a text in quotes".to_owned());
            match text.and_then(source_of) {
                Ok(source) => {
                    let located = |text: String| Located { value: text.into(), line };
                    camera.source.extend(source.map(|(key, text)| (key.to_owned(), located(text))));
                }
                Err(mistake) => mistakes.push(Mistake::at(line, format!("cameras.{key}"), mistake)),
            }
        }
        let mut cameras: Vec<_> = cameras.into_values().collect();
        cameras.sort_by_key(|camera| camera.line);
        for pair in cameras.windows(2).filter(|pair| pair[0].line == pair[1].line) {
            let text = "expected a line of its own for each camera, since the order of the lines is that of the slots";
            mistakes.push(Mistake::at(pair[1].line, format!("cameras.{}", pair[1].name), text));
        }
        let cameras: Vec<_> = cameras.into_iter().flat_map(|camera| camera.by_region(mistakes)).collect();
        let mut names = BTreeSet::new();
        for Self { name, line, .. } in cameras.iter().filter(|camera| !names.insert(&camera.name)) {
            let text =
                "expected another name, since the region of a camera has this one: NAME-0, NAME-1 and so on";
            mistakes.push(Mistake::at(*line, format!("cameras.{name}"), text));
        }
        cameras
    }

    /// A camera for each region in `regions`, such as `belt-0` and `belt-1`, since each region is a slot; without `regions` the camera itself.
    fn by_region(mut self, mistakes: &mut Vec<Mistake>) -> Vec<Self> {
        let Some(Located { value, line }) = self.source.remove("source.regions") else { return vec![self] };
        let Some(regions) = value.as_array().filter(|regions| !regions.is_empty()) else {
            let text = "expected a list of regions, such as [\"0%,0%,50%,100%\", \"50%,0%,50%,100%\"]";
            mistakes.push(Mistake::at(line, format!("cameras.{}.regions", self.name), text));
            return vec![self];
        };
        let mut refuse = |line, key: &str, text: String| {
            mistakes.push(Mistake::at(line, format!("cameras.{}.{key}", self.name), text));
        };
        if let Some(roi) = self.source.get("source.roi") {
            let text =
                "expected one of `roi` and `regions`, found both; `regions` are those of the whole frame";
            refuse(roi.line, "roi", text.into());
        }
        for (_, region) in regions.iter().enumerate().filter(|(at, region)| regions[..*at].contains(region)) {
            let text = format!("expected another region for each slot, found {region} again");
            refuse(line, "regions", text);
        }
        let of_region = |(at, region): (usize, &toml::Value)| {
            let mut camera = Self { name: format!("{}-{at}", self.name), ..self.clone() };
            camera.source.insert("source.roi".into(), Located { value: region.clone(), line });
            camera
        };
        regions.iter().enumerate().map(of_region).collect()
    }

    fn kind(&self) -> &str {
        self.source.get("source.kind").and_then(|kind| kind.value.as_str()).unwrap_or_default()
    }

    pub(super) fn is_folder(&self) -> bool {
        self.kind() == "folder"
    }

    /// Returns true for sources of which each frame becomes a sample.
    pub(super) fn gives_samples(&self) -> bool {
        matches!(self.kind(), "folder" | "watch" | "file")
    }
}

/// The two settings of the source that a text names: a folder, a file of frames, a snapshot URL, or a command.
fn source_of(text: &str) -> Result<[(&'static str, String); 2], String> {
    let path = Path::new(text);
    let ends_in = |names: &[&str]| names.iter().any(|name| text.to_ascii_lowercase().ends_with(name));
    let source = |kind: &str, key, value: &str| Ok([("source.kind", kind.into()), (key, value.into())]);
    let is_word = !text.contains(char::is_whitespace);
    if is_word && text.contains("://") {
        return match text.starts_with("http") {
            true => source("http", "source.http.url", text),
            false => Err(format!("a stream needs ffmpeg: \"{}\"", for_ffmpeg("", text))),
        };
    }
    if path.is_dir() {
        return source("folder", "source.path", text);
    }
    // The name of an existing file may have spaces; any other text with spaces is a command.
    let is_there = path.is_file();
    if ends_in(&[".tar.gz", ".tgz"]) && (is_word || is_there) {
        return source("archive", "source.path", text);
    }
    if ends_in(&READ) && (is_word || is_there) {
        return source("file", "source.path", text);
    }
    if ends_in(&ENCODED) && is_there {
        return Err(format!("a video needs ffmpeg: \"{}\"", for_ffmpeg("-re ", text)));
    }
    match (is_word, is_there) {
        (_, true) if !is_program(path) => Err(format!(
            "expected a folder, a video (.y4m), an http URL or a command, found the file {text:?}, which is no video and no program: give the folder \
             of photos; an archive of a folder ends in .tar.gz"
        )),
        (_, true) => source("command", "source.command.run", &quoted(text)),
        (false, false) => source("command", "source.command.run", text),
        (true, false) => Err(format!(
            "expected a folder, a video (.y4m), an http URL or a command, found {:?}, which is none of them: is the path right, from the \
             folder in which headwater runs?",
            redacted(text)
        )),
    }
}

/// Returns true for a file that may be run.
fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| metadata.permissions().mode() & 0o111 != 0)
}

/// A command with which ffmpeg decodes `input`.
fn for_ffmpeg(options: &str, input: &str) -> String {
    let input = quoted(&redacted(input));
    format!("ffmpeg -v error -nostdin {options}-i {input} -f yuv4mpegpipe -pix_fmt yuv420p -")
}

/// A path or an address as one word of a shell.
fn quoted(text: &str) -> String {
    let is_plain = |letter: char| letter.is_alphanumeric() || "/._-:@+,%".contains(letter);
    if text.chars().all(is_plain) { text.to_owned() } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cameras(text: &str) -> (Vec<Camera>, Vec<String>) {
        let mut mistakes = Vec::new();
        let cameras = Camera::all(Document::parse(text).unwrap(), &mut mistakes);
        (cameras, mistakes.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn cameras_are_in_the_order_of_their_lines_and_told_by_a_text_or_by_keys() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().display();
        let text = format!(
            "yard = \"{folder}\"\nback = \"http://cam/snap.jpg\"\n\
             a = {{ from = \"camera --raw | head\", stdin.size = \"4x4\", roi = \"0,0,2,2\" }}\nlast = \"clip.Y4M\"\n\
             belt = {{ from = \"camera -\", regions = [\"0,0,2,2\", \"2,0,2,2\"] }}\n"
        );
        let (found, mistakes) = cameras(&text);
        assert_eq!(mistakes, [""; 0]);
        let kinds: Vec<_> =
            found.iter().map(|camera| (camera.name.as_str(), camera.line, camera.kind())).collect();
        assert_eq!(
            kinds,
            [
                ("yard", 1, "folder"),
                ("back", 2, "http"),
                ("a", 3, "command"),
                ("last", 4, "file"),
                ("belt-0", 5, "command"),
                ("belt-1", 5, "command")
            ]
        );
        let regions: Vec<_> =
            found[4..].iter().map(|belt| belt.source["source.roi"].value.as_str()).collect();
        assert_eq!(regions, [Some("0,0,2,2"), Some("2,0,2,2")]);
        let (_, mistakes) = cameras("a = { from = \"camera -\", regions = \"0,0,2,2\" }\n");
        assert!(mistakes[0].contains("cameras.a.regions: expected a list"), "{mistakes:?}");
        let keys: Vec<_> = found[2].source.keys().map(String::as_str).collect();
        assert_eq!(keys, ["source.command.run", "source.kind", "source.roi", "source.stdin.size"]);
        assert!(found[0].is_folder() && !found[1].gives_samples() && found[3].gives_samples());
    }

    #[test]
    fn regions_beside_a_region_of_the_camera_equal_ones_and_names_of_other_cameras_are_mistakes() {
        let halves = "regions = [\"0,0,2,2\", \"2,0,2,2\"]";
        for (text, expected) in [
            (
                format!("a = {{ from = \"camera -\", roi = \"0,0,2,2\", {halves} }}"),
                "line 1: cameras.a.roi: ",
            ),
            (
                "a = { from = \"camera -\", regions = [\"0,0,2,2\", \"0,0,2,2\"] }".into(),
                "line 1: cameras.a.regions: expected another region for each slot, found \"0,0,2,2\" again",
            ),
            (
                format!("a = {{ from = \"camera -\", {halves} }}\na-1 = \"camera -\""),
                "line 2: cameras.a-1: expected another name",
            ),
        ] {
            let (_, mistakes) = cameras(&text);
            assert!(mistakes.len() == 1 && mistakes[0].starts_with(expected), "{mistakes:?}");
        }
    }

    #[test]
    fn a_file_that_is_there_may_have_a_space_in_its_name_and_a_command_may_end_like_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let value = |name: &str, key: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, b"").unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
            let (found, mistakes) = cameras(&format!("a = {:?}\n", path.display().to_string()));
            assert_eq!(mistakes, [""; 0]);
            (found[0].kind().to_owned(), found[0].source[key].value.as_str().unwrap().to_owned())
        };
        let (kind, path) = value("my clip.y4m", "source.path");
        assert!(kind == "file" && path.ends_with("/my clip.y4m"), "{kind} {path}");
        let (kind, run) = value("my camera", "source.command.run");
        assert!(kind == "command" && run.starts_with('\'') && run.ends_with("/my camera'"), "{kind} {run}");
        let (found, _) = cameras("a = \"tar xzOf frames.tar.gz\"\nb = \"cat clip.y4m\"\n");
        assert!(found.iter().all(|camera| camera.kind() == "command"), "{found:?}");
    }

    #[test]
    fn what_is_no_source_says_what_to_write() {
        let dir = tempfile::tempdir().unwrap();
        let video = dir.path().join("clip.mp4");
        let spaced = dir.path().join("my clip.mp4");
        for video in [&video, &spaced] {
            std::fs::write(video, b"").unwrap();
        }
        for (value, part) in [
            ("\"nowhere\"".to_owned(), "found \"nowhere\", which is none of them"),
            ("3".to_owned(), "expected a text in quotes"),
            ("\"rtsp://cam/1\"".to_owned(), "-i rtsp://cam/1 -f yuv4mpegpipe"),
            ("\"rtsp://user:secret@cam/1\"".to_owned(), "@cam/1"),
            ("\"user:secret@cam\"".to_owned(), "@cam"),
            (format!("{:?}", video.display().to_string()), "clip.mp4 -f yuv4mpegpipe"),
            (format!("{:?}", spaced.display().to_string()), "my clip.mp4' -f yuv4mpegpipe"),
        ] {
            let (_, mistakes) = cameras(&format!("\nfront = {value}"));
            assert!(
                mistakes.len() == 1 && mistakes[0].starts_with("line 2: cameras.front: "),
                "{mistakes:?}"
            );
            assert!(mistakes[0].contains(part) && !mistakes[0].contains("secret"), "{mistakes:?}");
        }
        let (_, mistakes) = cameras("a.from = \"x -\"\n");
        assert_eq!(mistakes, [""; 0]);
    }
}
