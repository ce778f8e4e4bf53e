//! The end of `train` and `export`: policy, figures, wrong answers, and the files of a run folder.

use anyhow::Context;
use headwater_calibration::by_class::ClassReport;
use headwater_calibration::data::Parts;
use headwater_calibration::part_logits::EvaluatedPart;
use headwater_samples::Part;
use headwater_training::checkpoint::Checkpoint;
use headwater_training::experiment::Experiment;
use headwater_training::run::{EvaluationParts, Finished, RunFolder, finish};

use super::output::print_error;
use super::{Failure, part_report};

/// A run with its policy, measured and exported.
pub(crate) struct Measured {
    /// The bundle with its figures. `exported.report` also has figures by class and wrong answers with file names; the report inside the bundle
    /// has neither.
    pub(crate) finished: Finished,
    /// The answers to the test part by class.
    test: ClassReport,
}

impl Measured {
    /// Chooses the policy, measures, and makes the bundle.
    pub(crate) fn of(
        experiment: &Experiment,
        checkpoint: &Checkpoint,
        parts: &EvaluationParts,
        data: &Parts,
    ) -> Result<Self, Failure> {
        let mut finished = finish(experiment, checkpoint, parts)?;
        data.check_read()?;
        let (policy, labels) = (&finished.policy, data.data.labels());
        let by_class = |of: &EvaluatedPart, part| {
            let report = ClassReport::of(&of.logits, &of.samples, &parts.class_prior, policy, &labels);
            report.with_files(data, part)
        };
        let validation = by_class(&parts.validation, Part::Validation);
        let test = by_class(&parts.test, Part::Test);
        for (part, by_class) in [("validation", &validation), ("test", &test)] {
            finished.exported.report[part]["by_class"] = serde_json::json!(by_class);
        }
        Ok(Self { finished, test })
    }

    /// Writes `bundle.hwb` and `report.json` into a run folder.
    pub(crate) fn write(self, folder: &RunFolder) -> Result<Self, Failure> {
        let exported = &self.finished.exported;
        folder.write("bundle.hwb", &exported.bytes).context("writing bundle.hwb")?;
        let report = serde_json::to_vec_pretty(&exported.report).context("writing report.json")?;
        folder.write("report.json", &report).context("writing report.json")?;
        Ok(self)
    }

    /// The figures of the validation and the test part as text, the promise and, without a promise, the origin of the thresholds.
    pub(crate) fn figures(&self) -> String {
        let Finished { policy, reports, .. } = &self.finished;
        let parts = [("validation", &reports.validation), ("test", &reports.test)];
        let mut text: String = parts.map(|(name, part)| part_report::lines(name, part)).concat();
        text += &format!("{}\n", policy.promise_line());
        if policy.promises.is_empty() {
            text += &format!("{}\n", reports.thresholds);
        }
        text + &part_report::by_class("test", &self.test)
    }

    /// Prints the warnings, after everything else.
    pub(crate) fn print_warnings(&self) {
        let warnings = self.finished.warnings.iter();
        warnings.for_each(|warning| print_error(&format!("warning: {}", warning.text)));
    }
}
