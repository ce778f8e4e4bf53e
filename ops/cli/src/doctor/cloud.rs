//! Findings about the cloud service that an aggregator asks: its answer, its models and its networks.

use headwater_inference::bundle::Networks;
use headwater_protocol::NetworkId;
use headwater_transport::Endpoint;
use serde_json::Value;

use super::broker::RENEW;
use super::facts::{CloudFacts, Facts};
use super::http::Answer;
use super::networks::{SAME_BUNDLE, ids, names};
use super::tier::{Tier, TierNetworks, TierSettings};
use headwater_settings::{Finding, expiry, split_advice};

pub(super) fn check(tier: &Tier, networks: &TierNetworks, facts: &Facts) -> Vec<Finding> {
    let TierSettings::Aggregator(loaded) = &tier.settings else { return Vec::new() };
    let Some(CloudFacts { url, ready, models }) = &facts.cloud else {
        let found = "none is set: unsure samples get the answer of the last exit before the cloud";
        return vec![Finding::ok("cloud", found)];
    };
    let answer = match ready {
        Ok(answer) => answer,
        Err(reason) => return vec![no_answer(url, reason)],
    };
    let mut findings = vec![match answer.status {
        200 => Finding::ok("cloud", format!("{url} is ready, answered in {} ms", answer.took.as_millis())),
        503 => {
            let advice = "wait until it has loaded its models, or look into its log";
            Finding::fail("cloud", format!("{url} is there and not ready"), advice)
        }
        status => {
            let advice = "correct `cloud.url`: another server answers there";
            Finding::fail("cloud", format!("{url} answers {status} to /v2/health/ready"), advice)
        }
    }];
    let advice = "renew it: `headwater enroll renew cloud`, then copy the new files to the cloud's machine";
    let expires = answer.certificate.as_ref().map(|own| own.expires);
    findings.extend(expires.and_then(|at| expiry("certificate of the cloud", at, advice)));
    for (name, answer) in models {
        let groups = loaded
            .groups
            .all
            .iter()
            .zip(networks)
            .filter(|(group, _)| group.model.as_ref().unwrap_or(&loaded.shared.cloud.model) == name);
        let networks: Vec<_> =
            groups.filter_map(|(group, of)| Some((group.group.as_str(), of.as_ref()?))).collect();
        findings.extend(model(name, answer, &networks));
    }
    findings
}

/// The finding for a cloud service that gave no answer. The advice names the other scheme, `http` or `https`, if it may be the right one.
fn no_answer(url: &Endpoint, reason: &str) -> Finding {
    const OTHER_PROTOCOL: [&str; 4] =
        ["invalid HTTP", "before message completed", "reset by peer", "corrupt message"];
    let (found, advice) = split_advice(reason, "start headwater-cloud there, or correct `cloud.url`");
    let is_other = OTHER_PROTOCOL.iter().any(|part| reason.contains(part));
    let advice = match (advice, url.scheme().uses_tls()) {
        (RENEW, _) => {
            "renew the certificate of the cloud: `headwater enroll renew cloud`, and copy the new files to its machine"
        }
        (_, false) if is_other => {
            "it may expect TLS there: `https://` in place of `http://` in `cloud.url`; or another program listens there"
        }
        (_, true) if reason.contains("corrupt message") => {
            "it may not speak TLS there: `http://` in place of `https://` in `cloud.url`; or another program listens there"
        }
        (advice, _) => advice,
    };
    Finding::fail("cloud", format!("{url}: {found}"), advice)
}

/// Checks the answer about one model, for all groups that use the model.
fn model(name: &str, answer: &Result<Answer, String>, groups: &[(&str, &Networks)]) -> Vec<Finding> {
    const CHECK: &str = "cloud model";
    let answer = match answer {
        Ok(answer) => answer,
        Err(reason) => {
            let (reason, advice) = split_advice(reason, "look into the cloud's log");
            return vec![Finding::fail(CHECK, format!("{name}: {reason}"), advice)];
        }
    };
    let refusal = match answer.status {
        200 => None,
        401 | 403 => Some((
            format!("{name}: the cloud does not admit this client"),
            "show it a key of its `http.keys_file` (`cloud.key_file`), or the certificate of a leader",
        )),
        404 => Some((
            format!("the cloud has no model {name:?}"),
            "give `cloud.model` (or `model` of the group) the name of the cloud's `model.name`",
        )),
        status => Some((format!("{name}: the cloud answers {status}"), "look into the cloud's log")),
    };
    if let Some((found, advice)) = refusal {
        return vec![Finding::fail(CHECK, format!("{found}: {}", reason(answer)), advice)];
    }
    let served = served(&answer.body);
    if served.is_empty() {
        return vec![Finding::warn(
            CHECK,
            format!("{name}: the server names no network"),
            "is it headwater-cloud? Another server must have the network of the bundle",
        )];
    }
    let others: Vec<_> = groups
        .iter()
        .filter(|(_, networks)| ids(networks).iter().any(|id| !served.contains(id)))
        .map(|(group, networks)| {
            let (served, run) = (names(&served), names(&ids(networks)));
            let found = format!("{name}: the cloud serves network {served}, group {group} runs {run}");
            Finding::fail(CHECK, found, SAME_BUNDLE)
        })
        .collect();
    if others.is_empty() {
        vec![Finding::ok(CHECK, format!("{name} serves network {}", names(&served)))]
    } else {
        others
    }
}

/// Ids of the current and the next network in a model's metadata.
fn served(body: &[u8]) -> Vec<NetworkId> {
    let metadata: Value = serde_json::from_slice(body).unwrap_or_default();
    let parameters = ["network", "next_network"].map(|key| metadata["parameters"][key].clone());
    parameters.into_iter().filter_map(|id| serde_json::from_value(id).ok()).collect()
}

/// Reason in the body of a refusal, at most 300 characters; a fixed text if the body has none.
fn reason(answer: &Answer) -> String {
    let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    body["error"].as_str().unwrap_or("no reason is given").chars().take(300).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use headwater_inference::bundle::Bundle;
    use headwater_inference::testing::TinyNetwork;
    use serde_json::json;
    use time::OffsetDateTime;

    use super::*;
    use headwater_settings::Level;

    fn networks(seed: u64) -> Networks {
        let bytes = TinyNetwork { seed, ..TinyNetwork::default() }.bundle();
        Arc::new(Bundle::from_bytes(&bytes).unwrap()).into()
    }

    #[track_caller]
    fn check(status: u16, body: &Value, expected: Level, word: &str) {
        let answer = Answer {
            status,
            body: body.to_string().into(),
            certificate: None,
            date: None,
            received: OffsetDateTime::UNIX_EPOCH,
            took: Duration::ZERO,
        };
        let own = networks(1);
        let found = model("headwater", &Ok(answer), &[("gate", &own)]);
        assert!(found.len() == 1 && found[0].level == expected, "{found:?}");
        assert!(found[0].found.contains(word), "{word} in {found:?}");
    }

    #[test]
    fn a_scheme_that_is_not_that_of_the_server_is_named() {
        let advice = |url: &str, reason: &str| {
            no_answer(&Endpoint::http(url).unwrap(), reason).advice.unwrap_or_default()
        };
        assert!(
            advice("http://c:1", "connection closed before message completed")
                .contains("`https://` in place")
        );
        assert!(advice("http://c:1", "invalid HTTP version parsed").contains("`https://` in place"));
        let plain = "TLS with c: received corrupt message of type InvalidContentType";
        assert!(advice("https://c:1", plain).contains("`http://` in place of"));
        assert!(advice("https://c:1", "TLS with c: it has expired; renew it").contains("enroll renew cloud"));
        assert!(
            advice("http://c:1", "Connection refused (os error 111)").starts_with("start headwater-cloud")
        );
    }

    #[test]
    fn the_cloud_must_admit_the_group_and_have_its_model_and_network() {
        let own = networks(1).current().network_id();
        let other = networks(2).current().network_id();
        check(200, &json!({ "parameters": { "network": own } }), Level::Ok, &own.short());
        check(
            200,
            &json!({ "parameters": { "network": other, "next_network": own } }),
            Level::Ok,
            &own.short(),
        );
        check(200, &json!({ "parameters": { "network": other } }), Level::Fail, "group gate runs");
        check(200, &json!({}), Level::Warn, "names no network");
        check(401, &json!({ "error": "expected a key" }), Level::Fail, "expected a key");
        check(404, &json!({ "error": "this service has \"x\"" }), Level::Fail, "no model \"headwater\"");
        check(500, &json!({}), Level::Fail, "500");
    }
}
