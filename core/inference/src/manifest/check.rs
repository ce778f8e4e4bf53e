//! Checks of `network.json`: counts, shapes and sections that fit together.

use std::fmt::Debug;

use headwater_protocol::{Exit, ExitWord, Slot};
use thiserror::Error;

use super::{
    Aggregation, Configuration, EdgeTier, FORMAT_VERSION, FeatureEncoding, FeatureMap, InputKind,
    NetworkManifest, OutputKind, ScoreLevels, SectionInput, SectionManifest, SectionOutput, Tier,
};

/// Largest number of classes of a network: a decision carries the class as `u16`.
pub const MAX_CLASSES: usize = u16::MAX as usize;

/// Largest number of elements of one sample's input or output of a section (64 MiB as `f32`).
pub const MAX_ELEMENTS: usize = 1 << 24;

/// Largest distance of the class prior's sum from 1; the prior is written as decimal `f32`.
pub const PRIOR_SUM_TOLERANCE: f32 = 1e-3;

/// A value in `network.json` that does not fit the others, or this build.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("network.json: {what}: expected {expected}, found {found}")]
pub struct ManifestError {
    /// The key in the file.
    pub what: String,
    /// The expected value.
    pub expected: String,
    /// The value in the file.
    pub found: String,
}

impl NetworkManifest {
    /// Checks the rules that types alone cannot express.
    ///
    /// # Errors
    /// The first value that does not fit, with the expected and the found one.
    pub fn check(&self) -> Result<(), ManifestError> {
        ensure(self.format == FORMAT_VERSION, "format", FORMAT_VERSION, self.format)?;
        let name_fits = (1..=64).contains(&self.name.len())
            && self.name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'));
        ensure(name_fits, "name", "1 to 64 of a-z A-Z 0-9 . _ -", format_args!("{:?}", clipped(&self.name)))?;
        let slots = usize::from(self.slots);
        let max = if self.configuration.has(Exit::DEVICE) { 1 } else { Slot::MAX };
        ensure((1..=max).contains(&slots), "slots", format_args!("1 to {max}"), slots)?;
        self.check_exits()?;
        self.check_classes()?;
        self.check_maps()?;
        self.check_score_levels()?;
        self.check_score_limits()?;
        self.check_sections()?;
        self.check_contexts()
    }

    fn check_score_limits(&self) -> Result<(), ManifestError> {
        self.score_limits.iter().try_for_each(|(section, [least, largest])| {
            let is_range = least.is_finite() && largest.is_finite() && least <= largest;
            let what = format!("score_limits.{}", clipped(section));
            let found = format_args!("{least} and {largest}");
            ensure(is_range, what, "two finite numbers, the smaller first", found)
        })
    }

    fn check_score_levels(&self) -> Result<(), ManifestError> {
        let is_coded = self.scores.levels().is_some();
        ensure(
            !is_coded || self.configuration.has_device_section(),
            "scores",
            "f32, since devices of configuration (a) have no scores",
            format_args!("{:?}", self.scores),
        )?;
        let expected = if is_coded { usize::from(self.slots) } else { 0 };
        let found = self.score_levels.len();
        ensure(
            found == expected,
            "score_levels",
            format_args!("{expected}, one a slot with coded scores"),
            found,
        )?;
        let is_range = |levels: &ScoreLevels| {
            levels.step > 0.0 && levels.score(0).is_finite() && levels.score(u8::MAX).is_finite()
        };
        match self.score_levels.iter().find(|levels| !is_range(levels)) {
            None => Ok(()),
            Some(bad) => {
                Err(error("score_levels", "finite scores, the step above 0", format_args!("{bad:?}")))
            }
        }
    }

    /// Checks that either every device codes its map or none does.
    fn check_contexts(&self) -> Result<(), ManifestError> {
        let coded = self.sections.iter().filter(|section| section.contexts_sha256.is_some());
        let [of_devices, of_others] =
            [true, false].map(|is| coded.clone().filter(|section| section.slot.is_some() == is).count());
        ensure(of_others == 0, "contexts_sha256", "none but at sections of devices", of_others)?;
        if of_devices == 0 {
            return Ok(());
        }
        let slots = usize::from(self.slots);
        ensure(of_devices == slots, "contexts_sha256", format_args!("0 or {slots} of them"), of_devices)?;
        let is_binary = self.features.encoding == FeatureEncoding::Bits;
        ensure(is_binary, "contexts_sha256", "a map of signs", "a map of other elements")?;
        match self.features.coder_shape() {
            Ok(_) => Ok(()),
            Err(unsupported) => Err(error("contexts_sha256", "a map that can be coded", unsupported)),
        }
    }

    /// Checks that the network has the exits of its configuration, in order. Each word may have further exits with the next indices.
    fn check_exits(&self) -> Result<(), ManifestError> {
        let names = |exits: &[Exit]| exits.iter().map(|exit| exit.name()).collect::<Vec<_>>().join(", ");
        let (words, found) = (self.configuration.exits(), self.exits());
        // In sorted exits without doubles, each exit is the first of its word or has the next index.
        let is_next = |pair: &[Exit]| pair[1].index() == 0 || pair[1].index() == pair[0].index() + 1;
        let fits = found.is_sorted_by(|one, next| one < next)
            && found.windows(2).all(is_next)
            && found.iter().copied().filter(|exit| exit.index() == 0).eq(words.iter().copied());
        let expected = format!("{} from the input, further ones of a word counted from .1", names(words));
        ensure(fits, "exits", expected, clipped(&names(found)))
    }

    /// Checks that this release runs every exit: it runs one exit per word.
    ///
    /// # Errors
    /// The first word with several exits.
    pub fn check_runs(&self) -> Result<(), ManifestError> {
        self.configuration.exits().iter().try_for_each(|first| {
            let count = self.exits_of(first.word()).count();
            ensure(count == 1, format!("exits of `{}`", first.name()), "1, as this release runs", count)
        })
    }

    fn check_classes(&self) -> Result<(), ManifestError> {
        let classes = self.classes();
        ensure((1..=MAX_CLASSES).contains(&classes), "labels", "1 to 65535 of them", classes)?;
        let prior = &self.class_prior;
        ensure(
            prior.len() == classes,
            "class_prior",
            format_args!("{classes} numbers, one a label"),
            prior.len(),
        )?;
        if let Some(bad) = prior.iter().find(|p| !(0.0..=1.0).contains(*p)) {
            return Err(error("class_prior", "numbers in [0, 1]", bad));
        }
        let sum: f32 = prior.iter().sum();
        ensure((sum - 1.0).abs() <= PRIOR_SUM_TOLERANCE, "class_prior", "a sum of 1", sum)
    }

    fn check_maps(&self) -> Result<(), ManifestError> {
        let view = &self.preprocessing;
        ensure(matches!(view.channels, 1 | 3), "preprocessing.channels", "1 or 3", view.channels)?;
        check_shape("preprocessing", &[view.channels, view.height, view.width].map(|n| n as usize))?;
        let (slots, regions) = (usize::from(self.slots), view.regions.len());
        let expected = format_args!("none, or one for each of {slots} slots");
        ensure([0, slots].contains(&regions), "preprocessing.regions", expected, regions)?;
        check_shape("features", &self.features.shape())?;
        if self.configuration.has_device_section() {
            let is_view = self.features.encoding == FeatureEncoding::Pixels;
            ensure(!is_view, "features.encoding", "bits or f32, since devices run a section", "pixels")?;
        } else {
            let expected = FeatureMap {
                channels: view.channels,
                height: view.height,
                width: view.width,
                encoding: FeatureEncoding::Pixels,
            };
            ensure_equal("features", &expected, &self.features)?;
        }
        match (&self.edge, self.configuration.has(Exit::EDGE)) {
            (Some(edge), true) => self.check_edges(edge),
            (None, false) => Ok(()),
            (edge, has) => {
                let words = |has| if has { "edges" } else { "no edges" };
                let expected = format!("{} in configuration ({})", words(has), self.configuration.letter());
                Err(error("edge", expected, words(edge.is_some())))
            }
        }
    }

    /// Checks the number of edges, the map that edges send, and that each slot belongs to one edge; the slots of an edge must rise.
    fn check_edges(&self, edge: &EdgeTier) -> Result<(), ManifestError> {
        let count = edge.groups.len();
        let (fits, expected) = if self.configuration == Configuration::F {
            ((2..=usize::from(self.slots)).contains(&count), "2 or more, each with a slot")
        } else {
            (count == 1, "1")
        };
        ensure(fits, "edge.groups", expected, count)?;
        let mut slots: Vec<usize> = edge.groups.iter().flatten().map(|slot| slot.index()).collect();
        slots.sort_unstable();
        let is_ordered = edge.groups.iter().all(|group| !group.is_empty() && group.is_sorted());
        ensure(
            is_ordered && slots.iter().copied().eq(0..usize::from(self.slots)),
            "edge.groups",
            format_args!("each of the {} slots in one group, in order, no group empty", self.slots),
            format_args!("{:?}", edge.groups),
        )?;
        let is_view = edge.features.encoding == FeatureEncoding::Pixels;
        ensure(!is_view, "edge.features.encoding", "bits or f32", "pixels")?;
        check_shape("edge.features", &edge.features.shape())
    }

    fn check_sections(&self) -> Result<(), ManifestError> {
        let expected = self.expected_sections();
        let names = |sections: &[SectionManifest]| -> String {
            clipped(&sections.iter().map(|s| s.name.as_str()).collect::<Vec<_>>().join(", "))
        };
        let complete = expected.len() == self.sections.len()
            && expected.iter().zip(&self.sections).all(|(expected, found)| expected.name == found.name);
        ensure(complete, "sections", names(&expected), names(&self.sections))?;
        expected.iter().zip(&self.sections).try_for_each(|(expected, found)| check_section(expected, found))
    }

    /// The sections that the network must have, with every field but costs and hashes.
    pub fn expected_sections(&self) -> Vec<SectionManifest> {
        let classes = self.classes();
        let view = [self.preprocessing.channels, self.preprocessing.height, self.preprocessing.width];
        // The first output has no index in its name, as the first exit of a word has none.
        let by_exit = |name: &str, words: &[ExitWord]| {
            let exits = words.iter().map(|word| self.exits_of(*word).count()).max().unwrap_or(0);
            let name = |index| if index == 0 { name.to_owned() } else { format!("{name}.{index}") };
            let outputs = (0..exits.max(1)).map(|index| output(&name(index), OutputKind::F32, vec![classes]));
            outputs.collect::<Vec<_>>()
        };
        let scores_and_map = |map: &FeatureMap, words: &[ExitWord]| {
            let kind = if map.encoding == FeatureEncoding::Bits { OutputKind::Bits } else { OutputKind::F32 };
            let mut outputs = by_exit("scores", words);
            outputs.push(output("features", kind, map.shape().to_vec()));
            outputs
        };
        let joined_scores = |word, sources: usize| {
            let shape = vec![sources.saturating_mul(classes).saturating_add(sources)];
            let logits = vec![output("logits", OutputKind::F32, vec![classes])];
            let of = move |exit: Exit| {
                section(exit.name().into(), Tier::Edge, floats(shape.clone()), logits.clone())
            };
            self.exits_of(word).map(of)
        };

        let mut sections = Vec::new();
        if self.configuration.has_device_section() {
            sections.extend(Slot::first(self.slots.into()).map(|slot| {
                let input =
                    SectionInput { kind: InputKind::Pixels, shape: view.map(|side| side as usize).to_vec() };
                let name = SectionManifest::device_name(slot);
                let section = section(
                    name,
                    Tier::Device,
                    input,
                    scores_and_map(&self.features, &[ExitWord::Device, ExitWord::Local]),
                );
                SectionManifest { slot: Some(slot), ..section }
            }));
        }
        if self.configuration.has(Exit::LOCAL) && self.local_aggregation == Aggregation::Cc {
            sections.extend(joined_scores(ExitWord::Local, self.slots.into()));
        }
        if let Some(edge) = &self.edge {
            sections.extend(edge.groups.iter().enumerate().map(|(index, group)| {
                let input = floats(joined(edge.aggregation, group.len(), &self.features));
                let name = SectionManifest::edge_name(index);
                section(name, Tier::Edge, input, scores_and_map(&edge.features, &[ExitWord::Edge]))
            }));
            if edge.fusion == Aggregation::Cc {
                sections.extend(joined_scores(ExitWord::Edge, edge.groups.len()));
            }
        }
        let input = floats(joined(self.cloud_aggregation, self.cloud_sources(), &self.cloud_map()));
        sections.push(section("cloud".into(), Tier::Cloud, input, by_exit("logits", &[ExitWord::Cloud])));
        sections
    }
}

/// Shape of the joined maps of several sources.
fn joined(aggregation: Aggregation, sources: usize, map: &FeatureMap) -> Vec<usize> {
    let [channels, height, width] = map.shape();
    let channels = match aggregation {
        Aggregation::Mp | Aggregation::Ap => channels,
        Aggregation::Cc => sources.saturating_mul(channels).saturating_add(sources),
    };
    vec![channels, height, width]
}

fn floats(shape: Vec<usize>) -> SectionInput {
    SectionInput { kind: InputKind::Floats, shape }
}

fn output(name: &str, kind: OutputKind, shape: Vec<usize>) -> SectionOutput {
    SectionOutput { name: name.into(), kind, shape }
}

fn section(name: String, tier: Tier, input: SectionInput, outputs: Vec<SectionOutput>) -> SectionManifest {
    SectionManifest {
        name,
        tier,
        slot: None,
        input,
        outputs,
        parameters: 0,
        macs: 0,
        sha256: String::new(),
        packed_sha256: None,
        contexts_sha256: None,
    }
}

fn check_section(expected: &SectionManifest, found: &SectionManifest) -> Result<(), ManifestError> {
    let at = |field: &str| format!("section {}: {field}", expected.name);
    ensure_equal(at("tier"), &expected.tier, &found.tier)?;
    ensure_equal(at("slot"), &expected.slot, &found.slot)?;
    ensure_equal(at("input"), &expected.input, &found.input)?;
    ensure_equal(at("outputs"), &expected.outputs, &found.outputs)?;
    check_shape(&at("input"), &found.input.shape)?;
    found.outputs.iter().try_for_each(|output| check_shape(&at(&output.name), &output.shape))
}

fn check_shape(what: &str, shape: &[usize]) -> Result<(), ManifestError> {
    let elements = shape.iter().try_fold(1usize, |product, &n| product.checked_mul(n));
    let fits = elements.is_some_and(|n| (1..=MAX_ELEMENTS).contains(&n));
    ensure(fits, what, format_args!("a shape of 1 to {MAX_ELEMENTS} elements"), format_args!("{shape:?}"))
}

fn ensure_equal<T: PartialEq + Debug>(
    what: impl Into<String>,
    expected: &T,
    found: &T,
) -> Result<(), ManifestError> {
    ensure(found == expected, what, format_args!("{expected:?}"), format_args!("{found:?}"))
}

fn ensure(
    holds: bool,
    what: impl Into<String>,
    expected: impl ToString,
    found: impl ToString,
) -> Result<(), ManifestError> {
    if holds { Ok(()) } else { Err(error(what, expected, found)) }
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "callers pass literals and numbers; a reference would be noise"
)]
fn error(what: impl Into<String>, expected: impl ToString, found: impl ToString) -> ManifestError {
    ManifestError { what: what.into(), expected: expected.to_string(), found: found.to_string() }
}

fn clipped(text: &str) -> String {
    text.chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TinyNetwork;

    #[track_caller]
    fn refused(configuration: Configuration, change: impl FnOnce(&mut NetworkManifest), words: &str) {
        let mut manifest = TinyNetwork::of(configuration).manifest();
        assert_eq!(manifest.check(), Ok(()));
        change(&mut manifest);
        let error = manifest.check().expect_err("must be refused").to_string();
        assert!(error.contains(words), "{error}");
    }

    fn slots(slots: &[u8]) -> Vec<Slot> {
        slots.iter().map(|slot| Slot::new(*slot).expect("a slot")).collect()
    }

    #[test]
    fn edges_that_the_configuration_does_not_have_and_missing_edges_are_refused() {
        let edge = TinyNetwork::of(Configuration::E).manifest().edge;
        refused(Configuration::C, |manifest| manifest.edge = edge, "expected no edges in configuration (c)");
        refused(Configuration::E, |manifest| manifest.edge = None, "expected edges in configuration (e)");
    }

    fn with<'a>(groups: &'a [&'a [u8]]) -> impl FnOnce(&mut NetworkManifest) + 'a {
        |manifest| {
            let edge = manifest.edge.as_mut().expect("edges");
            edge.groups = groups.iter().map(|group| slots(group)).collect();
        }
    }

    #[test]
    fn every_slot_belongs_to_one_edge() {
        refused(Configuration::F, with(&[&[0, 1, 2]]), "edge.groups: expected 2 or more");
        refused(Configuration::E, with(&[&[0, 1], &[2]]), "edge.groups: expected 1, found 2");
        for groups in [&[&[0u8, 1][..], &[1, 2]][..], &[&[0, 1], &[]], &[&[0], &[1]], &[&[1, 0], &[2]]] {
            refused(Configuration::F, with(groups), "each of the 3 slots in one group");
        }
    }

    #[test]
    fn a_network_whose_device_decides_has_one_slot() {
        for configuration in [Configuration::B, Configuration::D] {
            refused(configuration, |manifest| manifest.slots = 2, "slots: expected 1 to 1, found 2");
        }
    }

    #[test]
    fn only_devices_without_a_section_send_views() {
        let bits = |manifest: &mut NetworkManifest| manifest.features.encoding = FeatureEncoding::Bits;
        refused(Configuration::A, bits, "features: expected");
        let pixels = |manifest: &mut NetworkManifest| manifest.features.encoding = FeatureEncoding::Pixels;
        refused(Configuration::C, pixels, "features.encoding: expected bits or f32");
    }

    #[test]
    fn score_limits_are_two_finite_numbers_in_order() {
        for limits in [[1.0, 0.0], [f32::NAN, 1.0], [0.0, f32::INFINITY]] {
            let set = |manifest: &mut NetworkManifest| {
                manifest.score_limits.insert("device-1".into(), limits);
            };
            refused(Configuration::C, set, "score_limits.device-1: expected two finite numbers");
        }
    }

    fn named(names: &[&str]) -> Vec<Exit> {
        names.iter().map(|name| Exit::from_name(name).expect("an exit")).collect()
    }

    #[test]
    fn a_network_may_have_further_exits_of_a_word_which_this_release_does_not_run() {
        let mut manifest = TinyNetwork::of(Configuration::C).manifest();
        assert_eq!((manifest.exits(), manifest.check_runs()), (Configuration::C.exits(), Ok(())));
        manifest.exits = named(&["local", "cloud", "cloud.1"]);
        manifest.sections = manifest.expected_sections();
        assert_eq!(manifest.check(), Ok(()));
        let outputs = &manifest.section("cloud").expect("a section").outputs;
        assert!(outputs.iter().map(|output| output.name.as_str()).eq(["logits", "logits.1"]));
        let text = serde_json::to_string(&manifest).expect("JSON");
        assert!(text.contains(r#""exits":["local","cloud","cloud.1"]"#), "{text}");
        assert_eq!(serde_json::from_str::<NetworkManifest>(&text).expect("a manifest"), manifest);
        let refused = manifest.check_runs().expect_err("two exits in the cloud").to_string();
        assert_eq!(refused, "network.json: exits of `cloud`: expected 1, as this release runs, found 2");
    }

    #[test]
    fn exits_of_other_words_out_of_order_or_with_gaps_are_refused() {
        for exits in [
            &["cloud"][..],
            &["cloud", "local"],
            &["local", "edge", "cloud"],
            &["local", "cloud.1"],
            &["local", "cloud", "cloud.2"],
            &["local", "cloud", "cloud"],
            &["local", "cloud.1", "cloud"],
        ] {
            let set = |manifest: &mut NetworkManifest| manifest.exits = named(exits);
            refused(Configuration::C, set, "exits: expected local, cloud from the input");
        }
    }

    #[test]
    fn a_missing_section_is_refused_with_the_expected_ones() {
        let drop = |manifest: &mut NetworkManifest| drop(manifest.sections.remove(3));
        refused(Configuration::F, drop, "expected device-0, device-1, device-2, edge-0, edge-1, cloud");
    }
}
