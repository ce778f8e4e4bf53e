//! The binary map of a device as the body of a message: coded with the context table of its slot.

use std::sync::Arc;

use headwater_map_coder::{ContextTable, DecodeError, MapError, MapShape, ShapeError, TableError};
use headwater_protocol::Slot;
use thiserror::Error;

use crate::bundle::{Bundle, BundleError};
use crate::manifest::{FeatureMap, SectionManifest};

/// Coder of the maps of one slot.
#[derive(Clone, Debug)]
pub struct MapCoder {
    shape: MapShape,
    table: Arc<[u8]>,
}

/// A slot whose maps cannot be coded.
#[derive(Debug, Error)]
pub enum MapCoderError {
    /// The bundle lacks the context table of the slot.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// The coder does not support the map.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// The table has another length than the map needs.
    #[error(transparent)]
    Table(#[from] TableError),
}

impl MapCoder {
    /// The coder of a slot; `None` in a network whose messages carry maps uncoded.
    ///
    /// # Errors
    /// [`MapCoderError`] when the bundle lacks the slot's table, or has one of another length.
    pub fn of(bundle: &Bundle, slot: Slot) -> Result<Option<Self>, MapCoderError> {
        let (manifest, name) = (bundle.manifest(), SectionManifest::device_name(slot));
        if !manifest.codes_features() {
            return Ok(None);
        }
        let Some(table) = bundle.contexts(&name) else {
            let held = manifest.sections.iter().map(|section| &section.name);
            let held = held.filter(|name| bundle.contexts(name).is_some()).cloned().collect();
            return Err(BundleError::NotInBundle { section: name, held }.into());
        };
        Self::new(&manifest.features, Arc::clone(table)).map(Some)
    }

    /// The coder of maps with a context table.
    ///
    /// # Errors
    /// [`MapCoderError`]: a map that the coder does not support, or a table of another length.
    pub fn new(map: &FeatureMap, table: impl Into<Arc<[u8]>>) -> Result<Self, MapCoderError> {
        let (shape, table) = (map.coder_shape()?, table.into());
        ContextTable::new(shape, &table)?;
        Ok(Self { shape, table })
    }

    /// Bytes of the context table.
    pub fn table(&self) -> &[u8] {
        &self.table
    }

    /// The body of a packed map: the code if it is shorter than the map, else the map itself.
    ///
    /// # Errors
    /// [`MapError`] for bytes that are no packed map of the network.
    pub fn encode(&self, map: &[u8]) -> Result<Vec<u8>, MapError> {
        let mut body = vec![0; self.shape.packed_bytes()];
        let length = self.contexts().encode(map, &mut body)?;
        body.truncate(length);
        Ok(body)
    }

    /// Replaces `map` by the packed map of a body.
    ///
    /// # Errors
    /// [`DecodeError`] for a body that no map has under this table; `map` is then not to be used.
    pub fn decode(&self, body: &[u8], map: &mut Vec<u8>) -> Result<(), DecodeError> {
        map.resize(self.shape.packed_bytes(), 0);
        self.contexts().decode(body, map)
    }

    fn contexts(&self) -> ContextTable<'_> {
        ContextTable::new(self.shape, &self.table).expect("the length was checked")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TinyNetwork;

    fn bundle(codes_maps: bool) -> Bundle {
        let network = TinyNetwork { codes_maps, ..TinyNetwork::default() };
        Bundle::from_bytes(&network.bundle()).unwrap()
    }

    #[test]
    fn a_map_survives_its_body_and_a_network_without_tables_has_no_coder() {
        let bundle = bundle(true);
        assert!(bundle.manifest().limits().codes_features);
        for slot in Slot::first(3) {
            let coder = MapCoder::of(&bundle, slot).unwrap().unwrap();
            let map = vec![0; bundle.manifest().features.packed_bytes()];
            let body = coder.encode(&map).unwrap();
            let mut found = vec![9; 3];
            coder.decode(&body, &mut found).unwrap();
            assert_eq!(found, map);
            assert!(coder.encode(&map[1..]).is_err());
        }
        assert!(MapCoder::of(&self::bundle(false), Slot::first(1).next().unwrap()).unwrap().is_none());
    }

    #[test]
    fn a_bundle_without_the_table_of_a_slot_is_named() {
        let bytes = bundle(true).only(&["device-1", "cloud"]).unwrap();
        let bundle = Bundle::from_bytes(&bytes).unwrap();
        let of = |slot| MapCoder::of(&bundle, Slot::new(slot).unwrap());
        assert!(of(1).unwrap().is_some());
        let error = of(0).unwrap_err().to_string();
        assert!(error.contains("device-0") && error.contains("device-1"), "{error}");
    }
}
