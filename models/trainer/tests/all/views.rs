//! Decoded views in a file of the user's cache: the same run as with views in memory.

use crate::program::{Scratch, ended, run_on, stderr, train_ddnn_c};

#[test]
fn a_run_with_views_in_a_file_is_that_with_views_in_memory_and_damaged_views_stop_a_command_once() {
    let folder = Scratch::new();
    let (cache, in_file) = (folder.path("cache"), folder.path("in-file"));
    let data = ["--data", "folders", "--data-dir", &folder.write_drawn("data", "24"), "--allow-leaks"];
    let cached = ["--view-memory-mib", "0", "--cache", &cache];
    ended(&train_ddnn_c(&data, &folder.path("in-memory"), &[]), 0, &[]);
    let output = train_ddnn_c(&data, &in_file, &cached);
    ended(&output, 0, &["remove the file when you no longer need it", &cache]);
    for file in ["metrics.jsonl", "run.json"] {
        let [in_memory, in_file] = ["in-memory", "in-file"].map(|run| folder.read(&format!("{run}/{file}")));
        assert_eq!(in_memory, in_file, "{file}");
    }

    let eval = |more: &[&str]| run_on(&data, &[&["eval", &in_file, "--json"], more].concat());
    let (from_memory, from_file) = (eval(&[]), eval(&cached));
    ended(&from_file, 0, &[]);
    assert_eq!(from_memory.stdout, from_file.stdout);
    let said = stderr(&from_file);
    assert!(!said.contains("hwviews"), "a file that is whole is read without a word: {said}");

    let files = std::fs::read_dir(&cache).unwrap().map(|entry| entry.unwrap().path());
    let files: Vec<_> = files.filter(|path| path.extension().is_some_and(|end| end == "hwviews")).collect();
    let [views] = &files[..] else { panic!("{files:?}") };
    let mut bytes = std::fs::read(views).unwrap();
    // Views of 3x32x32 bytes follow the header of 4096 bytes, which has the number of views.
    let count = u64::from_le_bytes(bytes[48..56].try_into().unwrap()) as usize;
    (0..count).for_each(|view| bytes[4096 + 3072 * view] ^= 1);
    std::fs::write(views, bytes).unwrap();
    let name = views.display().to_string();
    ended(&eval(&cached), 1, &[&name, "it differs from its check sum", "give the command again"]);
    let again = eval(&cached);
    ended(&again, 0, &[&name, "of such files"]);
    assert_eq!(again.stdout, from_file.stdout);
}
