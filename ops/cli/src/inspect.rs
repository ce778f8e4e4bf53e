//! `headwater inspect`: the contents of a bundle.

use std::fmt::{self, Display};

use headwater_inference::bundle::Bundle;
use headwater_inference::manifest::{Aggregation, NetworkManifest, SectionManifest};
use headwater_inference::policy::{ExitPolicy, ExitThreshold, Policy, Threshold};
use headwater_protocol::HEADER_BYTES;
use serde::Serialize;

use crate::args::InspectArgs;
use crate::shipped;

/// Opens and checks a bundle, and shows the contents on stdout.
///
/// # Errors
/// When the bundle cannot be read or is damaged.
pub fn run(args: &InspectArgs) -> anyhow::Result<()> {
    let bundle = shipped::open_bundle(args.bundle.as_deref())?;
    let inspection = Inspection::of(&bundle);
    let text =
        if args.json { serde_json::to_string_pretty(&inspection)? + "\n" } else { inspection.to_string() };
    crate::print(&text)
}

/// Contents of a bundle.
#[derive(Serialize)]
struct Inspection<'a> {
    network: String,
    policy: String,
    stored_bytes: usize,
    manifest: &'a NetworkManifest,
    exits: &'a Policy,
    /// Stored bytes of each section in the file; `None` for a section that this bundle does not have.
    section_bytes: Vec<Option<usize>>,
    /// Bytes of each section's packed form; `None` for a section without one.
    packed_bytes: Vec<Option<usize>>,
    links: Links,
    report: Option<&'a serde_json::Value>,
}

/// Bytes of one sample on each link, per device. Only `cloud_body` is for all devices together.
#[derive(Serialize)]
struct Links {
    raw_view: usize,
    summary_body: usize,
    /// Largest size if maps are entropy-coded; otherwise the size of every map.
    features_body: usize,
    features_coded: bool,
    header: usize,
    /// From the leader to the cloud, with the maps of all slots.
    cloud_body: usize,
}

impl<'a> Inspection<'a> {
    fn of(bundle: &'a Bundle) -> Self {
        let manifest = bundle.manifest();
        let slots = usize::from(manifest.slots);
        let packed = manifest.features.packed_bytes();
        let sections = || manifest.sections.iter().map(|section| section.name.as_str());
        Self {
            network: bundle.network_id().to_string(),
            policy: bundle.policy_id().to_string(),
            stored_bytes: bundle.stored_bytes(),
            manifest,
            exits: bundle.policy(),
            section_bytes: sections().map(|name| bundle.stored_section_bytes(name)).collect(),
            packed_bytes: sections().map(|name| bundle.packed_section_bytes(name)).collect(),
            links: Links {
                raw_view: manifest.preprocessing.view_bytes(),
                summary_body: manifest.score_bytes(),
                features_body: packed,
                features_coded: manifest.codes_features(),
                header: HEADER_BYTES,
                cloud_body: slots * packed + slots,
            },
            report: bundle.report(),
        }
    }
}

impl Display for Inspection<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let manifest = self.manifest;
        writeln!(f, "{}  ({} bytes, whole and unaltered)", manifest.name, self.stored_bytes)?;
        writeln!(f, "network   {}", self.network)?;
        writeln!(f, "policy    {}", self.policy)?;
        writeln!(f, "devices   {}, configuration {:?}", manifest.slots, manifest.configuration)?;
        let view = &manifest.preprocessing;
        writeln!(f, "view      [{}, {}, {}] u8, x / 255", view.channels, view.height, view.width)?;
        if let Some(fit) = view.fit {
            writeln!(f, "fit       {fit}")?;
        }
        for (slot, region) in view.regions.iter().enumerate() {
            writeln!(f, "region    {region} of the frames of slot {slot}")?;
        }
        writeln!(f, "classes   {}", manifest.labels.join(", "))?;
        writeln!(
            f,
            "joined    scores {}, features {}",
            aggregation(manifest.local_aggregation),
            aggregation(manifest.cloud_aggregation)
        )?;
        self.sections(f)?;
        self.exits(f)?;
        self.links(f)
    }
}

impl Inspection<'_> {
    fn sections(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "\nsection     runs on   input            outputs                          parameters       MACs  stored bytes  packed bytes"
        )?;
        let bytes = self.section_bytes.iter().zip(&self.packed_bytes);
        for (section, (stored, packed)) in self.manifest.sections.iter().zip(bytes) {
            let stored = stored.map_or("not here".into(), |bytes| bytes.to_string());
            let packed = packed.map_or("-".into(), |bytes| bytes.to_string());
            writeln!(
                f,
                "{:<11} {:<9} {:<16} {:<32} {:>10} {:>10} {stored:>13} {packed:>13}",
                section.name,
                format!("{:?}", section.tier).to_lowercase(),
                format!("{:?}", section.input.shape),
                outputs(section),
                section.parameters,
                section.macs,
            )?;
        }
        Ok(())
    }

    fn exits(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nexit        rule              temperature   leaves at or below")?;
        for exit in self.manifest.exits() {
            writeln!(f, "{}", exit_line(exit.name(), self.exits.of(*exit)))?;
        }
        writeln!(
            f,
            "window {} ms, features {} ms, whole sample {} ms",
            self.exits.window_ms, self.exits.features_ms, self.exits.deadline_ms
        )?;
        if let Some(least) = self.exits.claim_above {
            writeln!(f, "undecided below a confidence of {}, where no exit is sure", least.get())?;
        }
        writeln!(f, "{}", self.exits.promise_line())?;
        let origin = self.report.and_then(|report| report["thresholds"]["from"].as_str());
        match origin.filter(|_| self.exits.promises.is_empty()) {
            Some(origin) => writeln!(f, "thresholds from {origin}"),
            None => Ok(()),
        }
    }

    fn links(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let links = &self.links;
        writeln!(f, "\nbytes per view and link (each message has a header of {} bytes more)", links.header)?;
        writeln!(
            f,
            "device to leader   scores {} ({} bits each), features {}{} when asked",
            links.summary_body,
            self.manifest.scores.bits(),
            if links.features_coded { "entropy-coded, at most " } else { "" },
            links.features_body
        )?;
        writeln!(
            f,
            "                   in all {}{} + (1 - l) {}, l = share that leaves locally; the raw view has {}",
            if links.features_coded { "at most " } else { "" },
            links.summary_body,
            links.features_body,
            links.raw_view
        )?;
        writeln!(f, "leader to cloud    {} a sample that does not leave locally", links.cloud_body)
    }
}

fn outputs(section: &SectionManifest) -> String {
    let all = section.outputs.iter().map(|output| format!("{} {:?}", output.name, output.shape));
    all.collect::<Vec<_>>().join(", ")
}

fn exit_line(name: &str, policy: &ExitPolicy) -> String {
    let rule = policy.rule.name();
    let shown = |threshold: &ExitThreshold| match *threshold == ExitThreshold::NEVER {
        true => "never".to_owned(),
        false => threshold.get().to_string(),
    };
    let threshold = match &policy.threshold {
        Threshold::One(threshold) => shown(threshold),
        Threshold::ByPresent(list) => {
            let all: Vec<_> = list.iter().map(shown).collect();
            format!("{} (by present devices)", all.join(", "))
        }
    };
    format!("{name:<11} {rule:<17} {:<13} {threshold}", policy.temperature.get())
}

fn aggregation(kind: Aggregation) -> &'static str {
    match kind {
        Aggregation::Mp => "by maximum (mp)",
        Aggregation::Ap => "by mean (ap)",
        Aggregation::Cc => "by concatenation with the mask (cc)",
    }
}

#[cfg(test)]
mod tests {
    use headwater_inference::testing::TinyNetwork;
    use headwater_protocol::Exit;

    use super::*;

    #[test]
    fn the_text_ends_after_its_tables_and_the_rest_is_in_the_json() {
        let bundle = shipped::open_bundle(None).unwrap();
        let inspection = Inspection::of(&bundle);
        let text = inspection.to_string();
        let last = text.lines().last().unwrap();
        assert!(last.starts_with("leader to cloud ") && !text.contains("training"), "{text}");
        let json = serde_json::to_value(&inspection).unwrap();
        assert!(json["report"]["epochs"].is_array(), "the training report");
        assert_eq!(json["policy"], bundle.policy_id().to_string());
    }

    #[test]
    fn every_exit_of_the_network_is_shown() {
        let text = Inspection::of(&shipped::open_bundle(None).unwrap()).to_string();
        let exits = text.lines().skip_while(|line| !line.starts_with("exit "));
        let names: Vec<_> = exits.skip(1).take(3).filter_map(|line| line.split_whitespace().next()).collect();
        assert_eq!(names, ["local", "cloud", "window"]);
    }

    #[test]
    fn a_further_exit_of_the_network_is_shown_with_its_index() {
        let further = Exit::from_name("cloud.1").unwrap();
        let network = TinyNetwork {
            policy: Policy::default().with(further, ExitPolicy::default()),
            ..TinyNetwork::default()
        };
        let mut manifest = network.manifest();
        manifest.exits = vec![Exit::LOCAL, Exit::CLOUD, further];
        manifest.sections = manifest.expected_sections();
        let bundle = Bundle::from_bytes(&network.with_manifest(manifest).finish().unwrap()).unwrap();
        let text = Inspection::of(&bundle).to_string();
        assert!(text.contains("\ncloud.1     entropy           1             0.5"), "{text}");
    }
}
