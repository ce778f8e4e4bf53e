//! Answers of brokers, clouds and running programs. Every wait has a limit; that something does not answer is a fact too.

use std::sync::Arc;
use std::time::Duration;

use headwater_link::{BrokerProbe, ConnectFailure, probe};
use headwater_transport::{Connector, Endpoint, Scheme, Secret, random};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::http::{Answer, get, own_address};
use super::tier::{Tier, TierSettings};

/// What a tier's broker, cloud and own admin port answered.
#[derive(Default)]
pub(super) struct Facts {
    /// The broker's answer to each member; `None` for a member whose settings or files cannot be used.
    pub(super) brokers: Vec<Option<Result<BrokerProbe, ConnectFailure>>>,
    /// The cloud service of an aggregator; `None` if the settings name none.
    pub(super) cloud: Option<CloudFacts>,
    /// Address of the tier's admin port, and its answer to `GET /status` or the reason why there is none; `None` if the settings name no port.
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
    let mut probes = JoinSet::new();
    for (index, member) in tier.members.iter().enumerate() {
        let Ok(access) = tier.access(member) else { continue };
        let config = member.link(access, format!("doctor.{:08x}", random() as u32), limit_ms);
        // Connection, subscriptions and retained messages may each take up to `limit`.
        let whole = limit * 3;
        probes.spawn(async move {
            let late = || ConnectFailure::NoAnswer(format!("no end within {} s", whole.as_secs()));
            (index, timeout(whole, probe(&config)).await.unwrap_or_else(|_| Err(late())))
        });
    }
    let mut answers: Vec<_> = tier.members.iter().map(|_| None).collect();
    while let Some(ended) = probes.join_next().await {
        // A probe that panicked leaves no answer.
        if let Ok((index, answer)) = ended {
            answers[index] = Some(answer);
        }
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
    let mut names: Vec<String> = loaded
        .groups
        .all
        .iter()
        .map(|group| group.model.clone().unwrap_or_else(|| cloud.model.clone()))
        .collect();
    names.sort();
    names.dedup();
    let ready_at = url.with_path("/v2/health/ready");
    let mut asked = JoinSet::new();
    for name in names {
        let (connector, key) = (connector.clone(), key.clone());
        let at = url.with_path(&format!("/v2/models/{name}"));
        asked.spawn(async move { (name, get(&connector, &at, key.as_ref(), limit).await) });
    }
    let ready = get(&connector, &ready_at, None, limit).await;
    let mut models = Vec::new();
    while let Some(ended) = asked.join_next().await {
        models.extend(ended);
    }
    models.sort_by(|a, b| a.0.cmp(&b.0));
    Some(CloudFacts { url, ready, models })
}

async fn ask_admin(tier: &Tier, limit: Duration) -> Option<(Endpoint, Result<Answer, String>)> {
    let address = own_address(Scheme::Http, tier.admin?)?;
    let connector = Connector::default();
    let status = get(&connector, &address.with_path("/status"), None, limit).await;
    Some((address, status))
}
