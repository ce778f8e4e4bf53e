//! What `network.json` must say for the rest of the crate to trust it: counts, shapes and sections that fit together.

use headwater_protocol::Slot;
use thiserror::Error;

use super::{
    Aggregation, Configuration, FORMAT_VERSION, InputKind, NetworkManifest, OutputKind, SectionManifest, Tier,
};

/// Most classes a network may have: a decision carries the class as `u16`.
pub const CLASSES_MAX: usize = u16::MAX as usize;

/// Most elements of one sample's input or output of a section (64 MiB as `f32`).
pub const ELEMENTS_MAX: usize = 1 << 24;

/// How far the class prior may be from summing to 1: it is written as decimal `f32`.
pub const PRIOR_SUM_TOLERANCE: f32 = 1e-3;

/// A statement of `network.json` that does not fit the rest of it, or this build.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("network.json: {what}: expected {expected}, found {found}")]
pub struct ManifestError {
    /// Where in the file.
    pub what: String,
    /// What would be right.
    pub expected: String,
    /// What stands there.
    pub found: String,
}

impl NetworkManifest {
    /// Checks everything that the types alone cannot.
    ///
    /// # Errors
    /// The first statement that does not fit, with what was expected and found.
    pub fn check(&self) -> Result<(), ManifestError> {
        ensure(self.format == FORMAT_VERSION, "format", FORMAT_VERSION, self.format)?;
        let name_fits = (1..=64).contains(&self.name.len())
            && self.name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'));
        ensure(name_fits, "name", "1 to 64 of a-z A-Z 0-9 . _ -", format_args!("{:?}", clipped(&self.name)))?;
        let slots = usize::from(self.slots);
        ensure((1..=Slot::MAX).contains(&slots), "slots", "1 to 64", slots)?;
        self.check_classes()?;
        self.check_maps()?;
        self.check_sections()
    }

    fn check_classes(&self) -> Result<(), ManifestError> {
        let classes = self.classes();
        ensure((1..=CLASSES_MAX).contains(&classes), "labels", "1 to 65535 of them", classes)?;
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
        let view = self.preprocessing;
        ensure(matches!(view.channels, 1 | 3), "preprocessing.channels", "1 or 3", view.channels)?;
        check_shape("preprocessing", &[view.channels, view.height, view.width].map(|n| n as usize))?;
        let map = self.features;
        check_shape("features", &[map.channels, map.height, map.width].map(|n| n as usize))
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

    /// The sections that this configuration needs, as they must be described (costs and hashes left empty).
    fn expected_sections(&self) -> Vec<SectionManifest> {
        let Configuration::C = self.configuration;
        let classes = self.classes();
        let slots = usize::from(self.slots);
        let view = [self.preprocessing.channels, self.preprocessing.height, self.preprocessing.width];
        let [f, h, w] =
            [self.features.channels, self.features.height, self.features.width].map(|n| n as usize);
        let scores = ("scores", OutputKind::F32, vec![classes]);
        let features = ("features", OutputKind::Bits, vec![f, h, w]);
        let logits = ("logits", OutputKind::F32, vec![classes]);

        let mut sections: Vec<_> = Slot::first(slots)
            .map(|slot| {
                let input = (InputKind::Pixels, view.map(|n| n as usize).to_vec());
                let outputs = vec![scores.clone(), features.clone()];
                section(SectionManifest::device_name(slot), Tier::Device, Some(slot), input, outputs)
            })
            .collect();
        if self.local_aggregation == Aggregation::Cc {
            let input = (InputKind::Floats, vec![slots.saturating_mul(classes).saturating_add(slots)]);
            sections.push(section("local".into(), Tier::Edge, None, input, vec![logits.clone()]));
        }
        let channels = match self.cloud_aggregation {
            Aggregation::Mp | Aggregation::Ap => f,
            Aggregation::Cc => slots.saturating_mul(f).saturating_add(slots),
        };
        let input = (InputKind::Floats, vec![channels, h, w]);
        sections.push(section("cloud".into(), Tier::Cloud, None, input, vec![logits]));
        sections
    }
}

type Described = (&'static str, OutputKind, Vec<usize>);

fn section(
    name: String,
    tier: Tier,
    slot: Option<Slot>,
    (kind, shape): (InputKind, Vec<usize>),
    outputs: Vec<Described>,
) -> SectionManifest {
    let outputs = outputs.into_iter().map(|(name, kind, shape)| super::SectionOutput {
        name: name.into(),
        kind,
        shape,
    });
    SectionManifest {
        name,
        tier,
        slot,
        input: super::SectionInput { kind, shape },
        outputs: outputs.collect(),
        parameters: 0,
        macs: 0,
        sha256: String::new(),
        packed_sha256: None,
    }
}

fn check_section(expected: &SectionManifest, found: &SectionManifest) -> Result<(), ManifestError> {
    let at = |field: &str| format!("section {}: {field}", expected.name);
    let debug = |value: &dyn std::fmt::Debug| format!("{value:?}");
    ensure(found.tier == expected.tier, at("tier"), debug(&expected.tier), debug(&found.tier))?;
    ensure(found.slot == expected.slot, at("slot"), debug(&expected.slot), debug(&found.slot))?;
    ensure(found.input == expected.input, at("input"), debug(&expected.input), debug(&found.input))?;
    ensure(
        found.outputs == expected.outputs,
        at("outputs"),
        debug(&expected.outputs),
        debug(&found.outputs),
    )?;
    check_shape(&at("input"), &found.input.shape)?;
    found.outputs.iter().try_for_each(|output| check_shape(&at(&output.name), &output.shape))
}

fn check_shape(what: &str, shape: &[usize]) -> Result<(), ManifestError> {
    let elements = shape.iter().try_fold(1usize, |product, &n| product.checked_mul(n));
    let fits = elements.is_some_and(|n| (1..=ELEMENTS_MAX).contains(&n));
    ensure(fits, what, format_args!("a shape of 1 to {ELEMENTS_MAX} elements"), format_args!("{shape:?}"))
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
