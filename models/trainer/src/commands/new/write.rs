//! The texts of spec and recipe, with a reason for each key.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use headwater_calibration::number_file::write_whole;

use super::super::target::{Asked, Key};
use super::super::{Failure, usage};
use super::choose::{Blocks, Changes, Length, changes, cloud_blocks, device_blocks, sent_channels, wrong};
use super::look::Look;

/// First line of both files. It names no folder: a run is known by the text of its spec, and one folder has many names.
const ABOUT: &str = "Chosen by `headwater-train new`. Edit what you know better.";

/// Text of the spec; fails on a target that no network of the rules keeps.
pub(super) fn spec_text(look: &Look, name: &str, asked: &Asked) -> Result<String, String> {
    let (slots, channels, view @ [height, width]) =
        (look.slots, look.shape.channels, [look.shape.height, look.shape.width]);
    // A JSON string is a TOML string too.
    let labels: Vec<String> = look.labels.iter().map(|label| serde_json::json!(label).to_string()).collect();
    let Blocks { blocks, why, map } = device_blocks(view);
    let (cloud, cloud_why) = cloud_blocks(view);
    let sent = sent_channels(labels.len(), map, asked)?;
    let sent = if sent == map[0] {
        String::new()
    } else {
        format!(
            "sent_channels = {sent}  # as many as bytes allow where four samples in ten need their map; the head reads all\n"
        )
    };
    let (configuration, local, aggregation) = if slots == 1 {
        (
            "\"b\"  # one camera: the device answers what it is sure of, the cloud the rest",
            "",
            "\"mp\"  # one map goes in as it is",
        )
    } else {
        (
            "\"c\"  # several cameras: the aggregator answers from their scores, the cloud from their maps",
            "[local]\naggregation = \"ap\"  # mean of the scores of the cameras that see the sample\n\n",
            "\"cc\"  # all maps side by side, with the mask of who sees the sample",
        )
    };
    let lines = |blocks: &[String]| blocks.join(",\n    ");
    Ok(format!(
        r#"# {ABOUT}

[network]
name = "{name}"  # also the name of the run folder
configuration = {configuration}
# The classes of the data; without this line they are taken from it.
labels = [{labels}]

[device]
count = {slots}  # cameras in the data, each with its own weights
# Channels, rows, columns: {view_why}.
input = [{channels}, {height}, {width}]
# Binary blocks: {why}.
blocks = [
    {blocks},
]
head = {{ kind = "fc", binary = true }}  # with binary blocks: runs on bits on the device
{sent}
{local}[cloud]
aggregation = {aggregation}
# Float blocks: {cloud_why}.
blocks = [
    {cloud},
]

[wire]
scores = "4_bits"  # half a byte a class
features = "coded"  # entropy-coded without loss, fewer bytes than plain bits
"#,
        labels = labels.join(", "),
        view_why = view_why(look),
        blocks = lines(&blocks),
        cloud = lines(&cloud),
    ))
}

fn view_why(look: &Look) -> String {
    let grey = if look.is_grey && look.shape.channels == 1 { "grey as all images, " } else { "" };
    let of_images = look.sizes.map(|sizes| sizes.median);
    match of_images.filter(|median| *median != [look.shape.height, look.shape.width]) {
        Some([height, width]) => format!(
            "{grey}images of {height}x{width} made smaller; take larger views where a part would have fewer than 4 pixels, at the price of time"
        ),
        None => format!("{grey}the size of the images"),
    }
}

/// Text of the recipe.
pub(super) fn recipe_text(look: &Look, length: Length, asked: &Asked) -> String {
    let Length { batch, epochs, folds, .. } = length;
    let Changes { failout, shift, affine, exposure, erase } = changes(look);
    let steps = (epochs as usize * look.samples[0]).div_ceil(batch);
    let loss_points = asked.of(Key::Loss).unwrap_or(0.5);
    let wrong = wrong(look, asked).map_or_else(String::new, |percent| {
        format!("wrong = {percent:?}  # percent of the answers given; less sure samples are undecided, as photos of nothing should be\n")
    });
    let folds_why = match folds {
        0 => "thresholds come from the validation part",
        _ => {
            "thresholds come from networks trained without each fold, as validation is too small; 0 is several times as fast"
        }
    };
    format!(
        r#"# {ABOUT}

epochs = {epochs}  # about {steps} steps: steps count, however few the photos are
batch = {batch}  # samples of a step: small for few photos, so that there are many steps
workers = 2  # threads; their number changes the weights, so it is not that of this machine
seed = 1  # another seed shows how much of a difference is chance

[optimiser]
learning_rate = 2e-3  # calm for binary blocks; lower if the loss jumps
warm_up = 0.05  # share of the steps: a short run needs its steps

[augment]
failout = {failout:?}  # share of cameras left out in training, so that one may fail; a single one never is
shift = {shift}  # pixels; 0 if things always lie at the same pixel
affine = {affine:?}  # turned, stretched and sheared; 0 if angles or sizes tell classes apart
flip = 0.5  # mirrored; set flip = 0 if left and right mean different classes
exposure = {exposure:?}  # brighter and darker; 0 if brightness tells classes apart
erase = {erase:?}  # share of views with a grey rectangle, so that no single place decides; 0 where parts are tiny
erase_share = 0.2  # largest share of a view under it

[exit]
loss_points = {loss_points:?}  # points that early exits may lose against the cloud
folds = {folds}  # {folds_why}
{wrong}
[checkpoint]
export = "best"  # the latest epoch that is as good as the best on validation, as few photos are learnt by heart
"#
    )
}

/// Makes the folder and writes both files; fails without writing if one of them exists, since that file may be edited.
pub(super) fn write(folder: &Path, files: [(&str, &str); 2]) -> Result<[PathBuf; 2], Failure> {
    let paths = files.map(|(name, _)| folder.join(name));
    if let Some(file) = paths.iter().find(|file| file.symlink_metadata().is_ok()) {
        return usage(format!(
            "{}: expected no file, found one, which may be edited; remove it, or give another folder by --out",
            file.display()
        ));
    }
    fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    for (file, (_, text)) in paths.iter().zip(files) {
        write_whole(file, text.as_bytes()).with_context(|| format!("writing {}", file.display()))?;
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_file_is_written_where_one_may_be_edited() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("new/deep");
        let files = [("spec.toml", "a = 1\n"), ("recipe.toml", "b = 2\n")];
        assert!(write(&out, files).is_ok());
        fs::write(out.join("recipe.toml"), "b = 3\n").unwrap();
        fs::remove_file(out.join("spec.toml")).unwrap();
        let said = write(&out, files).map(|_| ()).unwrap_err().error.to_string();
        assert!(said.contains("recipe.toml: expected no file") && !out.join("spec.toml").exists(), "{said}");
        assert_eq!(fs::read_to_string(out.join("recipe.toml")).unwrap(), "b = 3\n");
    }
}
