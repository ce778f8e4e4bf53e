//! Groups and clients for tests. Their waits are so long that they do not end early on a busy machine.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use headwater_cloud_service::EngineChoice;
use headwater_group::start::{
    InProcessGroup, InProcessSettings, ProgramGroup, ProgramPaths, ProgramSettings, SiteSettings,
    find_program,
};
use headwater_group::{ClientSettings, GroupClient};
use headwater_inference::bundle::{Bundle, Networks};
use headwater_inference::manifest::Configuration;
use headwater_inference::policy::{ExitThreshold, Policy, Threshold};
use headwater_inference::testing::TinyNetwork;
use headwater_link::Endpoint;
use headwater_link::broker::EmbeddedBroker;
use headwater_protocol::{Decision, Exit, GroupId, NetworkId, SampleId, SiteId, Slot};

use crate::shipped;
use crate::waits::Waits;

/// Longest wait of a test for one event. It is longer than every deadline of the tiers, so a test that reaches it fails.
pub const WAIT_LIMIT: Duration = Duration::from_secs(90);

/// The policy with waits that do not end early on a busy machine, and without its promises, which a policy file cannot state.
pub fn patient(policy: Policy) -> Policy {
    Policy { window_ms: 20_000, features_ms: 20_000, deadline_ms: 60_000, promises: Vec::new(), ..policy }
}

/// A network of the configuration that fits the shipped frames: with one slot if the configuration has the exit `device`, otherwise six.
pub fn network(configuration: Configuration) -> TinyNetwork {
    let slots = if configuration.has(Exit::DEVICE) { 1 } else { 6 };
    let edges = match configuration {
        Configuration::D => vec![vec![0]],
        Configuration::E => vec![(0..6).collect()],
        Configuration::F => vec![vec![0, 2, 4], vec![1, 3, 5]],
        _ => Vec::new(),
    };
    let policy = patient(Policy::default());
    TinyNetwork { slots, edges, classes: 10, view: [3, 32, 32], policy, ..TinyNetwork::of(configuration) }
}

/// Settings of the group `tests/group` at a broker.
///
/// # Panics
/// Never: the names are valid.
pub fn site(broker: Endpoint) -> SiteSettings {
    let (site, group) = (SiteId::new("tests"), GroupId::new("group"));
    SiteSettings::new(site.expect("a valid name"), group.expect("a valid name"), broker)
}

/// Starts an embedded broker that runs until this process ends.
///
/// # Panics
/// When the broker does not start.
pub fn embedded_broker() -> Endpoint {
    let broker = EmbeddedBroker::start().expect("the embedded broker starts");
    let address = broker.address();
    std::mem::forget(broker);
    address
}

/// Settings of a group with the shipped network and frames, long waits, and a broker of its own.
pub fn shipped_group() -> InProcessSettings {
    group_at(embedded_broker(), shipped::bundle())
}

/// Settings of a group at `broker` with the shipped frames and these networks, which must fit the frames. The policy of the current
/// network gets long waits.
pub fn group_at(broker: Endpoint, networks: impl Into<Networks>) -> InProcessSettings {
    let mut settings = InProcessSettings::new(site(broker), networks, shipped::frames());
    settings.policy = Some(patient(settings.networks.current().policy().clone()));
    settings.cloud_engine = EngineChoice::Tract;
    settings
}

/// Sets the threshold of the exit `local`: at 0 every sample that is not certain goes to the cloud, at 1 none does.
///
/// # Panics
/// For a number outside `[0, 1]`.
pub fn with_local_threshold(mut settings: InProcessSettings, threshold: f32) -> InProcessSettings {
    let threshold = ExitThreshold::new(threshold).expect("a threshold in [0, 1]");
    settings.policy.get_or_insert_default().of_mut(Exit::LOCAL).threshold = Threshold::One(threshold);
    settings
}

/// Starts a group and waits until all services have found each other.
///
/// # Panics
/// When a service does not start, or the services do not find each other in time.
pub async fn start(settings: InProcessSettings) -> InProcessGroup {
    let group = InProcessGroup::start(settings).await.expect("every service starts");
    group.wait_until_ready(WAIT_LIMIT).await.expect("the services find each other");
    group
}

/// A group whose services run as programs, with the shipped frames; no program is started. The journal, and the policy if one is given, are
/// files in `folder`.
///
/// # Panics
/// When a program was not built, `folder` cannot be written, or there is no free port.
pub fn programs(bundle: &Path, policy: Option<&Policy>, broker: Endpoint, folder: &Path) -> ProgramGroup {
    let mut site = site(broker);
    site.journal = Some(folder.join("journal.jsonl"));
    let policy = policy.map(|policy| {
        let file = folder.join("policy.toml");
        let text = toml::to_string(policy).expect("a policy becomes TOML");
        std::fs::write(&file, text).expect("the folder can be written");
        file
    });
    let path = |name| find_program(name).expect("the programs are built");
    let paths = ProgramPaths {
        device: path("headwater-device"),
        aggregator: path("headwater-aggregator"),
        cloud: path("headwater-cloud"),
    };
    let (bundle, frames) = (bundle.to_owned(), shipped::frames_path());
    ProgramGroup::new(ProgramSettings { site, paths, bundle, frames, policy, site_dir: None, log: None })
        .expect("a free port")
}

/// A client of the group `tests/group` at a broker.
///
/// # Panics
/// When the broker does not answer in time.
pub async fn client(broker: Endpoint, network: NetworkId) -> GroupClient {
    let SiteSettings { site, group, broker, .. } = site(broker);
    let settings = ClientSettings {
        broker: broker.into(),
        site,
        group,
        network,
        client_id: "tests".into(),
        wait_limit: WAIT_LIMIT,
    };
    GroupClient::connect(settings).await.expect("the broker answers")
}

/// A client of a group whose services run in this process.
///
/// # Panics
/// As [`client`].
pub async fn client_of(group: &InProcessGroup) -> GroupClient {
    let network = group.settings.networks.current().network_id();
    client(group.settings.site.broker.clone(), network).await
}

/// Triggers `samples`, whose ids must rise, in chunks of `in_flight`, each chunk once the chunk before is decided. Returns the decisions in
/// the order of `samples`.
///
/// # Panics
/// When a decision does not come in time, or a second, different one comes.
pub async fn decide_all(client: &mut GroupClient, samples: &[SampleId], in_flight: usize) -> Vec<Decision> {
    let mut decisions = Vec::new();
    for chunk in samples.chunks(in_flight) {
        for &sample in chunk {
            client.trigger(sample).await.expect("the broker takes the trigger");
        }
        let found = client.wait_for_decisions(chunk).await.expect("all samples are decided");
        decisions.extend(found.into_values());
    }
    assert_eq!(client.account().contradicted_count(), 0, "samples with two different decisions");
    decisions
}

/// Ids of `count` samples from `first` on.
pub fn ids(first: u64, count: u64) -> Vec<SampleId> {
    (first..first + count).map(SampleId).collect()
}

/// The slot with this index.
///
/// # Panics
/// For an index above the limit of slots.
pub fn slot(index: u8) -> Slot {
    Slot::new(index).expect("a slot below the limit")
}

/// Opens a bundle that is in memory.
///
/// # Panics
/// For a damaged bundle.
pub fn bundle(bytes: &[u8]) -> Arc<Bundle> {
    Arc::new(Bundle::from_bytes(bytes).expect("a sound bundle"))
}
