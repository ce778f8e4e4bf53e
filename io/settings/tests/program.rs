//! A program with sections, a secret and an array of tables.

use std::path::PathBuf;

use headwater_settings::{
    CommandLine, List, Loaded, LogSettings, Misfit, Origin, Program, Sources, Stop, Tables, Value, default,
    example, flat, load, optional, required, secret, section, settings, switch, tables,
};
use serde::Deserialize;

settings! {
    /// Watches a door.
    #[derive(Debug)]
    pub struct Door {
        /// Options of the command line.
        pub command_line: CommandLine = flat(),
        /// Bundle of the network.
        pub bundle: PathBuf = required("network.hwb"),
        /// Samples kept in memory.
        /// Fewer saves memory.
        pub keep_samples: usize = default("1024").within(1..=65_536),
        /// "fast" or "exact".
        pub engine: Engine = default("fast").word(),
        /// Edges that run in this process.
        pub edges: Option<List<usize>> = optional("[0]"),
        /// Whether the door is open.
        pub open: bool = switch(),
        /// The broker.
        pub broker: Broker = section(),
        /// The log.
        pub log: LogSettings = section(),
    }

    /// Section `[broker]`.
    #[derive(Debug)]
    pub struct Broker {
        /// Where the broker is.
        pub address: std::net::SocketAddr = default("127.0.0.1:1883"),
        /// User and password.
        pub password: Option<String> = secret(),
    }

    /// A door with hinges.
    #[derive(Debug)]
    pub struct HingedDoor {
        /// The door.
        pub door: Door = flat(),
        /// The hinges.
        pub hinges: Tables<Hinge> = tables("hinge"),
    }

    /// One table of `[[hinge]]`.
    #[derive(Debug)]
    pub struct Hinge {
        /// Name of the hinge.
        pub name: String = required("upper"),
        /// Grease in grams.
        pub grease_g: u64 = default("3").within(0..=10),
        /// Whether the hinge squeaks.
        pub squeaks: bool = switch(),
    }
}

/// Way of watching the door.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Engine {
    /// Within a millisecond.
    Fast,
    /// Without a mistake.
    Exact,
}

impl Program for Door {
    const NAME: &'static str = "headwater-door";
    const PREFIX: &'static str = "HEADWATER_DOOR_";
    const OTHER_VARIABLES: &'static [&'static str] = &["HEADWATER_DOOR_BELL"];

    fn check(&self, _values: &[Value]) -> Vec<Misfit> {
        let fits = self.engine == Engine::Fast || self.keep_samples < 100;
        let misfit = Misfit::new("keep_samples", "expected below 100 with engine = \"exact\"").with("engine");
        if fits { Vec::new() } else { vec![misfit] }
    }
}

impl Program for HingedDoor {
    const NAME: &'static str = "headwater-door";
    const PREFIX: &'static str = "HEADWATER_DOOR_";

    fn check(&self, values: &[Value]) -> Vec<Misfit> {
        self.door.check(values)
    }
}

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
    assert_eq!((door.settings.keep_samples, origin(&door, "keep_samples")), (5, &Origin::File(2)));
    assert_eq!(door.settings.edges, Some(List(vec![0, 2])));
    assert_eq!((door.settings.engine, origin(&door, "engine")), (Engine::Fast, &Origin::Default));
    let door = loaded(sources().with_environment(environment));
    let from = Origin::Environment("HEADWATER_DOOR_KEEP_SAMPLES".into());
    assert_eq!((door.settings.keep_samples, origin(&door, "keep_samples")), (6, &from));
    let flags = ["--keep-samples", "7", "--broker-address=10.0.0.3:3"];
    let door = loaded(sources().with_environment(environment).with_arguments(flags));
    assert_eq!(door.settings.keep_samples, 7);
    assert_eq!(origin(&door, "broker.address"), &Origin::Flag("broker-address".into()));
    assert_eq!(door.settings.broker.address.to_string(), "10.0.0.3:3");
}

#[test]
fn every_mistake_is_named_at_once_with_key_expected_and_found() {
    let file = "keep_samples = 0\nengine = \"slow\"\nedges = [0, \"x\"]\ncolour = 3\n[broker]\nadress = \"x\"\naddress = \"x\"";
    assert_eq!(
        mistakes_of(Sources::default().with_file(file)),
        [
            "bundle: missing",
            "keep_samples: expected 1 to 65536, found 0 (line 1)",
            "engine: expected \"fast\" or \"exact\", found \"slow\" (line 2)",
            "edges: invalid digit found in string, found \"x\" in \"0,x\" (line 3)",
            "broker.address: invalid socket address syntax, found \"x\" (line 7)",
            "broker.adress: no such key; did you mean `broker.address`? (line 6)",
            "colour: no such key (line 4)",
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
            "keep_samples: expected 1 to 65536, found many (environment HEADWATER_DOOR_KEEP_SAMPLES)",
            "engine: expected \"fast\" or \"exact\", found \"slow\" (flag --engine)",
        ]
    );
}

#[test]
fn a_single_mistake_is_named_as_several_are() {
    let file = "bundle = \"b\"\nkeep_samples = true";
    assert_eq!(
        mistakes_of(Sources::default().with_file(file)),
        ["keep_samples: expected 1 to 65536, found true (line 2)"]
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
            "edges: invalid digit found in string, found \"x\" in \"x\" (line 2)",
            "broker.address: invalid socket address syntax, found \"y\" (flag --broker-address)",
            "keep_samples: expected below 100 with engine = \"exact\"",
        ]
    );
    // A wrong setting is read as its default. `Door::check` would complain about that default, so its complaint is left out.
    let file = "bundle = \"b\"\nengine = \"exact\"\nkeep_samples = 0";
    let mistakes = mistakes_of(Sources::default().with_file(file));
    assert_eq!(mistakes, ["keep_samples: expected 1 to 65536, found 0 (line 3)"]);
}

#[test]
fn a_log_filter_that_names_no_level_is_refused() {
    let sources = Sources::default().with_file("bundle = \"b\"\n[log]\nfilter = \"ifno\"");
    let mistakes = mistakes_of(sources);
    assert!(mistakes.len() == 1 && mistakes[0].starts_with("log.filter: expected a level ("), "{mistakes:?}");
    assert!(mistakes[0].ends_with("found \"ifno\" (line 3)"), "{mistakes:?}");
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
fn an_unknown_flag_and_a_mistake_of_the_file_are_named_together() {
    let mistakes =
        mistakes_of(Sources::default().with_arguments(["--colour", "red"]).with_file("colour = 3"));
    assert_eq!(mistakes, ["--colour: no such flag", "bundle: missing", "colour: no such key (line 1)"]);
    let mistakes = mistakes_of(Sources::default().with_arguments(["--bundel=b", "--keep-samples", "0"]));
    let expected = [
        "--bundel: no such flag; did you mean --bundle?",
        "bundle: missing",
        "keep_samples: expected 1 to 65536, found 0 (flag --keep-samples)",
    ];
    assert_eq!(mistakes, expected);
    let twice = ["--bundle", "a", "--bundle", "b"];
    let mistakes = mistakes_of(Sources::default().with_arguments(twice));
    assert!(
        mistakes[0].starts_with("--bundle") && mistakes[0].ends_with("expected once, found twice"),
        "{mistakes:?}"
    );
}

#[test]
fn what_is_no_toml_is_refused_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("door.toml");
    std::fs::write(&file, "bundle = ").unwrap();
    let mistakes = mistakes_of(Sources::of_file(&file));
    assert!(mistakes[0].starts_with(&format!("{}:1: ", file.display())), "{mistakes:?}");
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
    let shown = door.to_toml();
    assert!(!shown.contains("hidden"), "{shown}");
    let from = ["# flag --bundle", "# environment HEADWATER_DOOR_BROKER_PASSWORD", "# file", "# default"];
    from.iter().for_each(|from| assert!(shown.contains(from), "{from} in {shown}"));
    let again = loaded(Sources::default().with_file(shown)).settings;
    assert_eq!((again.bundle, again.keep_samples), (door.settings.bundle, door.settings.keep_samples));
    assert_eq!((again.edges, again.broker.address), (door.settings.edges, door.settings.broker.address));
    assert_eq!(again.log.filter, "debug");
}

#[test]
fn a_secret_in_a_file_is_refused_without_its_value() {
    let mistakes =
        mistakes_of(Sources::default().with_file("bundle = \"b\"\n[broker]\npassword = \"hidden\""));
    assert_eq!(
        mistakes,
        ["broker.password: only in the environment, HEADWATER_DOOR_BROKER_PASSWORD (line 3)"]
    );
}

#[test]
fn the_example_file_explains_every_setting_and_is_accepted() {
    let text = example::<Door>();
    let expected = "# Bundle of the network.
bundle = \"network.hwb\"
# Samples kept in memory.
# Fewer saves memory.
# keep_samples = 1024
# \"fast\" or \"exact\".
# engine = \"fast\"
# Edges that run in this process.
# edges = [0]
# Whether the door is open.
# open = true

[broker]
# Where the broker is.
# address = \"127.0.0.1:1883\"

[log]
";
    assert!(text.starts_with(expected), "{text}");
    let door = loaded(Sources::default().with_file(text));
    assert_eq!(door.settings.edges, None);
}

#[test]
fn tables_of_an_array_are_read_each_with_all_mistakes() {
    let read = |text: &str| load::<HingedDoor>(Sources::default().with_file(text));
    let door =
        read("bundle = \"b\"\n[[hinge]]\nname = \"up\"\n[[hinge]]\nname = \"down\"\ngrease_g = 0").unwrap();
    let hinges = &door.settings.hinges;
    let names: Vec<_> = hinges.all.iter().map(|hinge| (hinge.name.as_str(), hinge.grease_g)).collect();
    assert_eq!((names, hinges.place(1)), (vec![("up", 3), ("down", 0)], "hinge[1].".into()));
    assert_eq!(read(&door.to_toml()).unwrap().settings.hinges.all.len(), 2);
    let Err(Stop::Mistakes(mistakes)) = read("[[hinge]]\ngrease_g = 11\n[[hinge]]\nnam = \"x\"") else {
        panic!("expected mistakes");
    };
    assert_eq!(
        mistakes,
        [
            "bundle: missing",
            "hinge[0].name: missing",
            "hinge[0].grease_g: expected 0 to 10, found 11 (line 2)",
            "hinge[1].name: missing",
            "hinge[1].nam: no such key; did you mean `name`? (line 4)",
        ]
    );
}

#[test]
fn one_table_is_given_without_an_array_by_every_source() {
    let sources = Sources::default()
        .with_file("bundle = \"b\"\ngrease_g = 5")
        .with_environment([("HEADWATER_DOOR_NAME", "only")])
        .with_arguments(["--squeaks"]);
    let door = load::<HingedDoor>(sources).unwrap().settings;
    let hinge = &door.hinges.all[0];
    assert_eq!((hinge.name.as_str(), hinge.grease_g, hinge.squeaks), ("only", 5, true));
    assert_eq!(door.hinges.place(0), "");
}

#[test]
fn a_value_where_a_section_is_expected_is_refused() {
    let mistakes = mistakes_of(Sources::default().with_file("bundle = \"b\"\nbroker = \"x\""));
    assert_eq!(mistakes, ["broker: expected a section [broker], found a value (line 2)"]);
    let mistakes = mistakes_of(Sources::default().with_file("bundle = \"b\"\n[[hinge]]\nname = \"up\""));
    assert_eq!(mistakes, ["hinge: no such key (line 3)"]);
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
