//! Specs that fit and specs that do not.

use super::*;

/// The shipped spec with `from` replaced by `to`.
#[track_caller]
fn changed(from: &str, to: &str) -> Result<Spec, SpecError> {
    let text = include_str!("../../networks/ddnn-c.toml");
    assert!(text.contains(from), "{from:?} is not in the shipped spec");
    Spec::parse(Path::new("ddnn-c.toml"), &text.replace(from, to))
}

#[track_caller]
fn refuses(from: &str, to: &str, message: &str) {
    let error = changed(from, to).expect_err("must be refused").to_string();
    assert_eq!(error, message);
}

#[test]
fn the_shipped_specs_fit() {
    let spec = changed("ddnn-c", "ddnn-c").unwrap();
    assert_eq!(spec.shapes.features.shape(), [8, 16, 16]);
    assert_eq!(spec.shapes.cloud_input, [54, 16, 16]);
    let published = include_str!("../../networks/ddnn-c-published.toml");
    let published = Spec::parse(Path::new("published"), published).unwrap();
    assert_eq!(published.shapes.features.shape(), [4, 16, 16]);
}

#[test]
fn zero_devices_are_refused_with_the_line() {
    refuses(
        "count = 6",
        "count = 0",
        "ddnn-c.toml:10: device.count: expected 1 to 32 device slots, found 0",
    );
}

#[test]
fn a_window_larger_than_its_map_is_refused_with_the_line() {
    refuses(
        "filters = 64, kernel = 3, stride = 2, pad = 1",
        "filters = 64, kernel = 11, stride = 2, pad = 1",
        "ddnn-c.toml:25: cloud block 3 (conv): expected a window of at most 10x10 (map 8x8, padding 1), found 11x11",
    );
}

#[test]
fn features_that_are_not_binary_are_refused_with_the_line() {
    refuses(
        r#"{ kind = "convp", filters = 8 }"#,
        r#"{ kind = "conv", filters = 8 }"#,
        "ddnn-c.toml:13: last device block: expected a block that ends in sign (convp), since features travel as bits, found conv",
    );
}

#[test]
fn a_cloud_that_does_not_end_in_the_classes_is_refused_with_the_line() {
    refuses(
        r#"{ kind = "fc" },"#,
        r#"{ kind = "fc", outputs = 7 },"#,
        "ddnn-c.toml:26: last cloud block: expected an fc block with 10 outputs (one a class) and no activation, found 7 outputs",
    );
}

#[test]
fn an_unknown_key_and_an_unknown_block_are_refused_with_the_line() {
    let error = changed("count = 6", "count = 6\ncuont = 7").unwrap_err().to_string();
    assert!(error.starts_with("ddnn-c.toml:11: ") && error.contains("cuont"), "{error}");
    let error = changed(r#"kind = "fc" }"#, r#"kind = "fcc" }"#).unwrap_err().to_string();
    assert!(error.contains("fcc"), "{error}");
    let error = changed("filters = 8", "filtres = 8").unwrap_err().to_string();
    assert!(error.contains("filtres"), "{error}");
}

#[test]
fn the_costs_follow_the_formula() {
    let spec = changed("ddnn-c", "ddnn-c").unwrap();
    let cost = spec.cost();
    assert_eq!((cost.link.scores, cost.link.features, cost.link.raw), (40, 256, 3072));
    assert_eq!(cost.device.macs, 27 * 8 * 32 * 32 + 2048 * 10);
    assert_eq!(cost.device.parameters, 27 * 8 + 2 * 8 + 2048 * 10 + 2 * 10);
    assert_eq!(cost.cloud.macs, 54 * 9 * 32 * 256 + 32 * 9 * 48 * 64 + 48 * 9 * 64 * 16 + 1024 * 10);
}
