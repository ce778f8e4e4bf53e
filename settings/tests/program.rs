//! A program with sections, a secret, an array of tables and old names.

use std::path::PathBuf;

use headwater_settings::{
    Bounded, CommandLine, Conf, List, Loaded, LogSettings, Origin, Settings, Sources, Stop, example, load,
    load_with_tables, word,
};
use serde::Deserialize;

/// Watches a door.
#[derive(Debug, Conf)]
#[conf(env_prefix = "HEADWATER_DOOR_", name = "headwater-door", version = "1.2.3", test)]
pub struct Door {
    /// Options of the command line.
    #[conf(flatten)]
    pub command_line: CommandLine,
    /// Bundle of the network.
    #[conf(long, env)]
    pub bundle: PathBuf,
    /// Samples kept in memory.
    /// Fewer saves memory.
    #[conf(long, env, default_value = "1024")]
    pub keep_samples: Bounded<1, 65_536, usize>,
    /// "fast" or "exact".
    #[conf(long, env, value_parser = word, default_value = "fast")]
    pub engine: Engine,
    /// Edges that run in this process.
    #[conf(long, env)]
    pub edges: Option<List<usize>>,
    /// Settings of the lock, where the door has one.
    #[conf(flatten)]
    pub lock: Option<Lock>,
    /// The broker.
    #[conf(flatten, prefix)]
    pub broker: Broker,
    /// The log.
    #[conf(flatten, prefix)]
    pub log: LogSettings,
}

/// Settings that stand without a section.
#[derive(Debug, Conf)]
pub struct Lock {
    /// Name of the lock.
    #[conf(long, env)]
    pub lock_name: String,
    /// Turns of the key.
    #[conf(long, env, default_value = "2")]
    pub turns: Bounded<1, 4>,
}

/// Section `[broker]`.
#[derive(Debug, Conf)]
pub struct Broker {
    /// Where the broker is.
    #[conf(long, env, default_value = "127.0.0.1:1883")]
    pub address: std::net::SocketAddr,
    /// User and password.
    #[conf(env, secret)]
    pub password: Option<String>,
}

/// Settings of the watch at the door.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Engine {
    /// Within a millisecond.
    Fast,
    /// Without a mistake.
    Exact,
}

impl Settings for Door {
    const RENAMED: &'static [(&'static str, &'static str)] =
        &[("broker", "broker.address"), ("most_samples", "keep_samples")];
    const OLD_VARIABLES: &'static str = "HEADWATER_DOOR_";
    const OTHER_VARIABLES: &'static [&'static str] = &["HEADWATER_DOOR_BELL"];

    fn check(&self) -> Vec<String> {
        let fits = self.engine == Engine::Fast || self.keep_samples.get() < 100;
        if fits {
            Vec::new()
        } else {
            vec!["keep_samples: expected below 100 with engine = \"exact\"".into()]
        }
    }
}

/// One table of `[[hinge]]`.
#[derive(Debug, Conf)]
pub struct Hinge {
    /// Name of the hinge.
    #[conf(long, env)]
    pub name: String,
    /// Grease in grams.
    #[conf(long, env, default_value = "3")]
    pub grease_g: Bounded<0, 10>,
}

impl Settings for Hinge {}

#[track_caller]
fn mistakes_of(sources: Sources) -> Vec<String> {
    match load::<Door>(sources) {
        Err(Stop::Mistakes(mistakes)) => mistakes,
        other => panic!("expected mistakes, found {other:?}"),
    }
}

fn loaded(sources: Sources) -> Loaded<Door> {
    load(sources).unwrap()
}

fn origin<'a>(loaded: &'a Loaded<Door>, key: &str) -> &'a Origin {
    &loaded.values.iter().find(|value| value.declared.key == key).unwrap().origin
}

#[test]
fn a_flag_wins_over_the_environment_and_that_over_the_file_and_that_over_the_default() {
    let file = "bundle = \"b\"\nkeep_samples = 5\nedges = [0, 2]\n[broker]\naddress = \"10.0.0.1:1\"";
    let environment = [("HEADWATER_DOOR_KEEP_SAMPLES", "6"), ("HEADWATER_DOOR_BROKER_ADDRESS", "10.0.0.2:2")];
    let sources = || Sources::default().with_file(file);
    let door = loaded(sources());
    assert_eq!((door.settings.keep_samples.get(), origin(&door, "keep_samples")), (5, &Origin::File));
    assert_eq!(door.settings.edges, Some(List(vec![0, 2])));
    assert_eq!((door.settings.engine, origin(&door, "engine")), (Engine::Fast, &Origin::Default));
    let door = loaded(sources().with_environment(environment));
    let from = Origin::Environment("HEADWATER_DOOR_KEEP_SAMPLES".into());
    assert_eq!((door.settings.keep_samples.get(), origin(&door, "keep_samples")), (6, &from));
    let flags = ["--keep-samples", "7", "--broker-address=10.0.0.3:3"];
    let door = loaded(sources().with_environment(environment).with_arguments(flags));
    assert_eq!(door.settings.keep_samples.get(), 7);
    assert_eq!(origin(&door, "broker.address"), &Origin::Flag("broker-address".into()));
    assert_eq!(door.settings.broker.address.to_string(), "10.0.0.3:3");
}

#[test]
fn every_mistake_is_named_at_once_with_key_expected_and_found() {
    let file = "keep_samples = 0\nengine = \"slow\"\nedges = [0, \"x\"]\ncolour = 3\n[broker]\nadress = \"x\"\naddress = \"x\"";
    assert_eq!(
        mistakes_of(Sources::default().with_file(file)),
        [
            "broker.adress: no such setting; did you mean `broker.address`?",
            "colour: no such setting",
            "bundle: missing",
            "broker.address: invalid socket address syntax, found \"x\"",
            "edges: invalid digit found in string, found \"x\" in \"0,x\"",
            "engine: expected \"fast\" or \"exact\", found \"slow\"",
            "keep_samples: expected 1 to 65536, found 0",
        ]
    );
}

#[test]
fn a_mistake_of_a_flag_or_of_the_environment_says_so() {
    let environment = [("HEADWATER_DOOR_KEEP_SAMPLES", "many"), ("HEADWATER_DOOR_BUNDLE", "b")];
    let sources = Sources::default().with_environment(environment).with_arguments(["--engine", "slow"]);
    assert_eq!(
        mistakes_of(sources),
        [
            "engine: expected \"fast\" or \"exact\", found \"slow\" (flag --engine)",
            "keep_samples: expected 1 to 65536, found many (environment HEADWATER_DOOR_KEEP_SAMPLES)",
        ]
    );
}

#[test]
fn a_single_mistake_is_named_as_several_are() {
    let file = "bundle = \"b\"\nkeep_samples = true";
    assert_eq!(
        mistakes_of(Sources::default().with_file(file)),
        ["keep_samples: expected 1 to 65536, found true"]
    );
    assert_eq!(mistakes_of(Sources::default()), ["bundle: missing"]);
}

#[test]
fn settings_that_do_not_fit_each_other_are_named() {
    let file = "bundle = \"b\"\nengine = \"exact\"";
    let mistakes = mistakes_of(Sources::default().with_file(file));
    assert_eq!(mistakes, ["keep_samples: expected below 100 with engine = \"exact\""]);
}

#[test]
fn settings_that_do_not_fit_are_named_beside_values_that_cannot_be_read() {
    let file = "engine = \"exact\"\nedges = [\"x\"]\n[broker]\naddress = \"x\"";
    assert_eq!(
        mistakes_of(Sources::default().with_file(file).with_arguments(["--broker-address", "y"])),
        [
            "bundle: missing",
            "broker.address: invalid socket address syntax, found \"y\" (flag --broker-address)",
            "edges: invalid digit found in string, found \"x\" in \"x\"",
            "keep_samples: expected below 100 with engine = \"exact\"",
        ]
    );
    // The check would complain about the default of a setting that is wrong itself.
    let file = "bundle = \"b\"\nengine = \"exact\"\nkeep_samples = 0";
    let mistakes = mistakes_of(Sources::default().with_file(file));
    assert_eq!(mistakes, ["keep_samples: expected 1 to 65536, found 0"]);
}

#[test]
fn a_log_filter_that_names_no_level_is_refused() {
    let sources = Sources::default().with_file("bundle = \"b\"\n[log]\nfilter = \"ifno\"");
    let mistakes = mistakes_of(sources);
    assert!(mistakes.len() == 1 && mistakes[0].starts_with("log.filter: expected a level ("), "{mistakes:?}");
    assert!(mistakes[0].ends_with("found \"ifno\""), "{mistakes:?}");
}

#[test]
fn an_unknown_variable_is_warned_of_with_the_nearest_name() {
    let environment = [
        ("HEADWATER_DOOR_KEEP_SAMPELS", "5"),
        ("HEADWATER_DOOR_COLOUR", "red"),
        ("HEADWTER_DOOR_BUNDLE", "not ours"),
        ("HEADWATER_DOR_BUNDLE", "nearly ours"),
        ("HEADWATER_WINDOW_BUNDLE", "of another program"),
        ("HEADWATER_DOOR_BELL", "of another program"),
        ("HEADWATER_DOOR_BELLS", "ours"),
        ("HEADWATER_DOOR_SERVICE_PORT", "of Kubernetes"),
        ("HEADWATER_DOOR_TURNS", "3"),
        ("HEADWATER_DOOR_LOCK_NAME", "front"),
        ("RUST_LOG", "info"),
    ];
    let door = loaded(Sources::default().with_file("bundle = \"b\"").with_environment(environment));
    assert_eq!(
        door.warnings,
        [
            "HEADWATER_DOOR_BELLS: no setting has this variable",
            "HEADWATER_DOOR_COLOUR: no setting has this variable",
            "HEADWATER_DOOR_KEEP_SAMPELS: no setting has this variable; did you mean HEADWATER_DOOR_KEEP_SAMPLES?",
            "HEADWATER_DOR_BUNDLE: no setting has this variable; did you mean HEADWATER_DOOR_BUNDLE?",
        ]
    );
}

#[test]
fn an_old_name_is_refused_naming_the_new_and_its_value_is_still_checked() {
    let sources = Sources::default()
        .with_file("bundle = \"b\"\nbroker = \"nowhere\"")
        .with_environment([("HEADWATER_DOOR_MOST_SAMPLES", "0")]);
    assert_eq!(
        mistakes_of(sources),
        [
            "broker: is now `broker.address`",
            "HEADWATER_DOOR_MOST_SAMPLES: is now HEADWATER_DOOR_KEEP_SAMPLES",
            "broker.address: invalid socket address syntax, found \"nowhere\"",
            "keep_samples: expected 1 to 65536, found 0 (environment HEADWATER_DOOR_KEEP_SAMPLES)",
        ]
    );
    for flags in [&["--broker", "10.0.0.1:1"][..], &["--broker=10.0.0.1:1"]] {
        let sources = Sources::default().with_file("bundle = \"b\"").with_arguments(flags);
        assert_eq!(mistakes_of(sources), ["--broker: is now --broker-address"]);
    }
}

#[test]
fn an_unknown_flag_and_a_mistake_of_the_file_are_named_together() {
    let mistakes =
        mistakes_of(Sources::default().with_arguments(["--colour", "red"]).with_file("colour = 3"));
    assert_eq!(mistakes, ["colour: no such setting", "unexpected argument '--colour' found"]);
}

#[test]
fn what_is_no_toml_is_refused_with_its_line() {
    let mistakes = mistakes_of(Sources::default().with_file("bundle = "));
    assert!(mistakes[0].contains("line 1"), "{mistakes:?}");
}

#[test]
fn the_file_is_the_one_that_a_flag_or_the_environment_names() {
    let folder = std::env::temp_dir().join(format!("headwater-settings-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("door.toml").display().to_string();
    std::fs::write(&file, "bundle = \"from the file\"").unwrap();
    let flag = Sources::default().with_arguments(["--config", &file]);
    let variable = Sources::default().with_environment([("HEADWATER_DOOR_CONFIG", file.as_str())]);
    for sources in [flag, variable] {
        assert_eq!(loaded(sources).settings.bundle, PathBuf::from("from the file"));
    }
    std::fs::remove_dir_all(&folder).unwrap();
    let mistakes = mistakes_of(Sources::default().with_arguments(["--config", &file]));
    assert!(mistakes[0].starts_with(&file), "{mistakes:?}");
}

#[test]
fn a_settings_file_without_an_end_or_of_other_bytes_is_refused_by_name() {
    let mistakes = mistakes_of(Sources::default().with_arguments(["--config", "/dev/zero"]));
    assert_eq!(mistakes, ["/dev/zero: expected a file, found something else"]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("door.toml");
    for (content, reason) in [
        (vec![b'#'; (1 << 20) + 1], "expected at most 1048576 bytes, found 1048577"),
        (vec![b'#', 0xff], "expected text in UTF-8, found another byte after 1 bytes"),
    ] {
        std::fs::write(&file, content).unwrap();
        let mistakes =
            mistakes_of(Sources::default().with_arguments(["--config".as_ref(), file.as_os_str()]));
        assert_eq!(mistakes, [format!("{}: {reason}", file.display())]);
    }
}

#[test]
fn what_is_shown_is_a_file_that_is_accepted_back_and_shows_no_secret() {
    let environment = [
        ("HEADWATER_DOOR_BROKER_PASSWORD", "hidden"),
        ("HEADWATER_DOOR_EDGES", "0,2"),
        ("RUST_LOG", "debug"),
    ];
    let sources = Sources::default()
        .with_file("keep_samples = 5\n[broker]\naddress = \"10.0.0.1:1\"")
        .with_environment(environment)
        .with_arguments(["--bundle", "7"]);
    let door = loaded(sources);
    assert_eq!(door.settings.broker.password.as_deref(), Some("hidden"));
    assert_eq!(door.settings.log.filter, "debug");
    let shown = door.to_toml(None);
    assert!(!shown.contains("hidden"), "{shown}");
    let from = ["# flag --bundle", "# environment HEADWATER_DOOR_BROKER_PASSWORD", "# file", "# default"];
    from.iter().for_each(|from| assert!(shown.contains(from), "{from} in {shown}"));
    let again = loaded(Sources::default().with_file(shown)).settings;
    assert_eq!((again.bundle, again.keep_samples), (door.settings.bundle, door.settings.keep_samples));
    assert_eq!((again.edges, again.broker.address), (door.settings.edges, door.settings.broker.address));
    assert_eq!(again.log.filter, "debug");
}

#[test]
fn a_struct_without_a_section_is_there_when_one_of_its_settings_is() {
    let read = |text: &str| load::<Door>(Sources::default().with_file(format!("bundle = \"b\"\n{text}")));
    let door = read("").unwrap();
    assert!(door.settings.lock.is_none());
    assert!(door.to_toml(None).contains("# turns is not set"));
    let lock = read("lock_name = \"front\"").unwrap().settings.lock.unwrap();
    assert_eq!((lock.lock_name.as_str(), lock.turns.get()), ("front", 2));
    assert!(matches!(read("turns = 3"), Err(Stop::Mistakes(mistakes)) if mistakes == ["lock_name: missing"]));
}

#[test]
fn a_secret_in_a_file_is_refused_without_its_value() {
    let mistakes =
        mistakes_of(Sources::default().with_file("bundle = \"b\"\n[broker]\npassword = \"hidden\""));
    assert_eq!(mistakes, ["broker.password: only in the environment, HEADWATER_DOOR_BROKER_PASSWORD"]);
}

#[test]
fn the_example_file_explains_every_setting_and_is_accepted() {
    let text = example::<Door>(None, "bundle = \"network.hwb\"\nedges = [0]\nlock_name = \"front\"").unwrap();
    let expected = "# Bundle of the network.
bundle = \"network.hwb\"
# Samples kept in memory.
# Fewer saves memory.
# keep_samples = 1024
# \"fast\" or \"exact\".
# engine = \"fast\"
# Edges that run in this process.
# edges = [0]
# Name of the lock.
# lock_name = \"front\"
# Turns of the key.
# turns = 2

[broker]
# Where the broker is.
# address = \"127.0.0.1:1883\"

[log]
";
    assert!(text.starts_with(expected), "{text}");
    let door = loaded(Sources::default().with_file(text));
    assert_eq!(door.settings.edges, None);
    assert_eq!(
        example::<Door>(None, "bundle = \"b\"\nturns = 1\nlock_name = \"l\"").unwrap_err(),
        ["edges: expected an example, found none"]
    );
}

#[test]
fn tables_of_an_array_are_read_each_with_all_mistakes() {
    let read = |text: &str| {
        let sources = Sources::default().with_file(text);
        load_with_tables::<Door, Hinge>(sources, "hinge")
    };
    let (door, hinges) =
        read("bundle = \"b\"\n[[hinge]]\nname = \"up\"\n[[hinge]]\nname = \"down\"\ngrease_g = 0").unwrap();
    assert_eq!(door.settings.bundle, PathBuf::from("b"));
    let names: Vec<_> =
        hinges.iter().map(|hinge| (hinge.settings.name.as_str(), hinge.settings.grease_g.get())).collect();
    assert_eq!(names, [("up", 3), ("down", 0)]);
    let shown: String = hinges.iter().map(|hinge| hinge.to_toml(Some("hinge"))).collect();
    let (_, again) = read(&format!("{}{shown}", door.to_toml(None))).unwrap();
    assert_eq!(again.len(), 2);
    match read("[[hinge]]\ngrease_g = 11\n[[hinge]]\nnam = \"x\"") {
        Err(Stop::Mistakes(mistakes)) => assert_eq!(
            mistakes,
            [
                "bundle: missing",
                "hinge[0].name: missing",
                "hinge[0].grease_g: expected 0 to 10, found 11",
                "hinge[1].nam: no such setting; did you mean `name`?",
                "hinge[1].name: missing",
            ]
        ),
        other => panic!("expected mistakes, found {other:?}"),
    }
}

#[test]
fn help_explains_every_setting_and_stops_before_mistakes() {
    match load::<Door>(Sources::default().with_arguments(["--help"]).with_file("colour = 3")) {
        Err(Stop::Help(text)) => {
            for part in
                ["Watches a door.", "--keep-samples", "HEADWATER_DOOR_KEEP_SAMPLES", "1024", "--log-filter"]
            {
                assert!(text.contains(part), "{part} in {text}");
            }
        }
        other => panic!("expected help, found {other:?}"),
    }
}
