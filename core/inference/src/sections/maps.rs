//! Joins the maps of several sources, in their wire encoding, into the input of the next section.

use headwater_protocol::SourceSet;

use super::SectionError;
use crate::aggregate::{self, AggregateError};
use crate::manifest::{Aggregation, FeatureEncoding, FeatureMap};

/// The join at the input of an edge or cloud section.
#[derive(Debug)]
pub(super) struct MapJoin {
    aggregation: Aggregation,
    sources: usize,
    map: FeatureMap,
    /// Elements of the joined map.
    input_len: usize,
    /// Maps as floats, `[sources, elements]`; unused for bits.
    floats: Vec<f32>,
}

impl MapJoin {
    pub(super) fn new(aggregation: Aggregation, sources: usize, map: FeatureMap) -> Self {
        let input_len = match aggregation {
            Aggregation::Mp | Aggregation::Ap => map.elements(),
            Aggregation::Cc => sources * (map.elements() + map.plane()),
        };
        Self { aggregation, sources, map, input_len, floats: Vec::new() }
    }

    /// Bytes of all maps of one sample.
    pub(super) fn maps_bytes(&self) -> usize {
        self.sources * self.map.packed_bytes()
    }

    /// Joins a batch.
    ///
    /// # Shapes
    /// - `maps`: `[batch, sources, bytes of a map]`; absent maps are ignored
    /// - `presence`: `[batch, sources]`
    /// - `input`: `[batch, joined map]`, resized to that length
    ///
    /// # Errors
    /// [`SectionError::NoView`] for a sample without a present source, [`SectionError::Length`] for a buffer of another length,
    /// [`SectionError::Aggregate`] for a map with NaN or infinity.
    pub(super) fn batch(
        &mut self,
        batch: usize,
        maps: &[u8],
        presence: &[bool],
        input: &mut Vec<f32>,
    ) -> Result<(), SectionError> {
        super::check_length("features", batch, batch.saturating_mul(self.maps_bytes()), maps.len())?;
        super::check_length("presence", batch, batch.saturating_mul(self.sources), presence.len())?;
        input.resize(batch * self.input_len, 0.0);
        let maps = maps.chunks_exact(self.maps_bytes());
        let presence = presence.chunks_exact(self.sources);
        for (row, ((maps, presence), input)) in
            maps.zip(presence).zip(input.chunks_exact_mut(self.input_len)).enumerate()
        {
            let present = SourceSet::from_row(presence);
            if present.is_empty() {
                return Err(SectionError::NoView { row });
            }
            self.one(maps, present, input)?;
        }
        Ok(())
    }

    fn one(&mut self, maps: &[u8], present: SourceSet, input: &mut [f32]) -> Result<(), AggregateError> {
        if self.map.encoding == FeatureEncoding::Bits {
            return match self.aggregation {
                Aggregation::Mp => aggregate::max_of_bits(maps, present, input),
                Aggregation::Ap => aggregate::mean_of_bits(maps, present, input),
                Aggregation::Cc => {
                    aggregate::concat_bits(maps, self.sources, self.map.plane(), present, input)
                }
            };
        }
        self.decode(maps, present)?;
        match self.aggregation {
            Aggregation::Mp => aggregate::max(&self.floats, present, input),
            Aggregation::Ap => aggregate::mean(&self.floats, present, input),
            Aggregation::Cc => {
                aggregate::concat(&self.floats, self.sources, self.map.plane(), present, input)
            }
        }
    }

    /// Converts the present maps to floats.
    fn decode(&mut self, maps: &[u8], present: SourceSet) -> Result<(), AggregateError> {
        let (elements, bytes) = (self.map.elements(), self.map.packed_bytes());
        self.floats.resize(self.sources * elements, 0.0);
        for source in aggregate::present_rows(present, self.sources) {
            let map = &maps[source * bytes..][..bytes];
            let floats = &mut self.floats[source * elements..][..elements];
            if !self.map.encoding.takes(map) {
                return Err(AggregateError::NotFinite { source_index: source });
            }
            if self.map.encoding == FeatureEncoding::Pixels {
                // An engine scales the pixels of a device section in the same way.
                floats.iter_mut().zip(map).for_each(|(float, pixel)| *float = f32::from(*pixel) / 255.0);
            } else {
                let (fours, _) = map.as_chunks();
                floats.iter_mut().zip(fours).for_each(|(float, four)| *float = f32::from_le_bytes(*four));
            }
        }
        Ok(())
    }
}
