//! The settings as they are in effect.

use headwater_link::QoS;
use toml::Value;

use crate::config::{AggregatorConfig, JournalSync, Role};

impl AggregatorConfig {
    /// Key and value of every setting, as a file could hold them; `None` where nothing is set.
    pub fn effective(&self) -> Vec<(&'static str, Option<Value>)> {
        let text = |text: &str| Some(Value::from(text));
        let number = |number: u64| Some(Value::Integer(number.cast_signed()));
        let journal = self.journal.as_ref();
        let sync = |sync| match sync {
            JournalSync::Never => "never",
            JournalSync::Always => "always",
        };
        let (role, own_edges, edge, edge_id) = match &self.role {
            Role::Leader { edges } => {
                let list = edges.iter().flatten().map(|edge| Value::Integer(*edge as i64)).collect();
                ("leader", edges.as_ref().map(|_| Value::Array(list)), None, None)
            }
            Role::Edge { edge, id } => {
                let id = id.as_ref().and_then(|id| text(id.as_str()));
                ("edge", None, number(*edge as u64), id)
            }
        };
        vec![
            ("role", text(role)),
            ("own_edges", own_edges),
            ("edge", edge),
            ("edge_id", edge_id),
            ("site", text(&self.site.to_string())),
            ("group", text(&self.group.to_string())),
            ("broker", text(&self.broker.to_string())),
            ("client_id", self.client_id.as_deref().and_then(text)),
            ("cloud_url", self.cloud_url.as_deref().and_then(text)),
            ("cloud_model", text(&self.cloud_model)),
            ("cloud_most_requests", number(self.cloud_most_requests as u64)),
            ("cloud_linger_ms", number(self.cloud_linger_ms.into())),
            ("breaker_failures", number(self.breaker.failures.into())),
            ("breaker_first_wait_ms", number(self.breaker.first_wait_ms.into())),
            ("breaker_longest_wait_ms", number(self.breaker.longest_wait_ms.into())),
            ("journal_path", journal.and_then(|journal| text(&journal.path.display().to_string()))),
            ("journal_most_bytes", journal.and_then(|journal| number(journal.most_bytes))),
            ("journal_sync", journal.and_then(|journal| text(sync(journal.sync)))),
            ("most_open", number(self.most_open as u64)),
            ("request_qos", number(u64::from(self.request_qos != QoS::AtMostOnce))),
            ("settled_every_ms", number(self.settled_every_ms.into())),
            ("queue_messages", number(self.queue_messages as u64)),
            ("grace_ms", number(self.grace_ms.into())),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_reads_back_as_the_same_configuration() {
        let new = || {
            AggregatorConfig::new("s".parse().unwrap(), "g".parse().unwrap(), "mqtt://h:1".parse().unwrap())
        };
        for role in ["own_edges = [0, 2]", "role = \"edge\"\nedge = 1\nedge_id = \"north\""] {
            let rest = "journal_path = \"j\"\njournal_sync = \"always\"\nrequest_qos = 1\nclient_id = \"c\"";
            let mut config = new();
            config.read_toml(&format!("{role}\n{rest}")).unwrap();
            let lines =
                config.effective().into_iter().filter_map(|(key, value)| Some(format!("{key} = {}", value?)));
            let mut read = new();
            read.read_toml(&lines.collect::<Vec<_>>().join("\n")).unwrap();
            assert_eq!(read, config);
        }
    }
}
