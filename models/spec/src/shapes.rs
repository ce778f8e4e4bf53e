//! Shapes of every section, or the first contradiction in the spec.

use headwater_inference::manifest::{Aggregation, Configuration, FeatureEncoding, FeatureMap};
use headwater_protocol::{Exit, ScoreEncoding, Slot};
use toml::Spanned;

use super::fit::{LayerShape, Misfit, chain, ends_in_classes, expect};
use super::{Activation, BlockSpec, EdgeSpec, FcSpec, HeadSpec, NetworkSpec, WireFeatures};

/// Largest number of values in the joined maps of a sample; bundles have the same limit.
const MAX_JOINED: usize = 1 << 24;

/// All shapes of a network.
#[derive(Clone, Debug, PartialEq)]
pub struct Shapes {
    /// The section of each device; `None` in configuration (a), where devices have no section.
    pub device: Option<SectionShapes>,
    /// The map that a device sends: its features, or its view.
    pub features: FeatureMap,
    /// The layer of the section `local`; `None` unless the scores of the devices are concatenated.
    pub local: Option<LayerShape>,
    /// Slots of each edge; empty without edges.
    pub groups: Vec<Vec<usize>>,
    /// The section of each edge, in the order of `groups`; empty without edges.
    pub edges: Vec<SectionShapes>,
    /// The layer of the section `edge`; `None` unless the scores of several edges are concatenated.
    pub edge: Option<LayerShape>,
    /// Input of the cloud section.
    pub cloud_input: [usize; 3],
    /// Blocks of the cloud.
    pub cloud: Vec<LayerShape>,
}

/// Shapes of a section that gives scores and a map for the next tier.
#[derive(Clone, Debug, PartialEq)]
pub struct SectionShapes {
    /// Shape of the input.
    pub input: [usize; 3],
    /// Blocks up to the map that the head reads.
    pub blocks: Vec<LayerShape>,
    /// Blocks from that map to the scores.
    pub head: Vec<LayerShape>,
    /// The map for the next tier: all channels of the map that the head reads, or the first channels.
    pub features: FeatureMap,
}

impl Shapes {
    pub(super) fn of(spec: &NetworkSpec) -> Result<Self, Misfit> {
        check_header(spec)?;
        let (slots, classes) = (spec.slots(), spec.classes());
        let device = device(spec)?;
        let features = device.as_ref().map_or(map_of(spec.view(), FeatureEncoding::Pixels), |it| it.features);
        check_wire(spec, &features)?;
        table_of_exit(spec, "local", spec.local.as_ref(), Exit::LOCAL)?;
        let local = (spec.local_aggregation() == Aggregation::Cc).then(|| concatenated(slots, classes));
        let groups = groups(spec)?;
        let edges = match &spec.edge {
            Some(edge) => edges(edge.get_ref(), &groups, &features, classes)?,
            None => Vec::new(),
        };
        let edge = (spec.fusion() == Aggregation::Cc).then(|| concatenated(groups.len(), classes));

        let blocks = &spec.cloud.blocks;
        let (sources, map) = edges.first().map_or((slots, features), |edge| (edges.len(), edge.features));
        let cloud_input = joined("cloud", blocks, spec.cloud.aggregation, sources, &map)?;
        let cloud = chain("cloud", blocks.get_ref(), cloud_input, classes)?;
        let last = blocks.get_ref().last();
        let last =
            last.ok_or_else(|| Misfit::new(blocks.span(), "cloud.blocks", "at least one fc block", "none"))?;
        ends_in_classes("last cloud block", last, classes)?;
        Ok(Self { device, features, local, groups, edges, edge, cloud_input, cloud })
    }
}

fn check_header(spec: &NetworkSpec) -> Result<(), Misfit> {
    let (labels, classes) = (&spec.network.labels, spec.classes());
    expect(labels, (2..=65_535).contains(&classes), "network.labels", "at least 2 labels", || {
        classes.to_string()
    })?;
    let (configuration, count, slots) = (spec.configuration(), &spec.device.count, spec.slots());
    let found = || slots.to_string();
    if configuration.has(Exit::DEVICE) {
        let expected = format!("1 device slot in configuration ({})", configuration.letter());
        expect(count, slots == 1, "device.count", &expected, found)?;
    }
    let range = format!("1 to {} device slots", Slot::MAX);
    expect(count, (1..=Slot::MAX).contains(&slots), "device.count", &range, found)?;
    if let Some(regions) = &spec.device.regions {
        let (expected, found) =
            (format!("a region for each of {slots} device slots"), regions.get_ref().len());
        expect(regions, found == slots, "device.regions", &expected, || found.to_string())?;
    }
    let input = spec.view();
    let fits = matches!(input[0], 1 | 3) && input.iter().all(|n| (1..=4096).contains(n));
    expect(&spec.device.input, fits, "device.input", "[1 or 3, height, width], each side 1 to 4096", || {
        format!("{input:?}")
    })
}

/// The section of a device; `None` if the configuration has no device section.
fn device(spec: &NetworkSpec) -> Result<Option<SectionShapes>, Misfit> {
    let configuration = spec.configuration();
    if !configuration.has_device_section() {
        let expected = "nothing, since devices send their views in configuration (a)";
        let refused = |at, key: &str, found: String| Misfit::new(at, key, expected, found);
        let device = &spec.device;
        let blocks = device.blocks.as_ref().map(|of| refused(of.span(), "device.blocks", "blocks".into()));
        let head = device.head.as_ref().map(|of| refused(of.span(), "device.head", "a head".into()));
        let sent = device.sent_channels.as_ref();
        let sent = sent.map(|of| refused(of.span(), "device.sent_channels", of.get_ref().to_string()));
        return blocks.or(head).or(sent).map_or(Ok(None), Err);
    }
    let letter = configuration.letter();
    let missing = |key: &str, expected: &str| {
        let expected = format!("{expected}, since devices run a section in configuration ({letter})");
        Misfit::new(spec.device.count.span(), key, expected, "nothing")
    };
    let blocks = spec.device.blocks.as_ref().ok_or_else(|| missing("device.blocks", "a list of blocks"))?;
    let head =
        spec.device.head.as_ref().ok_or_else(|| missing("device.head", "a block or a list of them"))?;
    let mut section = section("device", blocks, head, spec.view(), spec.classes())?;
    if let Some(sent) = &spec.device.sent_channels {
        let (channels, all) = (*sent.get_ref(), section.features.channels as usize);
        let expected = format!("1 to {all}, the channels of the last device block");
        expect(sent, (1..=all).contains(&channels), "device.sent_channels", &expected, || {
            channels.to_string()
        })?;
        section.features.channels = channels as u32;
    }
    Ok(Some(section))
}

fn section(
    name: &str,
    blocks: &Spanned<Vec<Spanned<BlockSpec>>>,
    head: &Spanned<HeadSpec>,
    input: [usize; 3],
    classes: usize,
) -> Result<SectionShapes, Misfit> {
    let fitted = chain(name, blocks.get_ref(), input, classes)?;
    let (Some(last), Some(shape)) = (blocks.get_ref().last(), fitted.last()) else {
        return Err(Misfit::new(blocks.span(), format!("{name}.blocks"), "at least one block", "none"));
    };
    if last.get_ref().kind().is_flat() {
        let (expected, found) = ("a block that gives a map, such as convp", last.get_ref().name());
        return Err(Misfit::new(last.span(), format!("last {name} block"), expected, found));
    }
    let output = shape.output;
    let is_bits = last.get_ref().kind().ends_in_sign();
    let features = map_of(output, if is_bits { FeatureEncoding::Bits } else { FeatureEncoding::F32 });
    let what = format!("{name}.head");
    let head_blocks = HeadSpec::blocks(head);
    let Some(last) = head_blocks.last() else {
        return Err(Misfit::new(head.span(), what, "at least one fc block", "none"));
    };
    // Messages call a single block by the name of the head, and number several blocks.
    let head_name = if head_blocks.len() == 1 { what.clone() } else { format!("{name} head") };
    let head = chain(&head_name, &head_blocks, output, classes)?;
    ends_in_classes(&what, last, classes)?;
    Ok(SectionShapes { input, blocks: fitted, head, features })
}

/// Checks that `[wire]` codes scores only if devices have scores, and encodes features as the devices give them.
fn check_wire(spec: &NetworkSpec, features: &FeatureMap) -> Result<(), Misfit> {
    let has_scores = spec.configuration().has_device_section();
    if let Some(scores) =
        spec.wire.scores.as_ref().filter(|_| !has_scores && spec.scores() != ScoreEncoding::F32)
    {
        let expected = "f32, since devices of configuration (a) have no scores";
        let found = format!("{} bits", scores.get_ref().bits());
        return Err(Misfit::new(scores.span(), "wire.scores", expected, found));
    }
    let Some(written) = &spec.wire.features else { return Ok(()) };
    let (found, fits) = (*written.get_ref(), features.encoding);
    let element = match found {
        WireFeatures::Bits | WireFeatures::Coded => FeatureEncoding::Bits,
        WireFeatures::Pixels => FeatureEncoding::Pixels,
        WireFeatures::F32 => FeatureEncoding::F32,
    };
    if element == fits {
        return match features.coder_shape() {
            Err(unsupported) if found == WireFeatures::Coded => Err(Misfit::new(
                written.span(),
                "wire.features",
                "a map that can be coded",
                unsupported.to_string(),
            )),
            _ => Ok(()),
        };
    }
    let last = spec.device.blocks.as_ref().and_then(|blocks| blocks.get_ref().last());
    if let (FeatureEncoding::Bits, Some(last)) = (element, last) {
        let expected = "a block that ends in sign, such as convp, since features travel as bits";
        return Err(Misfit::new(last.span(), "last device block", expected, last.get_ref().name()));
    }
    let (name, why) = match fits {
        FeatureEncoding::Bits => ("bits or coded", "the last device block ends in sign"),
        FeatureEncoding::Pixels => ("pixels", "devices send their views in configuration (a)"),
        FeatureEncoding::F32 => ("f32", "the last device block gives floats"),
    };
    let found = format!("{found:?}").to_lowercase();
    Err(Misfit::new(written.span(), "wire.features", format!("{name}, since {why}"), found))
}

/// Slots of each edge, each slot in exactly one edge; empty without edges.
fn groups(spec: &NetworkSpec) -> Result<Vec<Vec<usize>>, Misfit> {
    table_of_exit(spec, "edge", spec.edge.as_ref(), Exit::EDGE)?;
    let Some(edge) = spec.edge.as_ref().map(Spanned::get_ref) else { return Ok(Vec::new()) };
    let (slots, several) = (spec.slots(), spec.configuration() == Configuration::F);
    if let (Some(fusion), false) = (&edge.fusion, several) {
        let expected = "nothing, since there is one edge";
        return Err(Misfit::new(
            fusion.span(),
            "edge.fusion",
            expected,
            format!("{:?}", fusion.get_ref()).to_lowercase(),
        ));
    }
    let Some(groups) = &edge.groups else {
        if several {
            let expected = "the slots of each edge, as in [[0, 1, 2], [3, 4, 5]]";
            return Err(Misfit::new(edge.blocks.span(), "edge.groups", expected, "nothing"));
        }
        return Ok(vec![(0..slots).collect()]);
    };
    let given = groups.get_ref();
    let found = || format!("{given:?}");
    let (fits, expected) =
        if several { (given.len() >= 2, "two edges or more") } else { (given.len() == 1, "one edge") };
    expect(groups, fits, "edge.groups", expected, found)?;
    let mut all: Vec<usize> = given.iter().flatten().copied().collect();
    all.sort_unstable();
    let fits =
        all.into_iter().eq(0..slots) && given.iter().all(|group| !group.is_empty() && group.is_sorted());
    let expected = format!("each of the slots 0 to {} in one group, rising, no group empty", slots - 1);
    expect(groups, fits, "edge.groups", &expected, found)?;
    Ok(given.clone())
}

/// The section of each edge; an error if the maps of the edges differ in shape.
fn edges(
    edge: &EdgeSpec,
    groups: &[Vec<usize>],
    features: &FeatureMap,
    classes: usize,
) -> Result<Vec<SectionShapes>, Misfit> {
    let edges = groups.iter().map(|group| {
        let input = joined("edge", &edge.blocks, edge.aggregation, group.len(), features)?;
        section("edge", &edge.blocks, &edge.head, input, classes)
    });
    let edges = edges.collect::<Result<Vec<_>, _>>()?;
    if let Some(other) = edges.iter().find(|other| other.features != edges[0].features) {
        let expected =
            format!("the same map from every edge, {:?} as from the first", edges[0].features.shape());
        let found = format!("{:?}; begin with a convp or conv block", other.features.shape());
        return Err(Misfit::new(edge.blocks.span(), "edge.blocks", expected, found));
    }
    Ok(edges)
}

/// Checks that the table of an exit is present if, and only if, the configuration has the exit.
fn table_of_exit<T>(
    spec: &NetworkSpec,
    name: &str,
    table: Option<&Spanned<T>>,
    exit: Exit,
) -> Result<(), Misfit> {
    let configuration = &spec.network.configuration;
    let letter = spec.configuration().letter();
    match (table, spec.configuration().has(exit)) {
        (Some(_), true) | (None, false) => Ok(()),
        (Some(table), false) => {
            let expected = format!("no [{name}], since configuration ({letter}) has no exit `{name}`");
            Err(Misfit::new(table.span(), name, expected, format!("[{name}]")))
        }
        (None, true) => {
            let expected = format!("[{name}], since configuration ({letter}) has the exit `{name}`");
            Err(Misfit::new(configuration.span(), name, expected, "none"))
        }
    }
}

/// Shape of the joined maps of several sources; a concatenation adds one presence channel per source.
fn joined<T>(
    section: &str,
    at: &Spanned<T>,
    aggregation: Aggregation,
    sources: usize,
    map: &FeatureMap,
) -> Result<[usize; 3], Misfit> {
    let [channels, h, w] = map.shape();
    let input = match aggregation {
        Aggregation::Cc => [sources * (channels + 1), h, w],
        Aggregation::Mp | Aggregation::Ap => [channels, h, w],
    };
    let expected = format!("joined maps of at most {MAX_JOINED} values");
    let fits = input.iter().product::<usize>() <= MAX_JOINED;
    expect(at, fits, &format!("{section} input"), &expected, || format!("{input:?}"))?;
    Ok(input)
}

/// The layer over the concatenated scores of several sources and their presence mask.
fn concatenated(sources: usize, classes: usize) -> LayerShape {
    let fc = FcSpec { outputs: None, binary: false, activation: Activation::None };
    LayerShape { block: BlockSpec::Fc(fc), input: [sources * (classes + 1), 1, 1], output: [classes, 1, 1] }
}

fn map_of([channels, height, width]: [usize; 3], encoding: FeatureEncoding) -> FeatureMap {
    let [channels, height, width] = [channels, height, width].map(|side| side as u32);
    FeatureMap { channels, height, width, encoding }
}
