//! Writing a bundle.

use super::{
    BundleError, HASHES, NETWORK, POLICY, REPORT, archive, check_context_table, check_limit, check_values,
    deflate, hashes,
};
use crate::manifest::NetworkManifest;
use crate::policy::{Policies, Policy};

/// Writes a bundle from its parts; equal parts give equal bytes. [`BundleWriter::finish`] fills the hashes of sections in.
#[derive(Clone, Debug)]
pub struct BundleWriter {
    manifest: NetworkManifest,
    policies: Policies,
    sections: Vec<(String, Vec<u8>)>,
    packed: Vec<(String, Vec<u8>)>,
    contexts: Vec<(String, Vec<u8>)>,
    report: Option<serde_json::Value>,
}

impl BundleWriter {
    /// A bundle of this network and policy, without sections so far.
    pub fn new(manifest: NetworkManifest, policy: Policy) -> Self {
        Self {
            manifest,
            policies: Policies::new(policy),
            sections: Vec::new(),
            packed: Vec::new(),
            contexts: Vec::new(),
            report: None,
        }
    }

    /// Adds the ONNX file of a section, in any order.
    #[must_use]
    pub fn section(mut self, name: impl Into<String>, onnx: impl Into<Vec<u8>>) -> Self {
        self.sections.push((name.into(), onnx.into()));
        self
    }

    /// Adds the packed form of a section.
    #[must_use]
    pub fn packed(mut self, name: impl Into<String>, packed: impl Into<Vec<u8>>) -> Self {
        self.packed.push((name.into(), packed.into()));
        self
    }

    /// Adds the context table with which a device section's map is coded.
    #[must_use]
    pub fn contexts(mut self, name: impl Into<String>, contexts: impl Into<Vec<u8>>) -> Self {
        self.contexts.push((name.into(), contexts.into()));
        self
    }

    /// Adds the training report.
    #[must_use]
    pub fn report(mut self, report: serde_json::Value) -> Self {
        self.report = Some(report);
        self
    }

    /// The bundle's bytes.
    ///
    /// # Errors
    /// For an invalid manifest or policy, a context table of another length, a member over its limit, or sections that are not exactly the
    /// manifest's.
    pub fn finish(mut self) -> Result<Vec<u8>, BundleError> {
        self.manifest.check()?;
        self.policies.check(self.manifest.exits())?;
        for (name, table) in &self.contexts {
            check_context_table(&self.manifest, &format!("{name}.contexts"), table)?;
        }
        let sections = self.store_sections()?;
        // Checked again, now that the hashes are filled in.
        self.manifest.check()?;

        let network = json(NETWORK, &self.manifest)?;
        let policy = json(POLICY, &self.policies)?;
        let report = self.report.as_ref().map(|report| json(REPORT, report)).transpose()?;
        let report = report.as_deref().map(|report| (REPORT, report));
        let covered = [(NETWORK, network.as_slice()), (POLICY, policy.as_slice())];
        let hashes = hashes::render(covered.into_iter().chain(report));

        let sections = sections.iter().map(|(member, stored)| (member.as_str(), stored.as_slice()));
        let members = covered.into_iter().chain(sections).chain(report).chain([(HASHES, hashes.as_slice())]);
        Ok(archive::write(members))
    }

    /// Deflates the ONNX of sections if that makes it smaller, and writes all hashes into the manifest. Packed forms hardly shrink and are
    /// stored as they are.
    fn store_sections(&mut self) -> Result<Vec<(String, Vec<u8>)>, BundleError> {
        let mut given = std::mem::take(&mut self.sections);
        let mut given_packed = std::mem::take(&mut self.packed);
        let mut given_contexts = std::mem::take(&mut self.contexts);
        let mut members = Vec::with_capacity(given.len());
        for section in &mut self.manifest.sections {
            let Some(at) = given.iter().position(|(name, _)| *name == section.name) else {
                let held = members.iter().map(|(member, _): &(String, _)| member.clone()).collect();
                return Err(BundleError::NotInBundle { section: section.name.clone(), held });
            };
            let (name, onnx) = given.swap_remove(at);
            check_limit(&format!("section {name}"), deflate::max_onnx_bytes(section), onnx.len() as u64)?;
            let deflated = deflate::deflate(&onnx);
            let (member, stored) = if deflated.len() < onnx.len() {
                (format!("{name}.onnx.deflate"), deflated)
            } else {
                (format!("{name}.onnx"), onnx)
            };
            section.sha256 = hashes::hex_sha256(&stored);
            members.push((member, stored));
            let mut store = |given: &mut Vec<(String, Vec<u8>)>, form| {
                let at = given.iter().position(|(name, _)| *name == section.name)?;
                let (name, bytes) = given.swap_remove(at);
                let hash = hashes::hex_sha256(&bytes);
                members.push((format!("{name}.{form}"), bytes));
                Some(hash)
            };
            let packed = store(&mut given_packed, "packed");
            let contexts = store(&mut given_contexts, "contexts");
            (section.packed_sha256, section.contexts_sha256) = (packed, contexts);
        }
        match given.pop().or_else(|| given_packed.pop()).or_else(|| given_contexts.pop()) {
            None => Ok(members),
            Some((section, _)) => {
                let known = self.manifest.sections.iter().map(|section| section.name.clone()).collect();
                Err(BundleError::UnknownSection { section, known })
            }
        }
    }
}

pub(super) fn json(member: &'static str, value: &impl serde::Serialize) -> Result<Vec<u8>, BundleError> {
    let mut bytes =
        serde_json::to_vec_pretty(value).map_err(|reason| BundleError::Json { member, reason })?;
    bytes.push(b'\n');
    check_limit(member, super::MAX_JSON_BYTES, bytes.len() as u64)?;
    check_values(member, &bytes)?;
    Ok(bytes)
}
