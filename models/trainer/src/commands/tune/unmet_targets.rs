//! Targets that cannot be met together, and the nearest settings that can be had.

use headwater_calibration::tuning::choice::{Measure, Nearest};
use headwater_inference::policy::Bound;
use serde_json::{Value, json};

use super::super::output::{command_line, options};
use super::super::print_json;
use super::result::figures_json;
use super::{Failure, Tune, Tuned, USUAL_CONFIDENCE};

impl Tune {
    /// Prints the result as JSON if `--json` asks for it, and fails with a message that names the targets that can be kept.
    pub(super) fn refuse(
        &self,
        tuned: &Tuned<'_>,
        unreachable: &[Measure],
        nearest: &[Nearest],
    ) -> Result<(), Failure> {
        if self.json {
            let mut value = self.json_of(tuned, None);
            value["never"] = unreachable.iter().map(|measure| measure.flag()).collect();
            value["nearest"] = nearest.iter().map(|nearest| self.nearest_json(tuned, nearest)).collect();
            print_json(&value)?;
        }
        Err(anyhow::anyhow!(self.message(tuned, unreachable, nearest)).into())
    }

    fn message(&self, tuned: &Tuned<'_>, unreachable: &[Measure], nearest: &[Nearest]) -> String {
        let asked = tuned.criteria.targets.measures();
        let mut text =
            format!("cannot be met: no setting of the exits keeps {}", flags(tuned, &asked, " and "));
        if let Some(percent) = tuned.criteria.targets.wrong {
            text += &format!(" with --wrong {percent} for the exits before the last one");
        }
        if asked.len() > 1 && unreachable.is_empty() {
            text += "; each can be kept alone";
        } else if asked.len() > 1 {
            text += &format!("; {} cannot be kept even alone", flags(tuned, unreachable, " and "));
        }
        for Nearest { kept, setting, .. } in nearest {
            let figures = tuned.cost_text(&tuned.settings[*setting].figures);
            text += "\nnearest";
            if !kept.is_empty() {
                text += &format!(" that keeps {}", flags(tuned, kept, " and "));
            }
            text += &format!(": on validation {figures}");
            if kept.contains(&Measure::Loss) && tuned.is_promised(*setting) {
                text += "; the loss is promised";
            }
            text += &format!("\n    {}", self.command(tuned, kept, *setting));
        }
        text
    }

    fn nearest_json(&self, tuned: &Tuned<'_>, nearest: &Nearest) -> Value {
        let Nearest { kept, given_up, setting } = nearest;
        let names = |measures: &[Measure]| -> Vec<&str> { measures.iter().map(|of| of.flag()).collect() };
        json!({
            "kept": names(kept),
            "given_up": names(given_up),
            "validation": figures_json(&tuned.settings[*setting].figures, tuned.criteria.bound),
            "command": self.command(tuned, kept, *setting),
        })
    }

    /// The command that asks for a setting. The target of a given-up cost becomes the cost of the setting, rounded up. A given-up loss is
    /// left out: the command then takes the setting that keeps the costs and loses least, without a further test on the calibration part.
    fn command(&self, tuned: &Tuned<'_>, kept: &[Measure], setting: usize) -> String {
        let keeps_loss = kept.contains(&Measure::Loss);
        let unusual =
            |value: f64, usual| Some(value).filter(|value| keeps_loss && value.total_cmp(usual).is_ne());
        let (figures, bound) = (&tuned.settings[setting].figures, tuned.criteria.bound);
        let target = |measure: Measure| match tuned.criteria.targets.of(measure)? {
            asked if kept.contains(&measure) => Some(asked),
            _ if measure == Measure::Loss => None,
            _ => Some(rounded_up(measure, measure.of(figures, bound))),
        };
        let numbers = [
            ("--largest-group", self.largest_group.map(f64::from)),
            ("--block-length", self.block_length.map(|frames| f64::from(frames.get()))),
            ("--missing", Some(self.missing).filter(|missing| *missing > 0.0)),
            ("--confidence", unusual(self.confidence, &USUAL_CONFIDENCE)),
            ("--simultaneous", unusual(f64::from(self.simultaneous), &1.0)),
            ("--loss", target(Measure::Loss)),
            ("--bytes", target(Measure::Bytes)),
            ("--macs", target(Measure::Macs)),
            ("--wrong", tuned.criteria.targets.wrong),
        ];
        let file = self.bundle.display().to_string();
        let mut words = vec!["headwater-train".to_owned(), "tune".to_owned(), file];
        words.extend(self.dataset.arguments());
        words.extend(self.kept_apart.then(|| "--kept-apart".to_owned()));
        words.extend(options([("--promise", (self.promise != Bound::Net).then(|| "losses".to_owned()))]));
        words.extend(options(numbers.map(|(flag, value)| (flag, value.map(|value| value.to_string())))));
        command_line(words)
    }
}

/// Arguments of the measures with their targets, joined by `between`: `--loss 0.5 and --bytes 60`.
fn flags(tuned: &Tuned<'_>, measures: &[Measure], between: &str) -> String {
    let flag = |measure: &Measure| {
        let value = tuned.criteria.targets.of(*measure);
        value.map_or_else(String::new, |value| format!("{} {value}", measure.flag()))
    };
    measures.iter().map(flag).collect::<Vec<_>>().join(between)
}

/// Rounds up: bytes to one decimal, multiply-accumulates to a whole number.
fn rounded_up(measure: Measure, value: f64) -> f64 {
    match measure {
        Measure::Loss | Measure::Macs => value.ceil(),
        Measure::Bytes => (10.0 * value).ceil() / 10.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_rounded_up_so_that_the_setting_keeps_them() {
        assert_eq!(rounded_up(Measure::Bytes, 83.12), 83.2);
        assert_eq!(rounded_up(Measure::Bytes, 40.0), 40.0);
        assert_eq!(rounded_up(Measure::Macs, 1234.5), 1235.0);
    }
}
