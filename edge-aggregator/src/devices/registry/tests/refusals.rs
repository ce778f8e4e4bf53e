//! Births that are refused, and their lines in the log.

use super::*;

#[test]
fn a_birth_that_names_another_device_is_refused_with_that_reason_before_any_status() {
    let mut group = Group::new();
    group.introduces("mismatch", &Group::birth_of(OURS, "a", 0, 1));
    let (claim, _) = group.claim_of("mismatch");
    assert_eq!(claim, ClaimState::Refused(Fault::Malformed, "birth: the topic names mismatch, the text a"));
}

#[test]
fn the_software_of_a_birth_has_no_control_characters() {
    let mut group = Group::new();
    let software = "agent\u{1b}[2J/1\n.0".into();
    let birth = Birth { software, ..Group::birth_of(OURS, "a", 0, 1) };
    group.introduces("a", &birth);
    let software: Vec<_> =
        group.registry.registered(group.now).map(|device| device.software.to_owned()).collect();
    assert_eq!(software, ["agent[2J/1.0"]);
}

#[test]
fn the_log_lines_about_refused_devices_are_bounded_over_all_names() {
    let mut group = Group::of([("a", 0)]);
    for name in 0..500 {
        group.starts(&format!("n{name}"), 0, 1);
    }
    let logged = group.registry.state.devices.iter().filter(|device| !device.logged.is_empty()).count();
    assert_eq!(logged, MAX_REFUSAL_LINES as usize);
}
