//! `hashes.json`: SHA-256 of `network.json`, `policy.json` and `report.json`.

use std::collections::BTreeMap;

use headwater_protocol::{NetworkId, hex};
use sha2::{Digest, Sha256};

use super::archive::Member;
use super::{
    BundleError, HASHES, MAX_JSON_BYTES, NETWORK, POLICY, REPORT, SIGNATURE, WEIGHTS, check_limit, parse,
};

/// Members of a bundle whose `hashes.json` was checked. Hashes of sections and the signature are not checked yet.
pub(super) struct Verified<'a> {
    pub(super) network: &'a [u8],
    pub(super) policy: &'a [u8],
    pub(super) sections: &'a [Member],
    pub(super) report: Option<&'a [u8]>,
    pub(super) signature: Option<&'a [u8]>,
}

/// Contents of `hashes.json` for these members.
pub(super) fn render<'a>(members: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Vec<u8> {
    let hashes: BTreeMap<&str, String> =
        members.into_iter().map(|(name, bytes)| (name, hex_sha256(bytes))).collect();
    let lines: Vec<String> = hashes.iter().map(|(name, hash)| format!("  \"{name}\": \"{hash}\"")).collect();
    format!("{{\n{}\n}}\n", lines.join(",\n")).into_bytes()
}

/// Finds the members, and checks them against `hashes.json` and the weights against their own hash.
pub(super) fn verify<'a>(file: &'a [u8], members: &'a [Member]) -> Result<Verified<'a>, BundleError> {
    let (signature, rest) = match members.split_last() {
        Some((last, rest)) if last.name == SIGNATURE => (Some(last), rest),
        Some(_) | None => (None, members),
    };
    let rest = match rest.split_last() {
        Some((last, rest)) if last.name == WEIGHTS => {
            check_own_hash(last, file)?;
            rest
        }
        Some(_) | None => rest,
    };
    let [first, second, inner @ .., last] = rest else { return Err(misplaced(members)) };
    if [first, second, last].map(|member| member.name.as_str()) != [NETWORK, POLICY, HASHES] {
        return Err(misplaced(members));
    }
    let (sections, report) = match inner.split_last() {
        Some((last, sections)) if last.name == REPORT => (sections, Some(last)),
        _ => (inner, None),
    };
    let stored = |member: &Member| -> Result<&'a [u8], BundleError> {
        check_limit(&member.name, MAX_JSON_BYTES, member.range.len() as u64)?;
        Ok(member.bytes_in(file))
    };
    let verified = Verified {
        network: stored(first)?,
        policy: stored(second)?,
        sections,
        report: report.map(stored).transpose()?,
        signature: signature.map(stored).transpose()?,
    };
    check(&verified, stored(last)?)?;
    Ok(verified)
}

/// Refuses a member whose last 32 bytes are not the SHA-256 of the bytes before them. This check finds damage but no forgery: no signature
/// covers the trained weights, and no tier reads them.
fn check_own_hash(member: &Member, file: &[u8]) -> Result<(), BundleError> {
    let bytes = member.bytes_in(file);
    let (body, hash) = bytes.split_at(bytes.len().saturating_sub(32));
    let found = NetworkId(Sha256::digest(body).into());
    if found.0[..] == *hash {
        return Ok(());
    }
    Err(altered(&member.name, &hex(hash), found.to_string()))
}

pub(super) fn hex_sha256(bytes: &[u8]) -> String {
    network_id(bytes).to_string()
}

/// Id of the network with this `network.json`.
pub(super) fn network_id(bytes: &[u8]) -> NetworkId {
    NetworkId(Sha256::digest(bytes).into())
}

fn check(verified: &Verified<'_>, stored: &[u8]) -> Result<(), BundleError> {
    let covered =
        [(NETWORK, Some(verified.network)), (POLICY, Some(verified.policy)), (REPORT, verified.report)];
    let covered: Vec<(&str, &[u8])> =
        covered.into_iter().filter_map(|(name, bytes)| Some((name, bytes?))).collect();
    let rendered = render(covered.iter().copied());
    if rendered == stored {
        return Ok(());
    }
    // The bundle was altered. The code below finds the altered member for the error message.
    let on_record: BTreeMap<String, String> = parse(HASHES, stored).unwrap_or_default();
    for (name, bytes) in covered {
        let found = hex_sha256(bytes);
        if let Some(expected) = on_record.get(name).filter(|expected| **expected != found) {
            return Err(altered(name, expected, found));
        }
    }
    Err(altered(HASHES, &hex_sha256(&rendered), hex_sha256(stored)))
}

/// Error for a member whose SHA-256 is not the expected one.
pub(super) fn altered(member: &str, expected: &str, found: String) -> BundleError {
    BundleError::refused(format!("altered {member}"), format!("sha-256 {expected}"), found)
}

fn misplaced(members: &[Member]) -> BundleError {
    let names: Vec<&str> = members.iter().map(|member| member.name.as_str()).collect();
    let expected =
        format!("{NETWORK}, {POLICY}, sections, {REPORT} if any, {HASHES}, {WEIGHTS} and {SIGNATURE} if any");
    let found = if names.is_empty() { "none".into() } else { names.join(", ") };
    BundleError::refused("members", expected, found)
}
