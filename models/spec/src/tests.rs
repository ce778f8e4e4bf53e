//! Specs that are accepted and specs that are refused.

use headwater_inference::manifest::FeatureEncoding;

use super::*;

fn text_of(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../networks").join(name)).unwrap()
}

/// Parses a spec in `models/networks` with the first `from` replaced by `to`.
#[track_caller]
fn changed_in(name: &str, from: &str, to: &str) -> Result<Spec, FileError> {
    let text = text_of(name);
    assert!(text.contains(from), "{from:?} is not in {name}");
    Spec::parse(Path::new(name), &text.replacen(from, to, 1))
}

#[track_caller]
fn refuses_in(name: &str, from: &str, to: &str, message: &str) {
    let error = changed_in(name, from, to).expect_err("must be refused").to_string();
    assert_eq!(error, format!("{name}:{message}"));
}

#[track_caller]
fn changed(from: &str, to: &str) -> Result<Spec, FileError> {
    changed_in("ddnn-c.toml", from, to)
}

#[track_caller]
fn refuses(from: &str, to: &str, message: &str) {
    refuses_in("ddnn-c.toml", from, to, message);
}

#[test]
fn the_shipped_specs_fit() {
    let spec = changed("ddnn-c", "ddnn-c").unwrap();
    assert_eq!(spec.shapes.features.shape(), [8, 16, 16]);
    assert_eq!(spec.shapes.cloud_input, [54, 16, 16]);
    let published = changed_in("ddnn-c-published.toml", "name", "name").unwrap();
    assert_eq!(published.shapes.features.shape(), [4, 16, 16]);
}

#[test]
fn regions_and_fit_stand_in_the_manifest_only_where_a_spec_has_them() {
    let preprocessing =
        |spec: &Spec| serde_json::to_value(manifest(spec, vec![0.1; 10]).preprocessing).unwrap();
    let plain = changed("ddnn-c", "ddnn-c").unwrap();
    let expected = serde_json::json!({ "channels": 3, "height": 32, "width": 32, "scale": "unit" });
    assert_eq!(preprocessing(&plain), expected);
    let regions = ["\"0%,0%,50%,100%\""; 6].join(", ");
    let framed = format!("count = 6\nfit = \"letterbox\"\nregions = [{regions}]");
    let found = preprocessing(&changed("count = 6", &framed).unwrap());
    assert_eq!(
        (found["fit"].as_str(), found["regions"][5].as_str()),
        (Some("letterbox"), Some("0%,0%,50%,100%"))
    );
}

#[test]
fn regions_that_are_none_or_not_one_for_each_slot_are_refused_with_the_line() {
    let one = "count = 6\nregions = [\"0,0,9,9\"]";
    refuses("count = 6", one, "11: device.regions: expected a region for each of 6 device slots, found 1");
    let error = changed("count = 6", "count = 6\nregions = [\"1,2\"]").unwrap_err().to_string();
    assert!(error.contains(":11:") && error.contains("\"x,y,w,h\" in pixels or in percent"), "{error}");
    let error = changed("count = 6", "count = 6\nfit = \"zoom\"").unwrap_err().to_string();
    assert!(error.contains("letterbox"), "{error}");
}

/// A spec file with `from` replaced by `to`.
fn file_of(from: &str, to: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("own.toml");
    std::fs::write(&file, text_of("ddnn-b.toml").replace(from, to)).unwrap();
    (folder, file)
}

const LABELS: &str = "labels = [\"t-shirt/top\", \"trouser\", \"pullover\", \"dress\", \"coat\", \"sandal\", \"shirt\", \"sneaker\", \"bag\", \"ankle boot\"]\n";

#[test]
fn labels_that_a_spec_leaves_out_are_those_of_the_data_and_stand_in_its_text() {
    let (_folder, file) = file_of(LABELS, "");
    let error = Spec::read(&file).unwrap_err().to_string();
    assert!(error.contains("network.labels: expected class names, found none"), "{error}");
    let Unlabelled { view, slots } = Spec::without_labels(&file).unwrap().unwrap();
    assert_eq!((view.channels, view.height, view.width, slots), (1, 28, 28, 1));
    let labels = ["a \"b\"".to_owned(), "c".to_owned(), "ö".to_owned()];
    let spec = Spec::read_with_labels(&file, &labels).unwrap();
    assert_eq!(spec.network.network.labels.get_ref(), &labels);
    assert_eq!(spec.shapes.cloud.last().unwrap().output, [3, 1, 1]);
    let again = Spec::parse(Path::new("again"), &spec.text).unwrap();
    assert_eq!((again.network.network.labels.get_ref(), &again.shapes), (&labels.to_vec(), &spec.shapes));
}

#[test]
fn labels_stand_in_a_text_that_has_its_table_in_another_form() {
    let text = text_of("ddnn-b.toml").replace(LABELS, "");
    let lines = "[network]\nname = \"ddnn-b\"\nconfiguration = \"b\"\n";
    assert!(text.contains(lines));
    let labels = ["one".to_owned(), "other".to_owned()];
    let (folder, header) = (tempfile::tempdir().unwrap(), "name = \"ddnn-b\", configuration = \"b\"");
    for (before, table) in [
        ("", "[ network ]\nname = \"ddnn-b\"\nconfiguration = \"b\"  # decides alone\n".to_owned()),
        ("", "[network] # a comment\nconfiguration = \"b\"\nname = \"ddnn-b\"\n".to_owned()),
        (&*format!("network = {{ {header} }}\n"), String::new()),
        ("network.configuration = \"b\"\nnetwork.name = \"ddnn-b\"\n", String::new()),
    ] {
        let file = folder.path().join("own.toml");
        std::fs::write(&file, format!("{before}{}", text.replace(lines, &table))).unwrap();
        let spec = Spec::read_with_labels(&file, &labels).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(spec.network.network.labels.get_ref(), &labels, "{}", spec.text);
    }
}

#[test]
fn labels_of_a_spec_stay_whatever_the_data_has() {
    let (_folder, file) = file_of("ddnn-b", "ddnn-b");
    assert_eq!(Spec::without_labels(&file).unwrap(), None);
    let (spec, read) = (
        Spec::read_with_labels(&file, &["a".to_owned(), "b".to_owned()]).unwrap(),
        Spec::read(&file).unwrap(),
    );
    assert_eq!((spec.network.classes(), spec.text), (10, read.text));
    let (_folder, file) = file_of(LABELS, "labels = []\n");
    let error = Spec::read_with_labels(&file, &["a".to_owned(), "b".to_owned()]).unwrap_err().to_string();
    assert!(error.contains("network.labels: expected at least 2 labels, found 0"), "{error}");
}

#[test]
fn a_misfit_in_a_spec_without_labels_is_named_with_the_line_of_the_file() {
    let (_folder, file) = file_of(LABELS, "");
    let text = std::fs::read_to_string(&file).unwrap().replace("count = 1", "count = 2");
    std::fs::write(&file, &text).unwrap();
    let line = 1 + text.lines().position(|line| line == "count = 2").unwrap();
    let error = Spec::read_with_labels(&file, &["a".to_owned(), "b".to_owned()]).unwrap_err().to_string();
    assert!(error.contains(&format!("own.toml:{line}: device.count: expected 1 device slot")), "{error}");
}

#[test]
fn what_does_not_fit_is_refused_with_the_line() {
    refuses("count = 6", "count = 0", "10: device.count: expected 1 to 64 device slots, found 0");
    refuses(
        "filters = 64, kernel = 3",
        "filters = 64, kernel = 11",
        "25: cloud block 3 (conv): expected a window of at most 10x10 (map 8x8, padding 1), found 11x11",
    );
    refuses(
        "kind = \"convp\"",
        "kind = \"conv\"",
        "13: last device block: expected a block that ends in sign, such as convp, since features travel as bits, found conv",
    );
    refuses(
        r#"{ kind = "fc" },"#,
        r#"{ kind = "fc", outputs = 7 },"#,
        "26: last cloud block: expected an fc block with 10 outputs (one a class) and no activation, found 7 outputs",
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
    assert_eq!(cost.device.macs, 27 * 8 * 32 * 32 + 2048 * 10);
    assert_eq!(cost.device.parameters, 27 * 8 + 2 * 8 + 2048 * 10 + 2 * 10);
    assert_eq!(cost.cloud.macs, 54 * 9 * 32 * 256 + 32 * 9 * 48 * 64 + 48 * 9 * 64 * 16 + 1024 * 10);
}

#[test]
fn every_network_in_the_folder_fits() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../networks");
    // Specs for a user's own data leave the labels out.
    let labels = ["one".to_owned(), "other".to_owned()];
    let letter = |file: &Path| {
        let spec = Spec::read_with_labels(file, &labels).unwrap();
        spec.network.configuration().letter()
    };
    let mut letters: Vec<char> =
        std::fs::read_dir(folder).unwrap().map(|file| letter(&file.unwrap().path())).collect();
    letters.sort_unstable();
    letters.dedup();
    assert_eq!(letters, ['a', 'b', 'c', 'd', 'e', 'f']);
}

/// The words of a text that are numbers.
fn numbers(text: &str) -> Vec<String> {
    let words = text.split_whitespace().map(|word| word.trim_end_matches([',', '.', ';']).replace(',', ""));
    words.filter(|word| word.parse::<f64>().is_ok()).collect()
}

#[test]
fn specs_for_data_of_ones_own_have_the_costs_in_their_comments() {
    let labels = ["one", "other", "third"].map(str::to_owned);
    for name in ["one-camera", "one-camera-200", "six-cameras", "small-parts", "whole-objects"] {
        let file =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../networks").join(name).with_extension("toml");
        let [spec, of_three] =
            [&labels[..2], &labels[..]].map(|labels| Spec::read_with_labels(&file, labels).unwrap());
        let macs = spec.cost().device.macs;
        let macs_of_class = of_three.cost().device.macs - macs;
        let comments = spec.text.lines().map_while(|line| line.strip_prefix('#'));
        let comments = comments.collect::<String>();
        let (_, costs) = comments.split_once("evice: ").unwrap();
        let (written, map) = (numbers(costs), spec.shapes.features);
        let million = (macs - 2 * macs_of_class) as f64 / 1e6;
        let expected = [format!("{million:.1}"), macs_of_class.to_string(), map.elements().to_string()];
        assert_eq!(written[..3], expected, "{name}");
        assert_eq!(written.last(), Some(&map.packed_bytes().to_string()), "{name}");
        let blocks = spec.text.lines().filter(|line| line.contains("\"convp\""));
        for (line, block) in blocks.zip(&spec.shapes.device.as_ref().unwrap().blocks) {
            let written = numbers(line.split_once('#').unwrap().1);
            assert_eq!(written, block.output.map(|side| side.to_string()), "{name}: {line}");
        }
    }
}

#[test]
fn without_wire_the_encoding_is_that_of_the_last_device_block() {
    let encoding = |name| changed_in(name, "name", "name").unwrap().shapes.features.encoding;
    assert_eq!(encoding("ddnn-a.toml"), FeatureEncoding::Pixels);
    assert_eq!(encoding("ddnn-f.toml"), FeatureEncoding::Bits);
    let wire = "\n[wire]\nscores = \"f32\"\nfeatures = \"f32\"";
    assert_eq!(
        changed_in("b-lenet-b.toml", wire, "").unwrap().shapes.features.encoding,
        FeatureEncoding::F32
    );
}

#[test]
fn only_devices_with_a_section_have_blocks_and_a_head() {
    refuses_in(
        "ddnn-a.toml",
        "count = 6",
        "count = 6\nblocks = [{ kind = \"convp\", filters = 4 }]",
        "11: device.blocks: expected nothing, since devices send their views in configuration (a), found blocks",
    );
    refuses_in(
        "ddnn-a.toml",
        "count = 6",
        "count = 6\nhead = { kind = \"fc\" }",
        "11: device.head: expected nothing, since devices send their views in configuration (a), found a head",
    );
    refuses_in(
        "ddnn-a.toml",
        "configuration = \"a\"",
        "configuration = \"b\"",
        "10: device.count: expected 1 device slot in configuration (b), found 6",
    );
    refuses_in(
        "ddnn-b.toml",
        "head = {",
        "# {",
        "10: device.head: expected a block or a list of them, since devices run a section in configuration (b), found nothing",
    );
}

#[test]
fn tables_of_exits_are_required_exactly_where_the_configuration_has_the_exit() {
    refuses_in(
        "ddnn-e.toml",
        "[local]\naggregation = \"ap\" ",
        "#",
        "6: local: expected [local], since configuration (e) has the exit `local`, found none",
    );
    refuses_in(
        "ddnn-b.toml",
        "[cloud]",
        "[local]\naggregation = \"ap\"\n[cloud]",
        "18: local: expected no [local], since configuration (b) has no exit `local`, found [local]",
    );
    refuses_in(
        "ddnn-d.toml",
        "configuration = \"d\"",
        "configuration = \"b\"",
        "17: edge: expected no [edge], since configuration (b) has no exit `edge`, found [edge]",
    );
    refuses_in(
        "ddnn-b.toml",
        "configuration = \"b\"",
        "configuration = \"d\"",
        "6: edge: expected [edge], since configuration (d) has the exit `edge`, found none",
    );
}

#[test]
fn every_slot_belongs_to_one_edge() {
    let groups = "groups = [[0, 1, 2], [3, 4, 5]]";
    let refuses = |to: &str, message: &str| refuses_in("ddnn-f.toml", groups, to, message);
    let each = "each of the slots 0 to 5 in one group, rising, no group empty";
    for bad in [
        "[[0, 1, 2], [3, 4]]",
        "[[0, 1, 2], [2, 3, 4, 5]]",
        "[[0, 1, 2, 3, 4, 5], []]",
        "[[2, 1, 0], [3, 4, 5]]",
    ] {
        refuses(&format!("groups = {bad}"), &format!("19: edge.groups: expected {each}, found {bad}"));
    }
    refuses(
        "groups = [[0, 1, 2, 3, 4, 5]]",
        "19: edge.groups: expected two edges or more, found [[0, 1, 2, 3, 4, 5]]",
    );
    refuses(
        "#",
        "21: edge.groups: expected the slots of each edge, as in [[0, 1, 2], [3, 4, 5]], found nothing",
    );
    refuses_in(
        "ddnn-e.toml",
        "[edge] ",
        "[edge]\ngroups = [[0, 1], [2, 3, 4, 5]]\n#",
        "19: edge.groups: expected one edge, found [[0, 1], [2, 3, 4, 5]]",
    );
    refuses_in(
        "ddnn-e.toml",
        "[edge] ",
        "[edge]\nfusion = \"ap\"\n#",
        "19: edge.fusion: expected nothing, since there is one edge, found ap",
    );
}

#[test]
fn edges_with_different_numbers_of_slots_give_the_same_map() {
    let groups = "[[0, 1, 2], [3, 4, 5]]";
    let spec = changed_in("ddnn-f.toml", groups, "[[0, 5], [1, 2, 3, 4]]").unwrap();
    let inputs: Vec<_> = spec.shapes.edges.iter().map(|edge| edge.input).collect();
    assert_eq!(inputs, [[18, 16, 16], [36, 16, 16]]);
    assert_eq!(spec.shapes.cloud_input, [2 * 16 + 2, 8, 8]);
    let edges = spec.cost().edges;
    assert!(edges[0].parameters < edges[1].parameters && edges[0].macs < edges[1].macs);
    let text = "[[0, 5], [1, 2, 3, 4]]\nblocks = [{ kind = \"pool\" }]\nhead = { kind = \"fc\" }\naggregation = \"cc\"\n[cloud]";
    let whole = text_of("ddnn-f.toml");
    let (before, _) = whole.split_once(groups).unwrap();
    let (_, after) = whole.split_once("[cloud]").unwrap();
    let error = Spec::parse(Path::new("f"), &[before, text, after].concat()).unwrap_err().to_string();
    let expected = "f:20: edge.blocks: expected the same map from every edge, [18, 8, 8] as from the first, found [36, 8, 8]";
    assert!(error.starts_with(expected), "{error}");
}

#[test]
fn wire_features_must_be_the_encoding_of_the_last_device_block() {
    refuses(
        "features = \"coded\"",
        "features = \"f32\"",
        "31: wire.features: expected bits or coded, since the last device block ends in sign, found f32",
    );
    refuses_in(
        "b-lenet-b.toml",
        "features = \"f32\"",
        "features = \"pixels\"",
        "39: wire.features: expected f32, since the last device block gives floats, found pixels",
    );
    refuses(
        r#"{ kind = "convp", filters = 8 }"#,
        r#"{ kind = "fc", outputs = 9, activation = "sign" }"#,
        "13: last device block: expected a block that gives a map, such as convp, found fc",
    );
}

#[test]
fn a_misfit_in_a_head_or_after_an_fc_block_is_refused_with_the_line() {
    refuses_in(
        "b-lenet-b.toml",
        "filters = 10, kernel = 3, pad = 1",
        "filters = 10, kernel = 33, pad = 1",
        "21: device head block 1 (conv): expected a window of at most 17x17 (map 15x15, padding 1), found 33x33",
    );
    refuses_in(
        "b-lenet-b.toml",
        "    { kind = \"fc\" },",
        "    { kind = \"fc\", outputs = 12 },",
        "23: device.head: expected an fc block with 10 outputs (one a class) and no activation, found 12 outputs",
    );
    refuses_in(
        "b-lenet-b.toml",
        "{ kind = \"fc\", outputs = 84 },",
        "{ kind = \"fc\", outputs = 84 }, { kind = \"pool\" },",
        "33: cloud block 6 (pool): expected an fc block, as the one in front of it, found pool",
    );
    let error = changed_in("b-lenet-b.toml", "head = [", "head = [7,").unwrap_err().to_string();
    assert!(error.starts_with("b-lenet-b.toml:20: "), "{error}");
}

#[test]
fn branchynets_lenet_has_the_published_costs() {
    let cost = changed_in("b-lenet-b.toml", "b-lenet-b", "b-lenet-b").unwrap().cost();
    let (first, branch) = (25 * 5 * 30 * 30, 9 * 5 * 10 * 15 * 15 + 640 * 10);
    // The reference counts 0.220 M multiply-accumulates up to exit 1, and 1.140 M along the trunk.
    assert_eq!((cost.device.macs, first + branch), (220_150, 220_150));
    assert_eq!(first + cost.cloud.macs, 1_140_070);
    let d = changed_in("b-lenet-d.toml", "b-lenet-d", "b-lenet-d").unwrap().cost();
    assert_eq!(d.edges[0].macs + d.cloud.macs, cost.cloud.macs + 810 * 10);
}

#[test]
fn scores_and_maps_may_be_coded() {
    let spec = changed("ddnn-c", "ddnn-c").unwrap();
    assert_eq!((spec.network.scores(), spec.codes_features()), (ScoreEncoding::Bits4, true));
    assert_eq!(spec.shapes.features.encoding, FeatureEncoding::Bits);
    assert!(!changed("\"coded\"", "\"bits\"").unwrap().codes_features());
    let error = changed("4_bits", "5_bits").unwrap_err().to_string();
    assert!(error.contains("5_bits") && error.contains("4_bits"), "{error}");
}

#[test]
fn what_cannot_be_coded_is_named() {
    let refused = |name, from, to, words: &str| {
        let error = changed_in(name, from, to).expect_err("must be refused").to_string();
        assert!(error.contains(words), "{error}");
    };
    refused(
        "ddnn-a.toml",
        "[cloud]",
        "[wire]\nscores = \"4_bits\"\n[cloud]",
        "wire.scores: expected f32, since devices of configuration (a) have no scores, found 4 bits",
    );
    refused(
        "b-lenet-b.toml",
        "features = \"f32\"",
        "features = \"coded\"",
        "expected a block that ends in sign, such as convp, since features travel as bits",
    );
    // A map of 8 x 16 x 160 can be coded; a map of 8 x 320 x 320 has too many bits.
    let view = "input = [3, 32, 32]";
    assert!(changed(view, "input = [3, 32, 320]").unwrap().codes_features());
    refused(
        "ddnn-c.toml",
        view,
        "input = [3, 640, 640]",
        "wire.features: expected a map that can be coded, found shape of a coded map, bits: expected 1 to 262144, found 819200",
    );
}

/// The shipped spec with a pool behind its `convp` block.
#[track_caller]
fn pooled(pool: &str) -> Result<Spec, FileError> {
    let block = r#"{ kind = "convp", filters = 8 },"#;
    changed(block, &format!("{block} {{ kind = \"pool\", {pool} }},"))
}

#[test]
fn what_a_pool_makes_of_signs_is_not_coded() {
    for pool in ["size = 2", "global = true"] {
        let error = pooled(pool).unwrap_err().to_string();
        assert!(error.contains("expected a block that ends in sign, such as convp"), "{error}");
    }
}

#[test]
fn a_global_pool_covers_maps_of_any_sides_once() {
    let pool = PoolSpec {
        size: 2,
        stride: 2,
        pad: 0,
        global: true,
        average: false,
        activation: FloatActivation::None,
    };
    for (h, w) in (1..=32).flat_map(|h| (1..=32).map(move |w| (h, w))) {
        let window = pool.window([3, h, w]);
        for side in [h, w] {
            assert_eq!(
                (window.positions(side), window.inside(0, side)),
                (1, (window.pad, window.pad + side))
            );
        }
    }
    let error = pooled("global = true, size = 3").unwrap_err().to_string();
    assert!(error.contains("expected no size, stride or pad beside global"), "{error}");
    let view = "input = [3, 32, 32]";
    let wide = changed_in("cifar-10.toml", view, "input = [3, 300, 300]").unwrap();
    let text =
        wide.text.replace("{ kind = \"fc\" }", "{ kind = \"pool\", global = true }, { kind = \"fc\" }");
    assert_eq!(Spec::parse(Path::new("wide"), &text).unwrap().shapes.cloud[3].output, [128, 1, 1]);
    let text = text.replace("filters = 128, kernel = 3, stride = 2, pad = 1", "filters = 128");
    let error = Spec::parse(Path::new("wide"), &text).unwrap_err().to_string();
    assert!(error.contains("expected a map of at most 64x64 at a global pool"), "{error}");
}

#[test]
fn a_device_may_send_some_channels_of_the_map_that_its_head_reads() {
    let head = "head = { kind = \"fc\", binary = true }";
    let with = |sent: &str| changed(head, &format!("{head}\nsent_channels = {sent}"));
    let spec = with("3").unwrap();
    let device = spec.shapes.device.as_ref().unwrap();
    assert_eq!((device.head[0].input, spec.shapes.features.shape()), ([8, 16, 16], [3, 16, 16]));
    assert_eq!(spec.shapes.cloud_input, [6 * 4, 16, 16]);
    assert_eq!(spec.cost().device, changed("ddnn-c", "ddnn-c").unwrap().cost().device);
    for wrong in ["0", "9"] {
        assert_eq!(
            with(wrong).expect_err("must be refused").to_string(),
            format!(
                "ddnn-c.toml:16: device.sent_channels: expected 1 to 8, the channels of the last device block, found {wrong}"
            )
        );
    }
    let error = changed_in("ddnn-a.toml", "[cloud]", "sent_channels = 1\n[cloud]").unwrap_err().to_string();
    assert!(
        error.contains("device.sent_channels: expected nothing, since devices send their views"),
        "{error}"
    );
}

#[test]
fn the_memory_of_training_grows_with_batch_workers_and_filters_and_does_not_overflow() {
    let spec = changed("ddnn-c", "ddnn-c").unwrap();
    let parameters: u64 = spec.section_costs().map(|cost| cost.parameters).sum();
    // Each of six devices has 3 x 32 x 32 pixels, 8 x 32 x 32 values before the pooling, 8 x 16 x 16 after it, and 10 scores. The layers of
    // the cloud have 32 x 16 x 16, 48 x 8 x 8, 64 x 4 x 4 and 10 values.
    let of_sample = 6 * (8 * (3072 + 8192) + 24 * (2048 + 10)) + 24 * (8192 + 3072 + 1024 + 10);
    assert_eq!(spec.training_bytes(1, 1), 28 * parameters + of_sample);
    assert_eq!(spec.training_bytes(1000, 3), 52 * parameters + 1000 * of_sample);
    assert_eq!(spec.training_bytes(usize::MAX, 1), u64::MAX);
    assert_eq!(spec.training_bytes(1, usize::MAX), u64::MAX);
    let wide = changed("filters = 64", "filters = 1000000").unwrap();
    assert!(wide.training_bytes(128, 2) > 60 << 30, "{}", wide.training_bytes(128, 2));
}
