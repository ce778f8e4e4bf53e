//! Format of a network's messages, and the results of reading messages: changes of devices and edges, refusals, counts.

use std::collections::BTreeMap;

use headwater_inference::bundle::Bundle;
use headwater_inference::leader::{Event, Generation, Micros};
use headwater_inference::manifest::{FeatureEncoding, SectionManifest};
use headwater_inference::sections::{MapCoder, MapCoderError, ScoreCoder, ScoreLimits};
use headwater_protocol::{
    DecodeError, DeviceId, Fault, Header, Limits, Message, NetworkId, Session, Slot, SlotSet, decode,
    decode_header,
};

/// Arrival of a message from the broker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) now: Micros,
    /// True if the broker had kept the message (retained) from before the connection.
    pub(crate) is_retained: bool,
}

/// An event of devices or edges apart from their answers, such as a device that is up or down, with the network that it concerns.
pub(crate) type Change = (Generation, Event<'static>);

/// A fault of the error table, and a sentence for the operator.
pub(crate) type Refusal = (Fault, String);

/// Refused messages and births of one sender, by code of the error table.
pub type Refusals = BTreeMap<&'static str, u64>;

/// Counts of a group's messages that were not taken, and of devices that were forgotten or lost their slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InboxCounts {
    /// Devices with refused messages or births.
    pub refused: BTreeMap<DeviceId, Refusals>,
    /// Refusals of devices whose names were forgotten: to make room, or because the process stopped leading.
    pub refused_forgotten: Refusals,
    /// Names of devices that were forgotten to make room for others.
    pub forgotten_devices: u64,
    /// Silent devices that lost their slot to another device.
    pub replaced_devices: u64,
    /// Messages on foreign topics or of unknown names, and unreadable triggers.
    pub unroutable: u64,
}

impl InboxCounts {
    pub(crate) fn refuse(&mut self, device: &DeviceId, fault: Fault) {
        let of_device = match self.refused.get_mut(device) {
            Some(of_device) => of_device,
            None => self.refused.entry(device.clone()).or_default(),
        };
        *of_device.entry(fault.code()).or_default() += 1;
    }

    /// Forgets the name of a device; its refusals stay counted.
    pub(crate) fn forget(&mut self, device: &DeviceId) {
        for (code, count) in self.refused.remove(device).unwrap_or_default() {
            *self.refused_forgotten.entry(code).or_default() += count;
        }
    }

    /// Forgets the names of all devices, since the registry that knew them has ended; the refusals stay counted.
    pub(crate) fn forget_all(&mut self) {
        let devices: Vec<_> = self.refused.keys().cloned().collect();
        devices.iter().for_each(|device| self.forget(device));
    }

    /// Refusals of all devices by error code.
    pub(crate) fn by_code(&self) -> Vec<(String, u64)> {
        let mut codes = BTreeMap::<String, u64>::new();
        for (code, count) in self.refused.values().chain([&self.refused_forgotten]).flatten() {
            *codes.entry((*code).into()).or_default() += count;
        }
        codes.into_iter().collect()
    }
}

/// Format of a network's messages, and of its requests to the cloud.
#[derive(Clone, Debug)]
pub(crate) struct MessageFormat {
    pub(crate) network: NetworkId,
    pub(crate) slots: usize,
    /// Slots of each remote edge; empty for an edge in this process.
    pub(crate) remote_edges: Vec<SlotSet>,
    pub(crate) limits: Limits,
    /// Encoding of the devices' feature maps.
    pub(crate) device_features: FeatureEncoding,
    /// Encoding of the edges' feature maps.
    pub(crate) edge_features: FeatureEncoding,
    /// Number of feature maps that the cloud section joins.
    pub(crate) cloud_sources: usize,
    pub(crate) classes: usize,
    /// Encoding of the devices' scores, by slot.
    pub(crate) score_coders: Vec<ScoreCoder>,
    /// Coders of the devices' maps, by slot; empty if messages carry maps uncoded.
    pub(crate) map_coders: Vec<MapCoder>,
    /// Limits of the devices' scores, by slot; `None` if the bundle has none.
    pub(crate) device_scores: Vec<Option<ScoreLimits>>,
    /// Limits of the edges' scores, by edge; `None` if the bundle has none.
    pub(crate) edge_scores: Vec<Option<ScoreLimits>>,
}

impl MessageFormat {
    /// True if edges in other processes serve the network.
    pub(crate) fn has_remote_edges(&self) -> bool {
        self.remote_edges.iter().any(|slots| !slots.is_empty())
    }

    /// Encoding of the scores of a slot's device.
    pub(crate) fn score_coder(&self, slot: Slot) -> ScoreCoder {
        self.score_coders.get(slot.index()).copied().unwrap_or_default()
    }

    /// The format of a bundle's network.
    ///
    /// # Errors
    /// [`MapCoderError`] when the bundle lacks the context table of a slot whose maps are coded.
    pub(crate) fn new(bundle: &Bundle, remote_edges: Vec<SlotSet>) -> Result<Self, MapCoderError> {
        let manifest = bundle.manifest();
        let edge = manifest.edge.as_ref().map(|edge| edge.features.encoding);
        let edges = 0..manifest.edge.as_ref().map_or(0, |edge| edge.groups.len());
        let limits = |name: String| ScoreLimits::of_section(bundle, &name);
        let slots = || Slot::first(manifest.slots.into());
        let map_coders = slots().filter_map(|slot| MapCoder::of(bundle, slot).transpose());
        Ok(Self {
            network: bundle.network_id(),
            slots: usize::from(manifest.slots),
            remote_edges,
            limits: manifest.limits(),
            device_features: manifest.features.encoding,
            edge_features: edge.unwrap_or_default(),
            cloud_sources: manifest.cloud_sources(),
            classes: manifest.classes(),
            score_coders: slots().map(|slot| ScoreCoder::of(manifest, slot)).collect(),
            map_coders: map_coders.collect::<Result<_, _>>()?,
            device_scores: slots().map(SectionManifest::device_name).map(limits).collect(),
            edge_scores: edges.map(SectionManifest::edge_name).map(limits).collect(),
        })
    }

    /// Decodes a message of this network. `session` is the session of the sender's birth or status, or the fault for which the sender is not
    /// accepted. A message of another session is refused, since it is from another network or boot.
    pub(crate) fn decode<'a>(
        &self,
        payload: &'a [u8],
        session: Result<Session, Fault>,
    ) -> Result<Message<'a>, Refusal> {
        let refused = |error: DecodeError| (error.fault(), error.to_string());
        let Ok(Header { session: found, .. }) = decode_header(payload) else {
            // A payload without a header is no message, and `decode` names the mistake.
            return decode(payload, &self.limits).map_err(refused);
        };
        match session {
            Err(fault) => Err((fault, "a message of a sender that is not accepted".to_owned())),
            Ok(expected) if found != expected => {
                let why = format!(
                    "session: expected {expected}, that of the birth read last, found {found}: its birth must come first"
                );
                Err((Fault::UnknownDevice, why))
            }
            Ok(_) => decode(payload, &self.limits).map_err(refused),
        }
    }
}
