//! Journals of commit e72c5c5: a leader continues from each of them.

use std::path::Path;

use headwater_inference::leader::journal::Entry;
use headwater_protocol::{Decision, Dropped, SampleId};
use tempfile::TempDir;

use crate::group::Group;
use crate::restart::journalled;

#[tokio::test]
async fn a_leader_continues_from_journals_of_earlier_programs() {
    for (name, open) in [("whole", 2), ("torn", 1), ("compacted", 2)] {
        let file =
            Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/journals/{name}.jsonl"));
        let text = std::fs::read(file).unwrap();
        let (group, folder) = (Group::new(1.0), TempDir::new().unwrap());
        std::fs::write(folder.path().join("journal"), &text).unwrap();
        let mut observer = group.observer().await;
        let leader = journalled(&group, &folder).await.unwrap();

        let mut expected = decisions(&text);
        expected.sort_by_key(|decision| decision.sample);
        assert_eq!(expected.len(), 5, "{name}");
        for decision in expected {
            assert_eq!(observer.result().await, decision, "{name}");
        }
        let settled = observer.settled(5).await;
        let highest = SampleId(108 + open);
        assert_eq!((settled.decided, settled.highest), (5, highest), "{name}");
        assert_eq!(settled.dropped, [(Dropped::Shed, 1)].into(), "{name}");
        let report = leader.shutdown().await.unwrap();
        assert_eq!(
            (report.republished, report.awaited),
            (5, open),
            "{name}: devices may still hold open samples"
        );
        assert_eq!(report.journal.torn_bytes > 0, name == "torn", "{name}");
    }
}

/// The decisions in a journal; a torn last line is none.
fn decisions(text: &[u8]) -> Vec<Decision> {
    let entries = text.split(|&byte| byte == b'\n').filter_map(|line| Entry::read_line(line).ok());
    let decision = |entry| if let Entry::Decided(decision) = entry { Some(decision) } else { None };
    entries.filter_map(decision).collect()
}
