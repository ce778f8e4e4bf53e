//! Settings of `headwater-aggregator`: flags, environment, file, and the example file.

use std::os::unix::fs::PermissionsExt;

use headwater_edge_aggregator::{AggregatorConfig, AggregatorSettings, JournalSync, Role, RoleName};
use headwater_inference::policy::Policy;
use headwater_inference::testing::TinyNetwork;
use headwater_link::QoS;
use headwater_protocol::{EdgeId, EdgeIndex};
use headwater_settings::{Loaded, Sources, Stop, example, load};
use tempfile::TempDir;

/// First lines of the example file.
const HEADING: &str = "# Settings of headwater-aggregator. A flag (--cloud-url) wins over the environment (HEADWATER_CLOUD_URL), which wins over this file.
# What is commented out has its default, or is an example. Several groups run in one process: one [[group]] table each. One group may
# also be given by flags or the environment, or by the settings of [[group]] at the top of this file; both at once is refused.

";

fn read(text: &str) -> Result<Loaded<AggregatorSettings>, Stop> {
    load(Sources::default().with_file(text))
}

#[track_caller]
fn check(text: &str, flags: &[&str], expected: &[&str]) {
    match load::<AggregatorSettings>(Sources::default().with_file(text).with_arguments(flags)) {
        Err(Stop::Mistakes(mistakes)) => assert_eq!(mistakes, expected),
        other => panic!("expected mistakes, found {other:?}"),
    }
}

#[test]
fn the_example_file_is_made_from_the_declarations() {
    let made = HEADING.to_owned() + &example::<AggregatorSettings>();
    if std::env::var_os("HEADWATER_WRITE_EXAMPLES").is_some() {
        std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/headwater-aggregator.toml"), &made).unwrap();
    }
    assert_eq!(
        made,
        include_str!("../../headwater-aggregator.toml"),
        "HEADWATER_WRITE_EXAMPLES=1 writes the file"
    );
}

#[test]
fn the_example_file_has_the_defaults() {
    let loaded = read(include_str!("../../headwater-aggregator.toml")).unwrap();
    assert_eq!(loaded.settings.groups.all.len(), 1);
    let default = read("bundle = \"network.hwb\"").unwrap();
    assert_eq!(format!("{:?}", loaded.settings.groups.all), format!("{:?}", default.settings.groups.all));
    assert_eq!(format!("{:?}", loaded.settings.shared), format!("{:?}", default.settings.shared));
}

#[test]
fn one_group_is_given_by_flags() {
    let flags = ["--group", "gate", "--bundle", "b", "--local-edges", "0,1", "--request-qos=1"];
    let sources = Sources::default()
        .with_arguments(flags)
        .with_environment([("HEADWATER_SITE", "hall"), ("HEADWATER_CLOUD_MODEL", "net")]);
    let loaded = load::<AggregatorSettings>(sources).unwrap();
    let group = &loaded.settings.groups.all[0];
    assert_eq!((group.site.as_str(), group.group.as_str()), ("hall", "gate"));
    assert_eq!(group.local_edges.as_ref().map(|edges| edges.0.clone()), Some(vec![0, 1]));
    assert_eq!(group.request_qos, QoS::AtLeastOnce);
    assert_eq!(loaded.settings.shared.cloud.model, "net");
}

#[test]
fn help_names_the_keys_of_the_file() {
    let Err(Stop::Help(help)) = load::<AggregatorSettings>(Sources::default().with_arguments(["--help"]))
    else {
        panic!("expected help");
    };
    for option in ["--site <site>", "--max-open <max_open>", "--broker-address <broker.address>"] {
        assert!(help.contains(option), "{option} in\n{help}");
    }
    assert!(!help.contains("<group."), "{help}");
}

#[test]
fn several_groups_are_given_as_tables() {
    let text = "[broker]\naddress = \"127.0.0.2\"\n[[group]]\ngroup = \"north\"\nbundle = \"n\"\nmax_open = 5
[[group]]\ngroup = \"south\"\nbundle = \"s\"\nrole = \"edge\"\nedge = 1\n[group.journal]\nsync = \"always\"";
    let loaded = read(text).unwrap();
    let names: Vec<_> = loaded.settings.groups.all.iter().map(|group| group.group.as_str()).collect();
    assert_eq!(names, ["north", "south"]);
    let [north, south] = [&loaded.settings.groups.all[0], &loaded.settings.groups.all[1]];
    assert_eq!((north.max_open, south.max_open), (5, 4096));
    assert_eq!((south.role, south.journal.sync), (RoleName::Edge, JournalSync::Always));
    assert_eq!(loaded.settings.shared.broker.address.to_string(), "mqtt://127.0.0.2:1883");
}

#[test]
fn one_group_by_its_own_settings_beside_tables_is_refused_naming_both() {
    let table = "[[group]]\nbundle = \"b\"";
    let mistake = |key, place| {
        format!(
            "{key}: expected one group by settings of its own or several as [[group]], found both; write the setting into a \
             table [[group]], or leave it out{place}"
        )
    };
    let [group, bundle] = [mistake("group", " (flag --group)"), mistake("bundle", " (flag --bundle)")];
    check(table, &["--group", "gate"], &[&group]);
    check(table, &["--group=gate", "--bundle", "b"], &[&group, &bundle]);
    check(table, &["--journal-path", "j"], &[&mistake("journal.path", " (flag --journal-path)")]);
    check(&format!("site = \"s\"\n{table}"), &[], &[&mistake("site", " (line 1)")]);
    check("", &[], &["bundle: missing"]);
    let twice = "bundle = \"b\"\ndevices = \"cam-0,cam-1,cam-0\"";
    check(twice, &[], &["devices: expected each name once, found cam-0 again (line 2)"]);
}

#[test]
fn a_switch_on_the_command_line_holds_for_every_group_of_the_file() {
    let tables = "[[group]]\ngroup = \"north\"\nbundle = \"n\"\n[[group]]\ngroup = \"south\"\nbundle = \"s\"";
    let sources = Sources::default().with_file(tables).with_arguments(["--take-over", "--insecure"]);
    let loaded = load::<AggregatorSettings>(sources).unwrap();
    assert!(loaded.settings.groups.all.iter().all(|group| group.take_over));
}

#[test]
fn a_switch_that_is_neither_true_nor_false_is_refused() {
    for found in ["\"maybe\"", "\"true\"", "1"] {
        let mistake = format!("insecure: expected true or false, found {found} (line 2)");
        check(&format!("bundle = \"b\"\ninsecure = {found}"), &[], &[&mistake]);
    }
}

#[test]
fn every_mistake_is_named_at_once() {
    let text = "site = \"a/b\"\nrequest_qos = 2\nmax_open = -1\nsped = 3\nsettled_every_ms = 0
[broker]\naddress = \"amqp://x\"\n[cloud]\nurl = \"cloud\"\nmax_requests = \"many\"
[journal]\nmax_bytes = 1\nsync = \"sometimes\"";
    let Err(Stop::Mistakes(mistakes)) = read(text) else { panic!("expected mistakes") };
    let expected = [
        "site:",
        "request_qos: expected 0 or 1, found 2",
        "max_open: expected 1 to 65536, found -1",
        "sped:",
        "settled_every_ms:",
        "broker.address:",
        "cloud.url:",
        "cloud.max_requests:",
        "journal.max_bytes: expected 4194304 to 1099511627776, found 1",
        "journal.sync: expected \"never\" or \"always\", found \"sometimes\"",
        "bundle: missing",
    ];
    for message in expected {
        assert!(mistakes.iter().any(|mistake| mistake.starts_with(message)), "{message} in {mistakes:#?}");
    }
    assert_eq!(mistakes.len(), expected.len(), "{mistakes:#?}");
}

#[test]
fn mistakes_of_all_tables_are_named_with_their_table() {
    check(
        "[[group]]\nmax_open = 0\n[[group]]\nbundle = \"b\"\nrole = \"edge\"\n[group.journal]\npth = \"x\"",
        &[],
        &[
            "group[0].bundle: missing",
            "group[0].max_open: expected 1 to 65536, found 0 (line 2)",
            "group[1].journal.pth: no such key; did you mean `journal.path`? (line 7)",
            "group[1].edge: missing, and role is \"edge\"",
        ],
    );
}

#[test]
fn a_setting_of_the_other_role_is_refused() {
    let missing = "edge: missing, and role is \"edge\"";
    for (keys, expected) in [
        ("role = \"edge\"", &[missing][..]),
        ("edge = 1", &["edge: only with role = \"edge\" (line 2)"]),
        (
            "role = \"edge\"\nlocal_edges = [0]",
            &["local_edges: only with role = \"leader\" (line 3)", missing],
        ),
        ("role = \"edge\"\nedge = 0\ntake_over = true", &["take_over: only with role = \"leader\" (line 4)"]),
        ("role = \"edge\"\nedge = 0\ndetails = true", &["details: only with role = \"leader\" (line 4)"]),
        ("role = \"boss\"", &["role: expected \"leader\" or \"edge\", found \"boss\" (line 2)"]),
        ("role = \"edge\"\nedge = 64", &["edge: expected 0 to 63, found 64 (line 3)"]),
    ] {
        check(&format!("bundle = \"b\"\n{keys}"), &[], expected);
    }
}

#[test]
fn a_cloud_address_that_cannot_work_is_refused() {
    for url in ["http://localhost/path", "ftp://cloud", "cloud:80", ""] {
        let Err(Stop::Mistakes(mistakes)) = read(&format!("bundle = \"b\"\n[cloud]\nurl = {url:?}")) else {
            panic!("{url} is accepted");
        };
        assert!(mistakes.len() == 1 && mistakes[0].starts_with("cloud.url: "), "{mistakes:?}");
    }
    let bundle = "bundle = \"b\"\n";
    let expected = "tls.authority_file: missing; cloud.url = https://cloud:1 needs it";
    check(&format!("{bundle}[cloud]\nurl = \"https://cloud:1\""), &[], &[expected]);
    let Err(Stop::Mistakes(plain)) = read(&format!("{bundle}[cloud]\nurl = \"http://cloud:1\"")) else {
        panic!("a cloud without TLS on another machine is accepted");
    };
    assert!(plain.len() == 1 && plain[0].contains("--insecure allows it"), "{plain:?}");
    read(&format!("{bundle}insecure = true\n[cloud]\nurl = \"http://cloud:1\"")).unwrap();
}

#[test]
fn settings_in_effect_are_a_file_that_gives_the_same_settings() {
    let one =
        "bundle = \"b\"\nlocal_edges = [0, 2]\nrequest_qos = 1\nclient_id = \"c\"\n[journal]\npath = \"j\"";
    let several =
        "[cloud]\nlinger_ms = 0\n[[group]]\nbundle = \"b\"\nrole = \"edge\"\nedge = 1\nedge_id = \"north\"
[[group]]\nbundle = \"b\"\ngroup = \"g\"\n[group.journal]\npath = \"j\"\nsync = \"always\"";
    for text in [one, several] {
        let loaded = read(text).unwrap();
        let again =
            read(&loaded.to_toml()).unwrap_or_else(|stop| panic!("{stop:?} in\n{}", loaded.to_toml()));
        assert_eq!(format!("{:?}", again.settings.groups), format!("{:?}", loaded.settings.groups));
        let groups = loaded.to_toml().matches("# next_bundle is not set").count();
        assert_eq!(
            groups,
            loaded.settings.groups.all.len(),
            "settings of groups alone:\n{}",
            loaded.to_toml()
        );
        assert_eq!(format!("{:?}", again.settings.shared), format!("{:?}", loaded.settings.shared));
    }
}

/// Writes a bundle and a policy file into a folder; returns the settings that name them.
fn files(folder: &TempDir, policy: &str) -> String {
    std::fs::write(folder.path().join("network.hwb"), TinyNetwork::default().bundle()).unwrap();
    std::fs::write(folder.path().join("policy.toml"), policy).unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    format!("bundle = {:?}\npolicy = {:?}\n", path("network.hwb"), path("policy.toml"))
}

fn open(text: &str) -> Result<AggregatorConfig, Vec<String>> {
    read(text).unwrap().settings.open()
}

#[test]
fn files_that_are_named_are_opened() {
    let folder = TempDir::new().unwrap();
    let settings = files(&folder, include_str!("../../../docs/policy.toml"));
    let group =
        &open(&format!("{settings}role = \"edge\"\nedge = 1\nedge_id = \"north\"")).unwrap().groups[0];
    let calibrated = group.networks.current();
    let calibrated = (calibrated.policy().clone(), calibrated.policy_id());
    assert_eq!(group.policy.as_ref(), Some(&calibrated), "docs/policy.toml changes nothing");
    let id = EdgeId::new("north").unwrap();
    assert_eq!(group.role, Role::Edge { edge: EdgeIndex::new(1).unwrap(), id });
    let window = files(&folder, "window_ms = 20");
    let (changed, id) = open(&window).unwrap().groups[0].policy.clone().unwrap();
    assert_eq!(changed, Policy { window_ms: 20, ..calibrated.0 }, "the rest is as calibrated");
    assert_ne!(id, calibrated.1);
}

#[test]
fn files_that_cannot_be_opened_are_named_at_once_with_their_keys() {
    let folder = TempDir::new().unwrap();
    let settings = files(&folder, "[local]\nthreshold = 1.5");
    let mistakes = open(&settings).unwrap_err();
    assert!(
        mistakes[0].starts_with("policy: ") && mistakes[0].contains("expected a number in [0, 1], found 1.5")
    );
    let settings = files(&folder, "deadline_ms = 20");
    let mistakes = open(&settings).unwrap_err();
    assert!(mistakes[0].contains("policy.toml:1: deadline_ms (20) is below window_ms"), "{mistakes:?}");
    let mistakes =
        open("[[group]]\nbundle = \"none\"\npolicy = \"none\"\n[[group]]\nbundle = \"none\"").unwrap_err();
    let keys: Vec<_> = mistakes.iter().filter_map(|mistake| mistake.split(": ").next()).collect();
    assert_eq!(keys, ["group[0].bundle", "group[0].policy", "group[1].bundle"]);
    let network = folder.path().join("network.hwb").display().to_string();
    let same = open(&format!("bundle = {network:?}\nnext_bundle = {network:?}")).unwrap_err();
    assert!(same[0].starts_with("next_bundle: expected the bundle of another network"), "{same:?}");
}

/// Exit code and standard error of the program, run with these settings in a file and these flags.
fn program(text: &str, flags: &[&str]) -> (Option<i32>, String) {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("settings.toml");
    std::fs::write(&file, text).unwrap();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_headwater-aggregator"));
    let output = command.arg("--config").arg(file).args(flags).output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_check_of_the_configuration_names_what_the_start_refuses() {
    let folder = TempDir::new().unwrap();
    let bundle = files(&folder, "").lines().next().unwrap().to_owned() + "\n";
    let journal =
        |name: &str| format!("journal.path = {:?}\n", folder.path().join(name).display().to_string());
    let table = |keys: &str| format!("[[group]]\n{bundle}{keys}");
    for (text, expected) in [
        (table("") + &table(""), "group[1].group: expected each role of a group once, found demo again"),
        (bundle.clone() + &journal("none/j"), "journal.path: expected the folder "),
        (
            bundle.clone() + "broker.address = \"mqtts://broker\"\n",
            "tls.authority_file: missing; broker.address = mqtts://broker:8883 needs it",
        ),
        (
            bundle.clone() + "broker.user = \"gate\"\nbroker.password_file = \"none\"\n",
            "broker.password_file: none: ",
        ),
        (bundle.clone() + "tls.authority_file = \"none\"\n", "tls.authority_file: none: "),
        (bundle.clone() + "cloud.key_file = \"none\"\n", "cloud.key_file: none: "),
    ] {
        let checked = program(&text, &["--check-config"]);
        assert_eq!(checked.0, Some(2), "{checked:?} for\n{text}");
        assert!(checked.1.contains(expected), "{expected} in {checked:?}");
        assert_eq!(program(&text, &[]), checked, "the start of\n{text}");
    }
    let good = bundle + &journal("j");
    assert_eq!(program(&good, &["--check-config"]), (Some(0), String::new()));
    assert!(!folder.path().join("j").exists(), "a check creates no file");
}

#[test]
fn a_check_names_a_password_file_that_others_may_read_and_accepts_it() {
    let folder = TempDir::new().unwrap();
    let password = folder.path().join("password");
    std::fs::write(&password, "staple\n").unwrap();
    std::fs::set_permissions(&password, std::fs::Permissions::from_mode(0o640)).unwrap();
    let bundle = files(&folder, "").lines().next().unwrap().to_owned();
    let file = password.display().to_string();
    let text = format!("{bundle}\nbroker.user = \"gate\"\nbroker.password_file = {file:?}\n");
    let (code, log) = program(&text, &["--check-config"]);
    assert_eq!(code, Some(0), "{log}");
    assert_eq!(log.matches(&format!("found 0640; chmod 600 {file}")).count(), 1, "{log}");
}

#[test]
fn a_new_numbering_begins_in_the_groups_that_the_flag_names_and_no_file_asks_for_it() {
    let folder = TempDir::new().unwrap();
    let bundle = files(&folder, "").lines().next().unwrap().to_owned();
    let groups = ["gate", "hall", "yard"].map(|name| format!("[[group]]\ngroup = {name:?}\n{bundle}\n"));
    let load = |flag: &str| {
        let sources = Sources::default().with_file(groups.concat()).with_arguments(["--new-numbering", flag]);
        load::<AggregatorSettings>(sources).unwrap().settings.open()
    };
    let begins: Vec<_> = load("yard,gate").unwrap().groups.iter().map(|group| group.new_numbering).collect();
    assert_eq!(begins, [true, false, true]);
    let mistakes = load("gate,door").unwrap_err();
    assert_eq!(mistakes, ["--new-numbering: expected a group of this process, found door"]);
    assert!(!open(&bundle).unwrap().groups[0].new_numbering);
    let mistake = read(&format!("{bundle}\nnew_numbering = [\"demo\"]")).unwrap_err();
    assert!(matches!(mistake, Stop::Mistakes(_)), "{mistake:?}");
}
