//! Check before training that all ranks have the same version, spec, recipe and data. The first difference is named.

use serde::{Deserialize, Serialize};

use super::Communicator;

/// Named texts of one rank, which must be equal on all ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankFacts {
    /// Name of the machine, for error messages.
    pub host: String,
    /// Name and text of everything that must be equal, such as the recipe.
    pub texts: Vec<(String, String)>,
}

impl RankFacts {
    /// The first difference of a rank from rank 0, in words; `None` if all ranks have the same texts.
    pub fn difference(&self, ranks: &dyn Communicator) -> Option<String> {
        let own = serde_json::json!(self).to_string().into_bytes();
        let all = ranks.all_gather(&own);
        let all: Vec<Option<Self>> = all.iter().map(|facts| serde_json::from_slice(facts).ok()).collect();
        let first = all.first()?.as_ref();
        all.iter().enumerate().find_map(|(rank, other)| {
            let (Some(first), Some(other)) = (first, other) else {
                return Some(format!("rank {rank}: expected the facts of this version, found others"));
            };
            let names = |facts: &Self| facts.texts.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
            if names(first) != names(other) {
                return Some(format!("rank {rank} on {}: another version of headwater-train", other.host));
            }
            let pairs = first.texts.iter().zip(&other.texts);
            pairs.filter(|(expected, found)| expected != found).map(|((name, expected), (_, found))| {
                let (expected, found) = first_difference(expected, found);
                format!(
                    "{name}: expected `{expected}` as on rank 0 ({}), found `{found}` on rank {rank} ({})",
                    first.host, other.host
                )
            }).next()
        })
    }
}

/// The first line in which two texts differ, of each text; empty for a text that has no such line.
fn first_difference<'t>(expected: &'t str, found: &'t str) -> (&'t str, &'t str) {
    let (mut expected, mut found) = (expected.lines(), found.lines());
    loop {
        match (expected.next(), found.next()) {
            (Some(a), Some(b)) if a == b => {}
            (a, b) => return (a.unwrap_or_default(), b.unwrap_or_default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scale_out::in_process;

    fn difference(recipes: [&str; 3]) -> Vec<Option<String>> {
        in_process::run(3, |rank| {
            let texts = vec![("version".into(), "1".into()), ("recipe".into(), recipes[rank.rank()].into())];
            RankFacts { host: format!("host-{}", rank.rank()), texts }.difference(rank)
        })
    }

    #[test]
    fn every_rank_names_the_first_line_that_differs() {
        assert_eq!(difference(["a\nb", "a\nb", "a\nb"]), [None, None, None]);
        let found = difference(["a\nepochs = 2", "a\nepochs = 2", "a\nepochs = 3"]);
        let expected =
            "recipe: expected `epochs = 2` as on rank 0 (host-0), found `epochs = 3` on rank 2 (host-2)";
        assert_eq!(found, vec![Some(expected.to_owned()); 3]);
    }
}
