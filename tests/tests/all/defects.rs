//! The table of `scripts/check-defects` fits the code, so that it cannot rot in silence.

use headwater_tests::defects::Table;
use headwater_tests::shipped::root;

#[test]
fn every_edit_finds_its_text_once_every_test_exists_and_every_defect_has_an_edit() {
    let table = Table::read(root()).expect("the table can be read");
    let mistakes = table.mistakes(root());
    assert!(mistakes.is_empty(), "{}", mistakes.join("\n"));
}

#[test]
fn the_page_of_the_defects_names_every_edit_and_its_tests() {
    let table = Table::read(root()).expect("the table can be read");
    let page = std::fs::read_to_string(root().join("docs/results/site.md")).expect("the page is there");
    for edit in &table.edits {
        assert!(page.contains(&format!("| {} |", edit.without)), "{}", edit.name());
        for test in edit.runs.iter().flat_map(|run| &run.tests) {
            assert!(page.contains(&format!("`{test}`")), "{}: {test}", edit.name());
        }
    }
}
