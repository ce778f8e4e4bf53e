//! Findings of the doctor, as text and as JSON.

use std::path::PathBuf;

use headwater_transport::redacted;
use serde::Serialize;
use serde_json::json;

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Nothing to do.
    Ok,
    /// It works, and somebody should look at it.
    Warn,
    /// It does not work.
    Fail,
}

impl Level {
    const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

/// One finding: level, what was looked at, what was found, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Its severity.
    pub level: Level,
    /// Checked part, such as `broker`.
    pub check: String,
    /// Observation. Passwords of addresses are hidden.
    pub found: String,
    /// Advice; `None` where nothing is to be done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

impl Finding {
    /// Nothing to do.
    pub(super) fn ok(check: impl Into<String>, found: impl AsRef<str>) -> Self {
        Self {
            level: Level::Ok,
            check: check.into(),
            found: redacted(found.as_ref().trim_end()),
            advice: None,
        }
    }

    /// It works, and somebody should look at it.
    pub(super) fn warn(check: impl Into<String>, found: impl AsRef<str>, advice: impl AsRef<str>) -> Self {
        Self { level: Level::Warn, advice: Some(redacted(advice.as_ref())), ..Self::ok(check, found) }
    }

    /// It does not work.
    pub(super) fn fail(check: impl Into<String>, found: impl AsRef<str>, advice: impl AsRef<str>) -> Self {
        Self { level: Level::Fail, ..Self::warn(check, found, advice) }
    }
}

/// Findings about one tier, about this machine, or about the folder of a site.
#[derive(Clone, Debug, Serialize)]
pub struct Section {
    /// `device`, `aggregator`, `cloud`, `machine` or `site`.
    pub tier: &'static str,
    /// Settings file of the tier, or folder of the site.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// The findings, in the order of the checks.
    pub findings: Vec<Finding>,
}

/// All findings.
#[derive(Clone, Debug)]
pub struct Diagnosis(pub Vec<Section>);

impl Diagnosis {
    /// Findings of a level.
    pub fn count(&self, level: Level) -> usize {
        self.0.iter().flat_map(|section| &section.findings).filter(|finding| finding.level == level).count()
    }

    /// Lines for people.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for Section { tier, file, findings } in &self.0 {
            let file = file.as_ref().map(|file| format!("  {}", file.display())).unwrap_or_default();
            text += &format!("{tier}{file}\n");
            for Finding { level, check, found, advice } in findings {
                let advice = advice.as_ref().map(|advice| format!("; {advice}")).unwrap_or_default();
                // A reason of several lines, such as that of a TOML file, stays under its own line.
                let line = format!("{check}: {found}{advice}").replace('\n', "\n          ");
                text += &format!("  {:<5} {line}\n", level.name());
            }
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

/// Cuts a sentence of the form `found; what to do` in two.
pub(super) fn split_advice<'a>(text: &'a str, otherwise: &'a str) -> (&'a str, &'a str) {
    text.split_once("; ").unwrap_or((text, otherwise))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_is_a_line_and_no_line_has_a_password() {
        let findings = vec![
            Finding::ok("disk", "20 GB are free"),
            Finding::fail("broker", "mqtt://user:s3cret@host does not answer", "start it"),
        ];
        let diagnosis = Diagnosis(vec![Section { tier: "device", file: Some("d.toml".into()), findings }]);
        let expected = "device  d.toml\n  ok    disk: 20 GB are free\n  \
                        fail  broker: mqtt://***@host does not answer; start it\n1 ok, 0 warn, 1 fail\n";
        assert_eq!(diagnosis.text(), expected);
        let json: serde_json::Value = serde_json::from_str(&diagnosis.json()).unwrap();
        assert_eq!(json["tiers"][0]["findings"][1]["level"], "fail");
        assert_eq!((&json["ok"], &json["fail"]), (&serde_json::json!(1), &serde_json::json!(1)));
        assert!(!json.to_string().contains("s3cret"));
    }
}
