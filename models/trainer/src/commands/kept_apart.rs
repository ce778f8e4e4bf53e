//! Whether the weights of a network may have seen samples that are to judge it.

use std::path::Path;

use headwater_inference::bundle::Bundle;

use super::dataset::Dataset;

/// Why figures on this data may say nothing of new samples: the network was trained on other data, which may hold the same ones.
pub(crate) fn learnt_samples_warning(bundle: &Bundle, file: &Path, dataset: &Dataset) -> Option<String> {
    let trained_on = bundle.report().and_then(|report| report["run"]["data"].as_str());
    let trained_on = trained_on.filter(|trained_on| !dataset.has_samples_of(trained_on))?;
    Some(format!(
        "{} was trained on {trained_on}; samples of {} may be among those that it has learnt",
        file.display(),
        dataset.identity()
    ))
}

/// A network, and the data whose calibration part it must not have learnt.
pub(crate) struct KeptApart<'a> {
    pub(crate) bundle: &'a Bundle,
    /// File of the bundle, for messages.
    pub(crate) file: &'a Path,
    pub(crate) dataset: &'a Dataset,
    /// Whether the user states that the network has learnt none of the calibration samples.
    pub(crate) is_stated: bool,
}

impl KeptApart<'_> {
    /// Refuses a network whose weights may have seen the calibration part of so many samples: one that was trained on the same data when it had
    /// no such part or another one, and one that was trained on other data, unless its user states that these are other samples.
    pub(crate) fn check(&self, samples: usize) -> Result<(), anyhow::Error> {
        let Self { bundle, file, dataset, is_stated } = self;
        let report = bundle.report();
        let trained_on = report.and_then(|report| report["run"]["data"].as_str());
        let kept_apart = report.and_then(|report| report["calibration_samples"].as_u64());
        let refuse = |found: &str| {
            Err(anyhow::anyhow!(
                "{}: expected a network that was trained with these {samples} calibration samples kept apart, found {found}: what its exits lose on \
                 samples that it has learnt says nothing about new ones; train it again",
                file.display()
            ))
        };
        match trained_on {
            None => refuse("one without a training report"),
            Some(data) if !dataset.has_samples_of(data) => match is_stated {
                true => Ok(()),
                false => Err(anyhow::anyhow!(
                    "{}: expected a network that was trained on {}, found one that was trained on {data}: whether it has learnt these samples cannot be \
                     seen; add --kept-apart where it has not",
                    file.display(),
                    dataset.identity()
                )),
            },
            Some(_) if kept_apart != Some(samples as u64) => refuse("one that was trained before they were"),
            Some(_) => Ok(()),
        }
    }
}
