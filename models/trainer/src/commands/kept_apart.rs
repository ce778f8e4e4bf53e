//! Checks that a network was not trained on the samples on which it is measured.

use std::path::Path;

use headwater_inference::bundle::Bundle;

use super::dataset::Dataset;

/// A warning if the network was trained on other data than `dataset`, which may contain some samples of `dataset`; `None` if it was trained on
/// the same data, or if the bundle does not name its data.
pub(crate) fn learnt_samples_warning(bundle: &Bundle, file: &Path, dataset: &Dataset) -> Option<String> {
    let trained_on = trained_on(bundle).filter(|trained_on| !dataset.has_samples_of(trained_on))?;
    Some(format!(
        "{} was trained on {trained_on}; samples of {} may be among those that it has learnt",
        file.display(),
        dataset.identity()
    ))
}

/// The reason for which the weights of a network may have seen a calibration part of `samples` samples: the network has no training report, began
/// with the weights of a run that was not kept apart, or was trained on other data, or on the same data with no calibration part or one of another
/// size. `None` if no reason holds. With `is_stated`, the user states that the network has seen none of the samples, and neither other data nor
/// other first weights are a reason.
pub(crate) fn learnt_calibration_part(
    bundle: &Bundle,
    file: &Path,
    dataset: &Dataset,
    samples: usize,
    is_stated: bool,
) -> Option<String> {
    let kept_apart = bundle.report().and_then(|report| report["calibration_samples"].as_u64());
    // Training may have begun with the weights of a run that has learnt samples of other parts.
    let began_with_other_data =
        bundle.report().is_some_and(|report| report["run"]["init"]["kept_apart"] == false);
    let found = match trained_on(bundle) {
        Some(_) if !is_stated && began_with_other_data => {
            return Some(format!(
                "{}: expected weights that have learnt none of these samples, found a training that began with those of another run (--init); state \
                 --kept-apart where that run has not learnt them",
                file.display()
            ));
        }
        Some(data) if !dataset.has_samples_of(data) => {
            return (!is_stated).then(|| {
                format!(
                    "{}: expected a network that was trained on {}, found one that was trained on {data}: whether it has learnt these samples \
                     cannot be seen; add --kept-apart where it has not",
                    file.display(),
                    dataset.identity()
                )
            });
        }
        Some(_) if kept_apart == Some(samples as u64) => return None,
        Some(_) => "one that was trained before they were",
        None => "one without a training report",
    };
    Some(format!(
        "{}: expected a network that was trained with these {samples} calibration samples kept apart, found {found}: what its exits lose on \
         samples that it has learnt says nothing about new ones; train it again",
        file.display()
    ))
}

/// Name of the data that the network was trained on.
fn trained_on(bundle: &Bundle) -> Option<&str> {
    bundle.report().and_then(|report| report["run"]["data"].as_str())
}
