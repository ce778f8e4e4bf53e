//! Decoded views in a file of the user's cache: the same run as with views in memory.

use std::path::Path;
use std::process::Output;

use crate::program::{NETWORKS, ended, run};

/// The only file of views in a folder.
fn view_file(folder: &Path) -> std::path::PathBuf {
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files: Vec<_> =
        files.filter(|path| path.extension().is_some_and(|ending| ending == "hwviews")).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    files[0].clone()
}

#[test]
fn a_run_with_views_in_a_file_is_that_with_views_in_memory_and_damaged_views_stop_a_command_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let [data, cache, in_memory, in_file] = ["data", "cache", "in-memory", "in-file"].map(path);
    let drawn = ["convert", "--data", "drawn", "--data-dir", ".", "--limit", "24", "--out", &data];
    ended(&run(&drawn), 0, &[]);
    let of_data = ["--data", "folders", "--data-dir", &data, "--allow-leaks"];
    let cached = ["--view-memory-mib", "0", "--cache", &cache];
    let network = format!("{NETWORKS}/ddnn-c.toml");
    let train = |out: &str, more: &[&str]| -> Output {
        let fixed = ["train", "--network", &network, "--epochs", "1", "--out", out];
        run(&[&fixed[..], &of_data, more].concat())
    };
    ended(&train(&in_memory, &[]), 0, &[]);
    ended(&train(&in_file, &cached), 0, &[&cache, "remove the file when you no longer need it"]);
    for file in ["metrics.jsonl", "run.json"] {
        let read = |run: &str| std::fs::read_to_string(Path::new(run).join(file)).unwrap();
        assert_eq!(read(&in_memory), read(&in_file), "{file}");
    }

    let bundle = format!("{in_file}/bundle.hwb");
    let eval = |more: &[&str]| run(&[&["eval", &bundle, "--json"][..], &of_data, more].concat());
    let (from_memory, from_file) = (eval(&[]), eval(&cached));
    ended(&from_file, 0, &[]);
    assert_eq!(from_memory.stdout, from_file.stdout);
    let said = String::from_utf8_lossy(&from_file.stderr).into_owned();
    assert!(!said.contains("hwviews"), "a file that is whole is read without a word: {said}");

    let views = view_file(Path::new(&cache));
    let mut bytes = std::fs::read(&views).unwrap();
    // Views of 3x32x32 follow the head, which has their number.
    let count = u64::from_le_bytes(bytes[48..56].try_into().unwrap()) as usize;
    (0..count).for_each(|view| bytes[4096 + 3072 * view] ^= 1);
    std::fs::write(&views, bytes).unwrap();
    let name = views.display().to_string();
    ended(&eval(&cached), 1, &[&name, "it differs from its check sum", "give the command again"]);
    let again = eval(&cached);
    ended(&again, 0, &[&name, "of such files"]);
    assert_eq!(again.stdout, from_file.stdout);
}
