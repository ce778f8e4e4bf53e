//! The findings of all tiers, as text and as JSON.

use std::path::PathBuf;

use headwater_settings::{Finding, Level};
use serde::Serialize;
use serde_json::json;

/// Findings about one tier, about this machine, or about the folder of a site.
#[derive(Clone, Debug, Serialize)]
pub struct Section {
    /// `device`, `aggregator`, `cloud`, `machine` or `site`.
    pub tier: &'static str,
    /// Settings file of the tier, or folder of the site; `None` for the machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// The findings, in the order of the checks.
    pub findings: Vec<Finding>,
}

/// All findings.
#[derive(Clone, Debug)]
pub struct Diagnosis(pub Vec<Section>);

impl Diagnosis {
    /// Number of findings of a level.
    pub fn count(&self, level: Level) -> usize {
        self.0.iter().flat_map(|section| &section.findings).filter(|finding| finding.level == level).count()
    }

    /// The findings as lines of text, for people.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for Section { tier, file, findings } in &self.0 {
            let file = file.as_ref().map(|file| format!("  {}", file.display())).unwrap_or_default();
            text += &format!("{tier}{file}\n");
            text.extend(findings.iter().map(|finding| finding.line("  ")));
        }
        let count = |level: Level| format!("{} {}", self.count(level), level.name());
        text + &format!("{}, {}, {}\n", count(Level::Ok), count(Level::Warn), count(Level::Fail))
    }

    /// One JSON object, for programs.
    pub fn json(&self) -> String {
        let value = json!({
            "schema": 1,
            "program": "headwater-doctor",
            "version": env!("CARGO_PKG_VERSION"),
            "ok": self.count(Level::Ok),
            "warn": self.count(Level::Warn),
            "fail": self.count(Level::Fail),
            "tiers": self.0,
        });
        format!("{value:#}\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_is_a_line_and_no_line_has_a_password() {
        let findings = vec![
            Finding::ok("disk", "20 GB are free"),
            Finding::fail("broker", "mqtt://user:s3cret@host\ndoes not answer", "start it"),
        ];
        let diagnosis = Diagnosis(vec![Section { tier: "device", file: Some("d.toml".into()), findings }]);
        let expected = "device  d.toml\n  ok    disk: 20 GB are free\n  \
                        fail  broker: mqtt://***@host\n          does not answer; start it\n1 ok, 0 warn, 1 fail\n";
        assert_eq!(diagnosis.text(), expected);
        let json: serde_json::Value = serde_json::from_str(&diagnosis.json()).unwrap();
        assert_eq!(json["tiers"][0]["findings"][1]["level"], "fail");
        assert_eq!((&json["ok"], &json["fail"]), (&serde_json::json!(1), &serde_json::json!(1)));
        assert!(!json.to_string().contains("s3cret"));
    }
}
