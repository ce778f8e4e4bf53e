//! The policy file of an operator, which states only the values that it changes in a calibrated policy.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};

use headwater_protocol::{ByExit, Exit, PolicyId, PolicyName};
use headwater_toml_file::{Document, Mistake};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};

use super::key::{ByKey, Key, USE, read};
use super::waits::WAITS;
use super::{
    Confidence, ExitPolicy, ExitRule, LearnedWeights, NoAnswer, Policies, Policy, PolicyError, PromiseKind,
    Temperature, Threshold, check_wait,
};
use crate::regular_file;

/// Largest policy file in bytes.
const MAX_FILE_BYTES: u64 = 64 << 10;

/// Changes to a calibrated policy. A key that the file does not state keeps its calibrated value.
#[derive(Clone, Debug, Default)]
pub struct PolicyChanges {
    stated: Stated,
    /// Line of each stated key, from 1.
    lines: BTreeMap<String, usize>,
}

/// Values as a file states them.
#[derive(Clone, Debug, Default)]
struct Stated {
    exits: ByExit<StatedExit>,
    waits: BTreeMap<&'static str, u32>,
    no_answer: Option<NoAnswer>,
    claim_above: Option<Confidence>,
    /// Name of the bundle's policy that the file changes; `None` for the policy in use.
    used: Option<PolicyName>,
    pinned: Option<bool>,
}

#[derive(Clone, Debug, Default)]
struct StatedExit {
    rule: Option<ExitRule>,
    temperature: Option<Temperature>,
    threshold: Option<Threshold>,
    weights: Option<LearnedWeights>,
    /// Further exits of the same word by index, such as `cloud.1` within the table `cloud`; a further exit may not have any.
    further: Vec<(u8, StatedExit)>,
}

#[derive(Clone, Copy)]
enum ExitKey {
    Rule,
    Temperature,
    Threshold,
    Weights,
    Further(u8),
}

impl PolicyChanges {
    /// Reads a file of at most 64 KiB.
    ///
    /// # Errors
    /// [`PolicyFileError`]: the file cannot be read, or what [`PolicyChanges::parse`] refuses.
    pub fn read(path: &Path) -> Result<Self, PolicyFileError> {
        let of_file = |error: PolicyFileError| error.in_file(path);
        let text = Self::read_text(path);
        let text = text
            .map_err(|error| of_file(PolicyFileError::new(vec![Mistake::of_key("", error.to_string())])))?;
        Self::parse(&text).map_err(of_file)
    }

    /// The text of a file of at most 64 KiB.
    ///
    /// # Errors
    /// The system's error, something else than a file, or too many bytes.
    pub fn read_text(path: &Path) -> std::io::Result<String> {
        let (file, _) = regular_file::open(path)?;
        let mut text = String::new();
        let read = file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text)?;
        if read as u64 > MAX_FILE_BYTES {
            let message = format!("expected a policy of at most {MAX_FILE_BYTES} bytes, found more");
            return Err(std::io::Error::new(std::io::ErrorKind::FileTooLarge, message));
        }
        Ok(text)
    }

    /// Reads the text of a file.
    ///
    /// # Errors
    /// [`PolicyFileError`]: every place that is not TOML, or every unknown key and value out of its range, with line, expected and found.
    pub fn parse(text: &str) -> Result<Self, PolicyFileError> {
        let stated: Stated = headwater_toml_file::read(text).map_err(PolicyFileError::new)?;
        let values = Document::parse(text).map_err(PolicyFileError::new)?.values;
        let mut lines = BTreeMap::new();
        for (key, found) in values {
            // The weights of an exit are one value with one key; the key's line is the first that states a weight.
            let key = key.find(".weights.").map_or(key.as_str(), |at| &key[..at + ".weights".len()]);
            let line = lines.entry(key.to_owned()).or_insert(found.line);
            *line = found.line.min(*line);
        }
        let changes = Self { stated, lines };
        let mistakes = changes.check();
        if mistakes.is_empty() { Ok(changes) } else { Err(PolicyFileError::new(mistakes)) }
    }

    /// The bundle's policy that the file changes, with these changes, and the id of the result.
    ///
    /// # Errors
    /// [`PolicyFileError`] for changes that do not fit the other values, such as a deadline before the end of the window, and for the name
    /// of a policy that the bundle does not have.
    pub fn apply_to(&self, bundle: &Policies) -> Result<(Policy, PolicyId), PolicyFileError> {
        let calibrated = self.base(bundle)?;
        let mut policy = calibrated.clone();
        for (exit, stated) in self.stated.exits.iter() {
            stated.apply_to(policy.of_mut(exit));
        }
        if policy.exits != calibrated.exits {
            // The promises are about the calibrated exits and do not hold for changed ones.
            policy.promises.clear();
        }
        for wait in &WAITS {
            if let Some(stated) = self.stated.waits.get(wait.key) {
                *(wait.value_mut)(&mut policy) = *stated;
            }
        }
        policy.no_answer = self.stated.no_answer.unwrap_or(policy.no_answer);
        policy.claim_above = self.stated.claim_above.or(policy.claim_above);
        if (policy.no_answer, policy.claim_above) != (calibrated.no_answer, calibrated.claim_above) {
            // The share of wrong answers was tested under the earlier values of these two keys.
            policy.promises.retain(|promise| promise.kind != PromiseKind::Wrong);
        }
        policy.check().map_err(|error| PolicyFileError::new(vec![self.mistake(&error)]))?;
        let id = policy.id();
        Ok((policy, id))
    }

    /// The policy of the bundle that is changed: the policy that the file names, else the policy in use.
    ///
    /// # Errors
    /// [`PolicyFileError`] for a name that the bundle does not have.
    pub fn base<'a>(&self, bundle: &'a Policies) -> Result<&'a Policy, PolicyFileError> {
        let Some(name) = &self.stated.used else { return Ok(bundle.in_use()) };
        let unknown = || PolicyError::UnknownName(name.clone());
        bundle.get(name).ok_or_else(|| PolicyFileError::new(vec![self.mistake(&unknown())]))
    }

    /// A policy of the bundle with the changes of a file.
    ///
    /// # Errors
    /// [`PolicyFileError`] of [`PolicyChanges::read`] and [`PolicyChanges::apply_to`], with the file.
    pub fn policy_of(file: &Path, bundle: &Policies) -> Result<(Policy, PolicyId), PolicyFileError> {
        let changes = Self::read(file)?;
        changes.apply_to(bundle).map_err(|error| error.in_file(file))
    }

    /// True when the file says `pinned = true`: an operator's command keeps out the commands of planning programs.
    pub fn is_pinned(&self) -> bool {
        self.stated.pinned.unwrap_or_default()
    }

    /// Line of a key in the file, from 1; `None` for a key that keeps its calibrated value.
    pub fn line(&self, key: &str) -> Option<usize> {
        self.lines.get(key).copied()
    }

    /// Keys that the file states, in alphabetical order.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.lines.keys().map(String::as_str)
    }

    /// Mistakes that show without the calibrated values.
    fn check(&self) -> Vec<Mistake> {
        let waits = &self.stated.waits;
        let out_of_range = waits.iter().filter_map(|(key, found)| check_wait(key, *found).err());
        let order = match (waits.get("window_ms"), waits.get("deadline_ms")) {
            (Some(&window_ms), Some(&deadline_ms)) if deadline_ms < window_ms => {
                Some(PolicyError::DeadlineBeforeWindow { deadline_ms, window_ms })
            }
            (_, _) => None,
        };
        out_of_range.chain(order).map(|error| self.mistake(&error)).collect()
    }

    /// The error as a mistake with its line. The key stays empty, because the error's text names the key.
    fn mistake(&self, error: &PolicyError) -> Mistake {
        let line = match error {
            PolicyError::Wait { key, .. } => self.line(key),
            PolicyError::DeadlineBeforeWindow { .. } => {
                self.line("deadline_ms").or_else(|| self.line("window_ms"))
            }
            PolicyError::NoWeights(exit) => self.line(&format!("{}.rule", exit.name())),
            PolicyError::UnknownName(_) => self.line(USE),
            PolicyError::Threshold(_)
            | PolicyError::Confidence(_)
            | PolicyError::Temperature(_)
            | PolicyError::Weight(_)
            | PolicyError::NoExit(_)
            | PolicyError::NoThreshold
            | PolicyError::Named { .. }
            | PolicyError::Policies(_)
            | PolicyError::NameTwice(_)
            | PolicyError::PromiseOfNone => None,
        };
        Mistake { line, key: String::new(), text: error.to_string() }
    }
}

impl ByKey for Stated {
    fn take<'de, A: MapAccess<'de>>(&mut self, key: Key, from: &mut A) -> Result<(), A::Error> {
        match key {
            Key::Exit(word) if word.index() == 0 => {
                let mut stated: StatedExit = from.next_value()?;
                for (index, further) in std::mem::take(&mut stated.further) {
                    let name = format!("{}.{index}", word.name());
                    let exit = Exit::from_name(&name).filter(|_| further.further.is_empty());
                    let exit =
                        exit.ok_or_else(|| A::Error::custom(format_args!("{name}: expected an exit")))?;
                    self.exits.insert(exit, further);
                }
                self.exits.insert(word, stated);
            }
            Key::Exit(exit) => {
                return Err(A::Error::custom(format_args!("expected [{}] without quotes", exit.name())));
            }
            Key::Wait(wait) => drop(self.waits.insert(wait.key, from.next_value()?)),
            Key::NoAnswer => self.no_answer = from.next_value()?,
            Key::ClaimAbove => self.claim_above = from.next_value()?,
            Key::Use => self.used = from.next_value()?,
            Key::Pinned => self.pinned = from.next_value()?,
        }
        Ok(())
    }
}

impl<'de> Deserialize<'de> for ExitKey {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let name = std::borrow::Cow::<str>::deserialize(from)?;
        Ok(match &*name {
            "rule" => Self::Rule,
            "temperature" => Self::Temperature,
            "threshold" => Self::Threshold,
            "weights" => Self::Weights,
            other => {
                let known = &["rule", "temperature", "threshold", "weights"];
                Self::Further(other.parse().map_err(|_| D::Error::unknown_field(other, known))?)
            }
        })
    }
}

impl<'de> Deserialize<'de> for StatedExit {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Values;

        impl<'de> Visitor<'de> for Values {
            type Value = StatedExit;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("rule, temperature, threshold or weights of an exit")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<StatedExit, A::Error> {
                let mut exit = StatedExit::default();
                while let Some(key) = map.next_key()? {
                    match key {
                        ExitKey::Rule => exit.rule = map.next_value()?,
                        ExitKey::Temperature => exit.temperature = map.next_value()?,
                        ExitKey::Threshold => exit.threshold = map.next_value()?,
                        ExitKey::Weights => exit.weights = map.next_value()?,
                        ExitKey::Further(index) => exit.further.push((index, map.next_value()?)),
                    }
                }
                Ok(exit)
            }
        }
        from.deserialize_map(Values)
    }
}

impl<'de> Deserialize<'de> for Stated {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        read(from)
    }
}

impl StatedExit {
    fn apply_to(&self, exit: &mut ExitPolicy) {
        exit.rule = self.rule.unwrap_or(exit.rule);
        exit.temperature = self.temperature.unwrap_or(exit.temperature);
        if let Some(threshold) = &self.threshold {
            exit.threshold = threshold.clone();
        }
        exit.weights = self.weights.or(exit.weights);
    }
}

/// A policy file that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct PolicyFileError {
    /// The file; `None` for text that comes from no file.
    file: Option<PathBuf>,
    mistakes: Vec<Mistake>,
}

impl PolicyFileError {
    fn new(mut mistakes: Vec<Mistake>) -> Self {
        mistakes.sort_by_key(|mistake| mistake.line);
        Self { file: None, mistakes }
    }

    /// The mistakes without file and lines.
    pub fn reason(&self) -> String {
        self.mistakes.iter().map(Mistake::reason).collect::<Vec<_>>().join("; ")
    }

    /// The same mistakes, in a file of that name.
    #[must_use]
    pub fn in_file(self, file: &Path) -> Self {
        Self { file: Some(file.to_owned()), ..self }
    }
}

impl fmt::Display for PolicyFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mistakes = self.mistakes.iter().map(|mistake| match &self.file {
            Some(file) => mistake.in_file(file),
            None => mistake.to_string(),
        });
        f.write_str(&mistakes.collect::<Vec<_>>().join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::super::ExitThreshold;
    use super::*;

    /// A calibrated policy that differs from the default everywhere.
    fn calibrated() -> Policies {
        let mut policy = Policy { window_ms: 70, features_ms: 80, deadline_ms: 500, ..Policy::default() };
        for (exit, threshold) in [(Exit::DEVICE, 0.1), (Exit::LOCAL, 0.2), (Exit::EDGE, 0.3)] {
            policy.of_mut(exit).threshold = Threshold::One(ExitThreshold::new(threshold).unwrap());
            policy.of_mut(exit).temperature = Temperature::new(1.5).unwrap();
        }
        Policies::new(policy)
    }

    #[track_caller]
    fn check_mistake(text: &str, expected: &[&str]) {
        let changes = PolicyChanges::parse(text);
        let error = changes.and_then(|changes| changes.apply_to(&calibrated())).unwrap_err().to_string();
        assert!(expected.iter().all(|part| error.contains(part)) && !error.contains('\n'), "{error}");
    }

    #[test]
    fn a_file_changes_what_it_states_and_the_rest_stays_as_calibrated() {
        let changes = PolicyChanges::parse("window_ms = 40\n\n[local]\nthreshold = [0.5, 0.25]\n").unwrap();
        let (policy, id) = changes.apply_to(&calibrated()).unwrap();
        let mut expected = calibrated().in_use().clone();
        expected.window_ms = 40;
        expected.of_mut(Exit::LOCAL).threshold =
            Threshold::ByPresent([0.5, 0.25].map(|value| ExitThreshold::new(value).unwrap()).to_vec());
        assert_eq!(policy, expected);
        assert_eq!(id, expected.id());
        assert_eq!(changes.keys().collect::<Vec<_>>(), ["local.threshold", "window_ms"]);
        assert_eq!((changes.line("window_ms"), changes.line("local.threshold")), (Some(1), Some(4)));
        assert_eq!(changes.line("local.rule"), None);
    }

    #[test]
    fn a_file_changes_a_further_exit() {
        let changes = PolicyChanges::parse("[cloud.1]\nthreshold = 0.25\n").unwrap();
        let (policy, _) = changes.apply_to(&calibrated()).unwrap();
        let further = Exit::from_name("cloud.1").unwrap();
        assert_eq!(policy.of(further).threshold, Threshold::One(ExitThreshold::new(0.25).unwrap()));
        assert_eq!(changes.line("cloud.1.threshold"), Some(2));
        check_mistake("[cloud.9]\nthreshold = 0.25", &["cloud.9: expected an exit"]);
        check_mistake("[cloud.1.2]\nthreshold = 0.25", &["cloud.1: expected an exit"]);
        check_mistake("[\"cloud.1\"]\nthreshold = 0.25", &["expected [cloud.1] without quotes"]);
        check_mistake("promise = 1", &["promise"]);
    }

    #[test]
    fn a_file_chooses_a_policy_of_the_bundle_by_name() {
        let frugal = Policy { window_ms: 20, ..calibrated().in_use().clone() };
        let bundle = calibrated().with(PolicyName::new("frugal").unwrap(), frugal.clone());
        let of = |text: &str| PolicyChanges::parse(text).unwrap().apply_to(&bundle);
        assert_eq!(of("").unwrap().0, frugal, "the one in use");
        assert_eq!(of("use = \"calibrated\"").unwrap().0, *calibrated().in_use());
        assert_eq!(of("use = \"calibrated\"\nlate_ms = 9").unwrap().0.late_ms, 9);
        let refused = of("late_ms = 9\nuse = \"fast\"").unwrap_err().to_string();
        assert_eq!(refused, "line 2: expected the name of a policy of the bundle, found fast");
        check_mistake("use = 3", &["line 1: use: expected", "found"]);
        let pinned = |text: &str| PolicyChanges::parse(text).unwrap().is_pinned();
        assert!(pinned("pinned = true") && !pinned("pinned = false") && !pinned(""));
    }

    #[test]
    fn a_file_that_claims_other_answers_ends_the_promise_about_wrong_ones_alone() {
        let policy: Policies = serde_json::from_str(
            r#"{"policies":[{"name":"a","policy":{"claim_above":0.5}}],"promises":[
                {"kind":"wrong","policies":["a"],"loss":0.02,"confidence":0.95,"presence":{"missing":0.0},"part":{"data":"d","samples":9}},
                {"kind":"net","policies":["a"],"loss":0.01,"confidence":0.95,"presence":{"missing":0.0},"part":{"data":"d","samples":9}}]}"#,
        )
        .unwrap();
        let kinds = |text: &str| {
            let (policy, _) = PolicyChanges::parse(text).unwrap().apply_to(&policy).unwrap();
            policy.promises.iter().map(|promise| promise.kind).collect::<Vec<_>>()
        };
        assert_eq!(kinds("window_ms = 40\nclaim_above = 0.5"), [PromiseKind::Wrong, PromiseKind::Net]);
        assert_eq!(kinds("claim_above = 0.25"), [PromiseKind::Net]);
        assert_eq!(kinds("no_answer = \"class_prior\""), [PromiseKind::Net]);
        check_mistake("claim_above = 2", &["line 1", "claim_above", "[0, 1], found 2"]);
    }

    #[test]
    fn a_file_that_changes_nothing_keeps_the_id_of_the_calibrated_policy() {
        for text in ["", "# only a comment\n[local]\n", "window_ms = 70", "local.threshold = 0.2"] {
            let (policy, id) = PolicyChanges::parse(text).unwrap().apply_to(&calibrated()).unwrap();
            assert_eq!((&policy, id), (calibrated().in_use(), calibrated().in_use().id()), "{text}");
        }
    }

    #[test]
    fn the_id_depends_on_the_values_and_not_on_the_text() {
        let id = |text| PolicyChanges::parse(text).unwrap().apply_to(&calibrated()).unwrap().1;
        assert_eq!(id("window_ms = 40"), id("# shorter\nwindow_ms=40 # ms\n"));
        assert_ne!(id("window_ms = 40"), id("window_ms = 41"));
        assert_ne!(id("window_ms = 40"), calibrated().in_use().id());
    }

    #[test]
    fn mistakes_are_named_with_line_and_key_and_what_was_expected_and_found() {
        check_mistake("\n[device]\nthreshold = 1.5", &["line 3", "threshold", "[0, 1], found 1.5"]);
        check_mistake("[local]\nthreshold = [0.5, -0.5]", &["line 2", "threshold", "[0, 1], found -0.5"]);
        check_mistake("[local]\nthreshold = []", &["line 2", "threshold", "found an empty list"]);
        check_mistake(
            "[local]\nthreshold = \"low\"",
            &["line 2: local.threshold: expected a number", "found \"low\""],
        );
        check_mistake("[local]\nthreshold = nan", &["line 2", "threshold", "found NaN"]);
        check_mistake("[edge]\ntemperature = 0.0", &["line 2", "temperature", "above 0, found 0"]);
        check_mistake("[edge]\nrule = \"odds\"", &["line 2", "rule", "odds", "max_probability"]);
        check_mistake("[device]\nthreshhold = 0.5", &["line 2", "threshhold", "`threshold`"]);
        check_mistake("[locale]\nthreshold = 0.5", &["line 1", "locale", "`local`"]);
        check_mistake("late_ms = 9\nwindow_ms = 0", &["line 2", "window_ms", "1 to 60000", "found 0"]);
        check_mistake("deadline_ms = 60001", &["line 1", "deadline_ms", "found 60001"]);
        check_mistake("window_ms = -1", &["line 1: window_ms: ", "found integer `-1`"]);
        check_mistake("window_ms = 600", &["line 1", "deadline_ms (500) is below window_ms (600)"]);
        check_mistake("window_ms = 9\ndeadline_ms = 8", &["line 2", "deadline_ms (8)"]);
        check_mistake("window_ms = 1\nwindow_ms = 2", &["line 2: duplicate key"]);
        check_mistake("[device", &["line 1"]);
        check_mistake(
            "[device]\nthreshold = 1.5\n[edge]\nrule = 3\nlate = 1",
            &["line 2: device.threshold", "; line 4: edge.rule: ", "; line 5: edge.late: no such key"],
        );
        check_mistake("window_ms = 0\nlate_ms = 0", &["line 1: window_ms", "; line 2: late_ms"]);
    }

    const WEIGHTS: &str = "{ bias = -4.5, entropy = 3, margin = 0, present = -0.1, disagreement = 2 }";

    #[test]
    fn a_learned_rule_takes_the_weights_of_the_file_or_the_calibrated_ones() {
        let inline =
            PolicyChanges::parse(&format!("[local]\nrule = \"learned\"\nweights = {WEIGHTS}")).unwrap();
        assert_eq!(inline.keys().collect::<Vec<_>>(), ["local.rule", "local.weights"]);
        let (learned, id) = inline.apply_to(&calibrated()).unwrap();
        let weights = learned.of(Exit::LOCAL).weights.unwrap();
        assert_eq!(
            (learned.of(Exit::LOCAL).rule, weights.bias.get(), weights.entropy.get()),
            (ExitRule::Learned, -4.5, 3.0)
        );
        assert_eq!(learned.of(Exit::EDGE).weights, None);

        let inner = WEIGHTS.trim_matches(['{', '}']).replace(", ", "\n");
        let table =
            PolicyChanges::parse(&format!("local.rule = \"learned\"\n[local.weights]\n{inner}")).unwrap();
        assert_eq!(table.apply_to(&calibrated()).unwrap(), (learned.clone(), id));
        assert_eq!((table.line("local.weights"), table.keys().count()), (Some(3), 2));

        let threshold = PolicyChanges::parse("local.threshold = 0.25").unwrap();
        let found = threshold.apply_to(&Policies::new(learned.clone())).unwrap().0.of(Exit::LOCAL).clone();
        assert_eq!((found.rule, found.weights), (ExitRule::Learned, Some(weights)));

        check_mistake(
            "[local]\nrule = \"learned\"",
            &["line 2: local.rule: expected weights", "found none", "state local.weights"],
        );
        check_mistake(
            &format!("[local]\nweights = {}", WEIGHTS.replace('3', "inf")),
            &["line 2: local.weights.entropy: ", "expected a finite number, found inf"],
        );
        check_mistake("[local]\nweights = { bias = 1 }", &["line 2: local.weights.entropy: missing"]);
    }

    #[test]
    fn a_file_is_named_in_its_mistakes_and_bounded() {
        let missing = PolicyChanges::read(Path::new("/nowhere/policy.toml")).unwrap_err().to_string();
        assert!(missing.starts_with("/nowhere/policy.toml: "), "{missing}");
        let long = std::env::temp_dir().join(format!("headwater-long-policy-{}", std::process::id()));
        std::fs::write(&long, "#".repeat(65_537)).unwrap();
        let refused = PolicyChanges::read(&long).unwrap_err().to_string();
        std::fs::remove_file(&long).unwrap();
        assert!(refused.contains("at most 65536 bytes"), "{refused}");
    }

    #[test]
    fn a_policy_that_is_no_file_is_refused_and_not_waited_for() {
        for path in ["/dev/zero", "/"] {
            let refused = PolicyChanges::read(Path::new(path)).unwrap_err().to_string();
            assert_eq!(refused, format!("{path}: expected a file, found something else"));
        }
    }
}
