//! `docs/protocol.md` names every topic, field and word of the messages, and its examples are valid messages.

use headwater_protocol::{
    BatchEntry, BatchedAnswer, Birth, Degraded, Dropped, EdgeStatus, LeaveReason, Limits, ResultMessage,
    SampleId, ScoreEncoding, Session, SettledNotice, Status, TimeSource, Trigger, Undecided, UtcTime,
    encode_batch, encode_trigger,
};

const PAGE: &str = include_str!("../../../docs/protocol.md");

/// Source files whose public types are messages.
const SOURCES: [&str; 5] = [
    include_str!("../../../core/protocol/src/policy_command.rs"),
    include_str!("../../../core/protocol/src/decision.rs"),
    include_str!("../../../core/protocol/src/exit_record.rs"),
    include_str!("../../../core/protocol/src/notice.rs"),
    include_str!("../../../core/protocol/src/trigger.rs"),
];

const TOPICS: &str = include_str!("../../../core/protocol/src/topic.rs");

const MESSAGES: &str = include_str!("../../../core/protocol/src/kind.rs");

/// Text between the braces of each public `enum` or `struct` (`kind`) in a source file.
fn bodies<'a>(source: &'a str, kind: &str) -> Vec<&'a str> {
    let start = format!("\npub {kind} ");
    let starts: Vec<_> = source.split(&start).skip(1).collect();
    starts
        .into_iter()
        .filter_map(|rest| rest.split_once(" {\n")?.1.split_once("\n}"))
        .map(|(body, _)| body)
        .collect()
}

/// JSON names of an enum's variants.
fn variants(body: &str) -> Vec<String> {
    let lines = body.lines().filter_map(|line| line.strip_prefix("    "));
    let names = lines.filter(|line| line.starts_with(|c: char| c.is_ascii_uppercase()));
    let ident =
        |line: &str| line.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default().to_owned();
    names.map(|line| snake_case(&ident(line))).collect()
}

/// JSON names of a struct's fields, without flattened fields, which have no name in JSON.
fn fields(body: &str) -> Vec<String> {
    let mut is_flattened = false;
    let mut names = Vec::new();
    for line in body.lines() {
        let field = line.strip_prefix("    pub ").filter(|rest| rest.ends_with(','));
        match field.and_then(|rest| rest.split_once(':')) {
            Some((name, _)) => {
                names.extend((!is_flattened).then(|| name.to_owned()));
                is_flattened = false;
            }
            None => is_flattened |= line.contains("serde(flatten)"),
        }
    }
    names
}

fn snake_case(name: &str) -> String {
    let letter = |(index, letter): (usize, char)| match letter.is_ascii_uppercase() && index > 0 {
        true => format!("_{}", letter.to_ascii_lowercase()),
        false => letter.to_ascii_lowercase().to_string(),
    };
    name.char_indices().map(letter).collect()
}

#[track_caller]
fn check_named(words: &[String], place: &str) {
    let missing: Vec<_> = words.iter().filter(|word| !PAGE.contains(&format!("`{word}`"))).collect();
    assert!(!words.is_empty() && missing.is_empty(), "docs/protocol.md lacks words of {place}: {missing:?}");
}

#[test]
fn every_word_and_field_of_a_message_is_on_the_page() {
    let declared = [
        &Degraded::NAMES[..],
        &Undecided::NAMES,
        &Dropped::NAMES,
        &LeaveReason::NAMES,
        &TimeSource::NAMES,
        &["unknown"],
    ];
    let written = SOURCES.iter().flat_map(|source| bodies(source, "enum")).flat_map(variants);
    let all: Vec<_> = declared.concat().into_iter().map(str::to_owned).chain(written).collect();
    check_named(&all, "the enums");
    for source in SOURCES {
        let names: Vec<_> = bodies(source, "struct").into_iter().flat_map(fields).collect();
        check_named(&names, "the structs");
    }
    let known = ["cloud_timeout", "no_view", "shed", "spool_full", "clock", "down"];
    assert!(known.iter().all(|word| all.iter().any(|found| found == word)), "{all:?}");
    assert_eq!(fields("    #[serde(flatten)]\n    pub account: Settled,\n    pub late: u8,"), ["late"]);
}

#[test]
fn every_topic_and_kind_is_on_the_page() {
    let enums = bodies(TOPICS, "enum");
    let [topics, of_devices, of_edges, ..] = &enums[..] else { panic!("expected three enums") };
    let of_members = ["device", "edge", "policy", "policy_answer"];
    let plain = variants(topics).into_iter().filter(|name| !of_members.contains(&name.as_str()));
    let policy = ["policy/{name}", "policy/{name}/answer"].map(str::to_owned);
    check_named(&plain.chain(policy).collect::<Vec<_>>(), "Topic");
    let in_folder = |folder: &str, body: &str| -> Vec<_> {
        variants(body).into_iter().map(|leaf| format!("{folder}/{{id}}/{leaf}")).collect()
    };
    check_named(&in_folder("dev", of_devices), "DeviceTopic");
    check_named(&in_folder("edge", of_edges), "EdgeTopic");
    let kinds = MESSAGES.split("pub enum Kind {\n").nth(1).and_then(|rest| rest.split("\n}").next());
    check_named(&variants(kinds.expect("the kinds")), "Kind");
}

/// The JSON text below a heading of the page.
#[track_caller]
fn example(heading: &str) -> &'static str {
    let section = PAGE.split(&format!("\n## `{heading}`\n")).nth(1).expect("a heading");
    let json = section.split("```json\n").nth(1).and_then(|rest| rest.split("```").next());
    json.expect("an example")
}

#[test]
fn the_examples_are_messages() {
    let message: ResultMessage = serde_json::from_str(example("result")).expect("a result");
    let decision = message.decision;
    assert_eq!(decision.presence.missing_count(), 1);
    assert!(message.republished && decision.captured_at.map(UtcTime::ms) == Some(decision.sample.0));
    let trigger = Trigger::read(example("trigger").as_bytes(), &Limits::default());
    assert_eq!(trigger.expect("a trigger").sample, SampleId(17));
    let notice: SettledNotice = serde_json::from_str(example("settled")).expect("a notice");
    assert!(notice.account.highest > SampleId(0) && !notice.late.is_empty());
    serde_json::from_str::<Birth>(example("dev/{id}/birth")).expect("a birth");
    serde_json::from_str::<Status>(example("dev/{id}/status")).expect("a status");
    serde_json::from_str::<EdgeStatus>(example("edge/{id}/status")).expect("a status");
    serde_json::from_str::<serde_json::Value>(example("leader")).expect("a claim");
}

#[test]
fn the_bytes_of_the_trigger_are_a_trigger() {
    let bytes = encode_trigger(Session([0x1f, 0x0c]), SampleId(5));
    let text: Vec<_> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(PAGE.contains(&format!("`{}`", text.join(" "))), "{}", text.join(" "));
}

#[test]
fn the_bytes_of_the_batch_are_a_batch() {
    let limits = Limits { classes: 4, scores: ScoreEncoding::Bits4, ..Limits::default() };
    let summary = BatchedAnswer::Summary(&[0x21, 0x03]);
    let samples = [(9, 25, summary), (10, 15, BatchedAnswer::NotInView), (20, 5, summary)];
    let entries = samples.map(|(id, age_ms, answer)| BatchEntry { sample: SampleId(id), age_ms, answer });
    let mut bytes = Vec::new();
    let taken = encode_batch(Session([0xab, 0xcd]), &entries, &limits, &mut bytes);
    assert_eq!(taken, Ok(3));
    let text: Vec<_> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(PAGE.contains(&format!("`{}`", text.join(" "))), "{}", text.join(" "));
}
