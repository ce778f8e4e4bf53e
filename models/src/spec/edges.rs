//! The edges of a spec: the slots and the section of each edge.

use headwater_inference::manifest::{Configuration, FeatureMap};
use headwater_protocol::Exit;
use toml::Spanned;

use super::fit::{Misfit, expect};
use super::shapes::{SectionShapes, joined, section, table_of_exit};
use super::{EdgeSpec, NetworkSpec};

/// Slots of each edge.
pub(super) fn groups(spec: &NetworkSpec) -> Result<Vec<Vec<usize>>, Misfit> {
    table_of_exit(spec, "edge", spec.edge.as_ref(), Exit::Edge)?;
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

/// The section of each edge; the maps of all edges have the same shape.
pub(super) fn edges(
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
