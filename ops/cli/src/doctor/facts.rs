//! Answers of brokers, clouds and running programs. Every wait has a limit; a missing answer is recorded with its reason.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use headwater_link::{BrokerProbe, ConnectFailure, probe};
use headwater_transport::{Connector, Endpoint, Scheme, Secret, random};
use tokio::time::timeout;

use super::http::{Answer, get, own_address};
use super::tier::{Member, Tier, TierSettings};

/// Answers of the broker, the cloud and the admin port of a tier.
#[derive(Default)]
pub(super) struct Facts {
    /// The broker's answer to each member; `None` for a member whose settings or files cannot be used, or whose probe panicked.
    pub(super) brokers: Vec<Option<Result<BrokerProbe, ConnectFailure>>>,
    /// The cloud service of an aggregator; `None` if the settings name none.
    pub(super) cloud: Option<CloudFacts>,
    /// Address of the tier's admin port, and its answer to `GET /status` or the reason why there is none; `None` if the settings name no port
    /// or port 0.
    pub(super) admin: Option<(Endpoint, Result<Answer, String>)>,
}

/// Answers of a cloud service, or the reasons why there is none.
pub(super) struct CloudFacts {
    pub(super) url: Endpoint,
    /// `GET /v2/health/ready`.
    pub(super) ready: Result<Answer, String>,
    /// `GET /v2/models/{m}` for each model that a group names.
    pub(super) models: Vec<(String, Result<Answer, String>)>,
}

/// Asks broker, cloud and admin port of a tier, all at the same time.
pub(super) async fn gather(tier: Arc<Tier>, limit: Duration) -> Facts {
    let (brokers, cloud, admin) =
        tokio::join!(ask_brokers(&tier, limit), ask_cloud(&tier, limit), ask_admin(&tier, limit));
    Facts { brokers, cloud, admin }
}

/// Probes the broker as each member. The client ids are new, so that the broker does not end the connections of running programs.
async fn ask_brokers(tier: &Tier, limit: Duration) -> Vec<Option<Result<BrokerProbe, ConnectFailure>>> {
    let limit_ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
    // Connection, subscriptions and retained messages may each take up to `limit`.
    let whole = limit * 3;
    let probe_as = |member: &Member| {
        let access = tier.access(member).ok()?;
        let config = member.link(access, format!("doctor.{:08x}", random() as u32), limit_ms);
        Some(tokio::spawn(async move {
            let late = || ConnectFailure::NoAnswer(format!("no end within {} s", whole.as_secs()));
            timeout(whole, probe(&config)).await.unwrap_or_else(|_| Err(late()))
        }))
    };
    let probes: Vec<_> = tier.members.iter().map(probe_as).collect();
    let mut answers = Vec::new();
    for probe in probes {
        answers.push(match probe {
            // A probe that panicked leaves no answer.
            Some(probe) => probe.await.ok(),
            None => None,
        });
    }
    answers
}

async fn ask_cloud(tier: &Tier, limit: Duration) -> Option<CloudFacts> {
    let TierSettings::Aggregator(loaded) = &tier.settings else { return None };
    let cloud = &loaded.shared.cloud;
    let url = cloud.url.clone()?;
    let identity = tier.security.tls.client();
    let key: Result<Option<Secret>, String> = cloud.secret();
    let (identity, key) = match (identity, key) {
        (Ok(identity), Ok(key)) => (identity, key),
        // The checks of the files report the same reason.
        (Err(reason), _) | (_, Err(reason)) => {
            return Some(CloudFacts { url, ready: Err(reason), models: Vec::new() });
        }
    };
    let connector = Connector::default().with_identity(identity);
    let ready = get(&connector, &url.with_path("/v2/health/ready"), None, limit).await;
    let groups = loaded.groups.all.iter();
    let names: BTreeSet<&String> = groups.map(|group| group.model.as_ref().unwrap_or(&cloud.model)).collect();
    let ask = |name: &String| {
        let (connector, key, name) = (connector.clone(), key.clone(), name.clone());
        let at = url.with_path(&format!("/v2/models/{name}"));
        tokio::spawn(async move {
            let answer = get(&connector, &at, key.as_ref(), limit).await;
            (name, answer)
        })
    };
    // A cloud that does not answer the first question is not asked about its models.
    let asked: Vec<_> = names.into_iter().filter(|_| ready.is_ok()).map(ask).collect();
    let mut models = Vec::new();
    for answer in asked {
        models.extend(answer.await);
    }
    Some(CloudFacts { url, ready, models })
}

async fn ask_admin(tier: &Tier, limit: Duration) -> Option<(Endpoint, Result<Answer, String>)> {
    let address = own_address(Scheme::Http, tier.admin?)?;
    let connector = Connector::default();
    let status = get(&connector, &address.with_path("/status"), None, limit).await;
    Some((address, status))
}
