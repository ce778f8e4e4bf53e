//! One script of conformance, for the embedded broker and for Mosquitto: both must behave the same. A scenario says where
//! Mosquitto 2.0.11 differs.

mod client;
mod messages;
mod refusals;
mod sessions;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use client::{Address, Bench};
use headwater_link::broker::EmbeddedBroker;

type Scenario = (&'static str, fn(&Bench));

#[rustfmt::skip]
const SCENARIOS: &[Scenario] = &[
    ("a message passes with payload and properties as they are", messages::properties_pass_through),
    ("a wildcard of the first level does not match a topic that begins with $", messages::wildcards_leave_out_topics_with_a_dollar),
    ("each matching subscription gets a message, at the lower QoS of both sides", messages::each_subscription_counts_at_its_qos),
    ("messages of a topic keep their order", messages::messages_of_a_topic_keep_their_order),
    ("a message that nobody reads is acknowledged with that reason", messages::nobody_reads),
    ("a subscription without local messages leaves out the client's own", messages::no_local),
    ("an alias stands for its topic until the connection ends", messages::an_alias_stands_for_its_topic),
    ("an alias above the limit ends the connection", messages::an_alias_above_the_limit),
    ("no more messages wait for a client's acknowledgement than it allows", messages::the_receive_maximum_of_a_client_holds),
    ("a message above a client's packet limit is left out, and the next one comes", messages::a_message_above_the_packet_limit_of_a_client),
    ("a subscription that is taken back gets nothing", messages::unsubscribing),
    ("the last retained message of a topic reaches a later subscriber until it is cleared", messages::a_retained_message_reaches_a_later_subscriber),
    ("a subscription may keep the retain flag", messages::retain_as_published),
    ("a subscription says when it wants retained messages", messages::retain_handling),
    ("a retained message expires, and its expiry is counted down", messages::expiry_of_retained_messages),
    ("a session keeps subscriptions and messages at QoS 1 while its client is away", sessions::a_session_keeps_messages_of_qos_1),
    ("a message that is not acknowledged comes again under its id", sessions::what_is_not_acknowledged_comes_again),
    ("a session ends with its expiry", sessions::a_session_ends_with_its_expiry),
    ("a clean start ends the session before", sessions::a_clean_start_ends_the_session),
    ("a client that leaves may shorten its session, and not prolong one of 0", sessions::the_expiry_may_change_at_the_end),
    ("a second connection of a client ends the first and continues its session", sessions::a_client_id_is_taken_over),
    ("a client without an id gets one", sessions::a_client_without_an_id_gets_one),
    ("a message that waits for its client expires, and its expiry is counted down", sessions::expiry_of_waiting_messages),
    ("a lost client leaves its will with all properties", sessions::a_lost_client_leaves_its_will),
    ("a client that leaves says whether its will follows", sessions::a_client_that_leaves_decides_about_its_will),
    ("a retained will is kept", sessions::a_retained_will_is_kept),
    ("a will waits for its delay", |bench| sessions::a_delayed_will_comes(bench, 60, 1)),
    ("a will does not wait longer than its session", |bench| sessions::a_delayed_will_comes(bench, 1, 3600)),
    ("a client that returns within the delay leaves no will", sessions::a_client_that_returns_in_time_leaves_no_will),
    ("a clean start does not wait for the will of the session before", sessions::a_clean_start_does_not_wait_for_the_will),
    ("a take-over leaves a will without delay", sessions::a_take_over_leaves_a_will_without_delay),
    ("QoS 2 is announced as missing and refused", refusals::qos_2),
    ("a client that is silent for longer than it said is disconnected", refusals::a_silent_client),
    ("authentication is refused", refusals::authentication),
    ("a client of another version is refused in a form that it reads", refusals::another_version),
    ("shared subscriptions and subscription identifiers are announced as missing and refused", refusals::shared_subscriptions_and_identifiers),
    ("a filter of another form is refused", refusals::a_filter_of_another_form),
    ("a broken packet ends its connection with the reason", refusals::broken_packets_of_a_client),
    ("what is no MQTT is closed without a word", refusals::what_is_no_mqtt),
];

/// Runs all scenarios side by side, and names the scenarios that fail.
fn run(address: &Address) {
    let failed: Vec<_> = thread::scope(|scope| {
        let started = SCENARIOS.iter().enumerate().map(|(number, (sentence, scenario))| {
            let bench = Bench { address: address.clone(), scenario: number };
            let run =
                move || catch_unwind(AssertUnwindSafe(|| scenario(&bench))).is_err().then_some(*sentence);
            thread::Builder::new().name((*sentence).into()).spawn_scoped(scope, run).expect("a thread")
        });
        let started: Vec<_> = started.collect();
        started.into_iter().filter_map(|thread| thread.join().expect("panics are caught")).collect()
    });
    assert!(failed.is_empty(), "{failed:#?}");
}

#[test]
fn the_embedded_broker_conforms() {
    let broker = EmbeddedBroker::start().expect("a free port");
    run(&Address::Tcp(broker.address()));
}

/// A Mosquitto; killed when dropped.
struct Mosquitto(Child);

impl Mosquitto {
    /// Starts Mosquitto on a Unix socket in this folder; `None` if Mosquitto is not installed.
    fn start(folder: &Path) -> Option<(Self, Address)> {
        let (config, file) = (folder.join("mosquitto.conf"), folder.join("socket"));
        // Without `user root`, a Mosquitto that root starts switches to a user who may not read the folder.
        let text = format!(
            "user root\nlistener 0 {}\nallow_anonymous true\nmax_qos 1\nmax_packet_size 1000000\n",
            file.display()
        );
        std::fs::write(&config, text).expect("the folder can be written");
        let path = format!("{}:/usr/sbin:/usr/local/sbin", std::env::var("PATH").unwrap_or_default());
        let mut command = Command::new("mosquitto");
        command.arg("-c").arg(config).env("PATH", path).stdout(Stdio::null()).stderr(Stdio::null());
        let broker = Self(command.spawn().ok()?);
        let start = Instant::now();
        while std::os::unix::net::UnixStream::connect(&file).is_err() {
            assert!(start.elapsed() < Duration::from_secs(20), "mosquitto does not listen");
            thread::sleep(Duration::from_millis(5));
        }
        Some((broker, Address::File(file)))
    }
}

impl Drop for Mosquitto {
    fn drop(&mut self) {
        // A process that has ended already needs no signal.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn mosquitto_conforms() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    match Mosquitto::start(folder.path()) {
        Some((_broker, address)) => run(&address),
        None => eprintln!("skipped: mosquitto is not installed (scripts/install/test-tools)"),
    }
}
