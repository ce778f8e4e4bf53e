//! A broker with certificates and access rules of `headwater enroll`: the rights of each role, and the messages to a client that is refused.
//! A tier with trusted keys takes only signed bundles.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use headwater_link::{Incoming, Link, LinkConfig, QoS};
use headwater_tests::group::WAIT_LIMIT;
use headwater_tests::site::{GROUPS, Part, SITE, Site};
use headwater_tests::{programs, shipped};
use tokio::sync::mpsc::Receiver;
use tokio::time::{sleep, timeout};

/// Runs `headwater trigger` with these flags. Returns the exit code and standard error.
fn trigger(site: &Site, flags: &[String]) -> (Option<i32>, String) {
    let output = programs::command("headwater")
        .args(["trigger", "--site", SITE, "--group", GROUPS[0], "--broker"])
        .arg(format!("mqtts://localhost:{}", site.broker_port))
        .args(flags)
        .output()
        .expect("the command starts");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// The flag that names a file in the member's folder `own`. `name` is `authority`, `certificate` or `key`.
fn flag(own: &Path, name: &str) -> [String; 2] {
    [format!("--tls-{name}-file"), own.join(format!("{name}.pem")).display().to_string()]
}

/// Waits until the broker has taken these clients.
async fn all_connected(links: &[&Link]) {
    let connected = async {
        while !links.iter().all(|link| link.is_connected()) {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(WAIT_LIMIT, connected).await.expect("the broker takes them");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_the_broker_does_not_admit_is_told_why_at_once() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut site = Site::enroll(folder.path());
    site.start(Part::Broker);
    let own = site.member(GROUPS[0], "operator");
    let authority = flag(&own, "authority");
    let start = Instant::now();
    let (code, without) = trigger(&site, &authority);
    assert_eq!(code, Some(1), "{without}");
    assert!(without.contains("it wants a certificate"), "{without}");
    let strangers = tempfile::tempdir().expect("a temporary folder");
    let stranger = Site::enroll(strangers.path());
    let foreign = stranger.member(GROUPS[0], "operator");
    let pair = [flag(&foreign, "certificate"), flag(&foreign, "key")].concat();
    let (code, other) = trigger(&site, &[authority.to_vec(), pair].concat());
    assert_eq!(code, Some(1), "{other}");
    assert!(other.contains("not of an authority that it trusts"), "{other}");
    let (code, nobody) = trigger(&site, &[]);
    assert_eq!(code, Some(2), "{nobody}");
    assert!(nobody.contains("tls.authority_file: missing"), "{nobody}");
    for text in [&without, &other] {
        assert!(!text.contains("is a broker there?"), "{text}");
    }
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_publishes_what_its_role_allows_and_nothing_after_it_was_revoked() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut site = Site::enroll(folder.path());
    site.start(Part::Broker);
    let prefix = format!("headwater/v1/{SITE}/{}", GROUPS[0]);
    let start = |name: &str, filter: &str| {
        let config = LinkConfig::new(site.access(GROUPS[0], name), name);
        Link::start(config.subscribe(format!("{prefix}/{filter}"), QoS::AtLeastOnce)).expect("a filter")
    };
    // The operator may read all topics of the group. The device subscribes to all topics too, and gets only those that it may read.
    let (operator, mut heard) = start("operator", "#");
    let (device, mut heard_by_device) = start("cam-1", "#");
    let (leader, _leader) = start("leader", "trigger");
    all_connected(&[&operator, &device, &leader]).await;
    let say = |link: &Link, topic: &str| {
        let topic = format!("{prefix}/{topic}");
        link.publish(topic, "said", QoS::AtLeastOnce, false).expect("connected");
    };
    const ALL: &str = "dev/cam-0/summary dev/cam-0/kept dev/cam-1/summary dev/cam-1/kept dev/cam-1/cmd result settled \
        request leader policy/operator policy/operator/answer frame kept trigger";
    for (link, expected) in [
        (&device, "dev/cam-1/summary dev/cam-1/kept"),
        (&leader, "dev/cam-1/cmd result settled request leader policy/operator/answer frame kept"),
        (&operator, "policy/operator trigger"),
    ] {
        let expected: Vec<_> = expected.split(' ').collect();
        // The message on an expected topic is sent last: when it arrives, all earlier messages that the broker passes on have arrived.
        let last = expected[expected.len() - 1];
        ALL.split(' ').filter(|topic| *topic != last).chain([last]).for_each(|topic| say(link, topic));
        let mut topics = Vec::new();
        while topics.last().is_none_or(|topic: &String| !topic.ends_with(last)) {
            topics.push(next_topic(&mut heard).await);
        }
        assert_eq!(topics, expected.iter().map(|topic| format!("{prefix}/{topic}")).collect::<Vec<_>>());
    }
    let mut topics = BTreeSet::new();
    while !topics.contains(&format!("{prefix}/trigger")) {
        topics.insert(next_topic(&mut heard_by_device).await);
    }
    let read = ["dev/cam-1/cmd", "settled", "request", "leader", "frame", "kept", "trigger"];
    assert_eq!(topics, read.map(|topic| format!("{prefix}/{topic}")).into());
    site.headwater(&["enroll", "revoke", "--group", GROUPS[0], "cam-1"]);
    site.signal(Part::Broker, "HUP");
    // The broker reads its access rules some time after the signal.
    let until_silent = async {
        say(&device, "dev/cam-1/summary");
        while timeout(Duration::from_secs(1), heard.recv()).await.is_ok() {
            say(&device, "dev/cam-1/summary");
        }
    };
    timeout(WAIT_LIMIT, until_silent).await.expect("a revoked member is not heard");
    let (again, _again) =
        Link::start(LinkConfig::new(site.access(GROUPS[0], "cam-1"), "cam-again")).expect("a client");
    let mut failures = again.failures();
    let refused = timeout(WAIT_LIMIT, failures.wait_for(Option::is_some)).await.expect("in time");
    let refused = refused.expect("the link lives").clone().expect("a failure");
    assert!(refused.is_refusal(), "{refused}");
}

/// Topic of the next message that a link receives.
async fn next_topic(heard: &mut Receiver<Incoming>) -> String {
    loop {
        let incoming = timeout(WAIT_LIMIT, heard.recv()).await.expect("in time").expect("the link lives");
        if let Incoming::Message { topic, .. } = incoming {
            return topic;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_reads_its_groups_and_sees_frames_and_acts_where_it_has_the_right() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut site = Site::enroll(folder.path());
    let topic = |group: usize, topic: &str| format!("headwater/v1/{SITE}/{}/{topic}", GROUPS[group]);
    let pages = [("wall", &[][..], 2), ("camera", &["--frames"][..], 2), ("hand", &["--act"][..], 1)];
    for (name, rights, groups) in pages {
        site.headwater(&[&["enroll", "page", "--name", name], rights, &GROUPS[..groups]].concat());
    }
    // A renewed certificate keeps the page's rights.
    site.headwater(&["enroll", "renew", "wall"]);
    site.start(Part::Broker);
    let start = |group: &str, name: &str| {
        let all = format!("headwater/v1/{SITE}/#");
        let config = LinkConfig::new(site.access(group, name), name).subscribe(all, QoS::AtLeastOnce);
        Link::start(config).expect("a filter")
    };
    let orders = LinkConfig::new(site.access(GROUPS[0], "leader"), "leader")
        .subscribe(topic(0, "trigger"), QoS::AtLeastOnce);
    let (leader, mut orders) = Link::start(orders).expect("a filter");
    let (other, _other) =
        Link::start(LinkConfig::new(site.access(GROUPS[1], "leader"), "other")).expect("a client");
    let (device, _device) =
        Link::start(LinkConfig::new(site.access(GROUPS[0], "cam-0"), "cam-0")).expect("a client");
    let mut heard_by = Vec::new();
    for (name, rights, groups) in pages {
        // A page belongs to no group: the folder of a page is beside the folders of the groups.
        let (page, mut heard) = start("", name);
        let connected = async { while !matches!(heard.recv().await, Some(Incoming::Connected)) {} };
        timeout(WAIT_LIMIT, connected).await.expect("the broker takes a page");
        heard_by.push((name, rights, groups, page, heard));
    }
    all_connected(&[&leader, &other, &device]).await;
    let say =
        |link: &Link, topic: String| link.publish(topic, "said", QoS::AtLeastOnce, false).expect("connected");
    say(&other, topic(1, "result"));
    say(&device, topic(0, "dev/cam-0/summary"));
    say(&device, topic(0, "dev/cam-0/frame"));
    say(&device, topic(0, "dev/cam-0/status"));
    say(&leader, topic(0, "result"));
    for (name, rights, groups, page, mut heard) in heard_by {
        let mut expected = BTreeSet::from([topic(0, "dev/cam-0/status"), topic(0, "result")]);
        expected.extend((groups == 2).then(|| topic(1, "result")));
        expected.extend((rights == ["--frames"]).then(|| topic(0, "dev/cam-0/frame")));
        let mut topics = BTreeSet::new();
        while !expected.is_subset(&topics) {
            let incoming = timeout(WAIT_LIMIT, heard.recv()).await;
            if let Some(Incoming::Message { topic, .. }) =
                incoming.unwrap_or_else(|_| panic!("{name}: {topics:?}"))
            {
                topics.insert(topic);
            }
        }
        assert_eq!(topics, expected, "{name}");
        let acts = rights == ["--act"];
        let mut expected = BTreeSet::from([topic(0, "result")]);
        expected.extend((!acts).then(|| topic(0, "trigger")));
        say(&page, topic(0, "trigger"));
        say(&page, topic(0, "result"));
        let mut refused = BTreeSet::new();
        while !expected.is_subset(&refused) {
            let incoming = timeout(WAIT_LIMIT, heard.recv()).await;
            if let Some(Incoming::Refused { topic, .. }) =
                incoming.unwrap_or_else(|_| panic!("{name}: {refused:?}"))
            {
                refused.insert(topic);
            }
        }
        assert_eq!(refused, expected, "{name}");
        let triggered = async { while !matches!(orders.recv().await, Some(Incoming::Message { .. })) {} };
        if acts {
            timeout(WAIT_LIMIT, triggered).await.expect("the leader hears the trigger");
        }
    }
    site.headwater(&["enroll", "revoke", "wall"]);
    let rules = site.members().join("broker/access.rules");
    let rules = std::fs::read_to_string(rules).expect("rules");
    assert!(!rules.contains("CN=wall,") && rules.contains("CN=camera,"), "{rules}");
}

#[test]
fn a_client_that_may_not_trigger_is_told_which_topic_the_broker_refuses_and_which_role_has_it() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut site = Site::enroll(folder.path());
    site.start(Part::Broker);
    for (group, name) in [(GROUPS[0], "screen"), (GROUPS[1], "operator")] {
        let own = site.member(group, name);
        let identity = ["authority", "certificate", "key"].map(|name| flag(&own, name));
        let (code, said) = trigger(&site, &identity.concat());
        assert_eq!(code, Some(1), "{said}");
        let topic = format!("headwater/v1/{SITE}/{}/trigger", GROUPS[0]);
        for part in [topic.as_str(), "not authorized", "the role `operator` of the group"] {
            assert!(said.contains(part), "{group}/{name}: {part} in {said}");
        }
        assert!(!said.contains("no device of the group"), "{said}");
    }
}

#[test]
fn a_tier_with_trusted_keys_takes_signed_bundles_alone() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = |name: &str| folder.path().join(name).display().to_string();
    let run = |program: &str, arguments: &[&str]| {
        let output = programs::command(program).args(arguments).output().expect("the program starts");
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8_lossy(&text).into_owned())
    };
    let (signed, unsigned) = (file("signed.hwb"), shipped::bundle_path().display().to_string());
    let keys = ["own.key", "other.key"].map(|name| {
        let (code, key) = run("headwater", &["sign", "--new-key", &file(name)]);
        assert_eq!(code, Some(0), "{key}");
        key.trim().to_owned()
    });
    let (code, said) =
        run("headwater", &["sign", "--key", &file("own.key"), "--release", "1", &unsigned, "--out", &signed]);
    assert_eq!(code, Some(0), "{said}");
    let frames = shipped::frames_path().display().to_string();
    let device =
        ["--site", "s", "--group", "g", "--id", "d", "--slot", "0", "--source-path", frames.as_str()];
    for (program, flags) in
        [("headwater-device", &device[..]), ("headwater-aggregator", &[]), ("headwater-cloud", &[])]
    {
        let check = |bundle: &str, key: &str| {
            let own = ["--check-config", "--trusted-keys", key, "--bundle", bundle];
            run(program, &[flags, &own[..]].concat())
        };
        assert_eq!(check(&signed, &keys[0]).0, Some(0), "{program}: {}", check(&signed, &keys[0]).1);
        let both = keys.join(",");
        assert_eq!(check(&signed, &both).0, Some(0), "{program} with two keys");
        for (bundle, key, reason) in [
            (&unsigned, &keys[0], "expected a signature by a trusted key, found none"),
            (&signed, &keys[1], "is not among `trusted_keys`"),
        ] {
            let (code, said) = check(bundle, key);
            assert_eq!(code, Some(2), "{program}: {said}");
            assert!(said.contains(reason), "{program}: {reason} in {said}");
        }
        // The file has a line for each name with the release that was used last. A program reads only the line of its own name.
        let releases = file("releases");
        std::fs::write(&releases, "s/g/d 2\nhome/demo 2\ncloud 2\n").unwrap();
        let own =
            ["--check-config", "--trusted-keys", &keys[0], "--release-file", &releases, "--bundle", &signed];
        let (code, said) = run(program, &[flags, &own[..]].concat());
        assert_eq!(code, Some(2), "{program}: {said}");
        assert!(said.contains("expected release 2 or a later one, found release 1"), "{program}: {said}");
    }
}
