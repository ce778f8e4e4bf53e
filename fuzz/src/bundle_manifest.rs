//! Random bytes as a bundle, and as the parts of one.
//!
//! ```text
//! | `{` network.json | 0 | policy.json | 0 | bytes of every section | 0 | changes |
//! | anything else: a bundle file |
//! ```
//!
//! Hashes refuse random changes of a bundle, so a bundle is written from the parts. This bundle must open, and its signature must verify.
//! After the changes the bundle must not open, or its signature must not verify. A change is three bytes: a position (u16), and a value
//! for exclusive or with the byte at this position.

#![no_main]

use headwater_inference::bundle::{Bundle, BundleWriter, Release, SigningKey, Trust};
use headwater_inference::cost::{DeviceBody, LinkBytes};
use headwater_inference::exit::ExitInput;
use headwater_inference::manifest::NetworkManifest;
use headwater_inference::policy::Policy;
use headwater_map_coder::CONTEXTS;
use libfuzzer_sys::fuzz_target;

/// The bytes before the 32 secret bytes of an ed25519 key in PKCS#8.
const KEY_PREFIX: &[u8] = b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20";

fuzz_target!(|bytes: &[u8]| {
    if bytes.first() != Some(&b'{') {
        if let Ok(bundle) = Bundle::from_bytes(bytes) {
            check_bundle(&bundle);
        }
        return;
    }
    let mut parts = bytes.splitn(4, |byte| *byte == 0);
    let [network, policy, onnx, changes] = std::array::from_fn(|_| parts.next().unwrap_or_default());
    let policy = read_policy(policy).unwrap_or_default();
    let Some(manifest) = read_manifest(network) else { return };
    let written = write(manifest.clone(), policy.clone(), onnx);
    let bundle = Bundle::from_bytes(&written).expect("what the writer takes opens");
    assert_eq!(bundle.policy(), &policy);
    let without_hashes = |manifest: &NetworkManifest| {
        let mut manifest = manifest.clone();
        for section in &mut manifest.sections {
            (section.sha256, section.packed_sha256) = (String::new(), None);
            section.contexts_sha256 = section.contexts_sha256.as_ref().map(|_| String::new());
        }
        manifest
    };
    assert_eq!(without_hashes(bundle.manifest()), without_hashes(&manifest));
    check_bundle(&bundle);
    check_signed(&bundle, changes);
});

fn read_policy(text: &[u8]) -> Option<Policy> {
    let policy: Policy =
        serde_json::from_slice(text).ok().filter(|policy: &Policy| policy.check().is_ok())?;
    for (exit, _) in policy.exits.iter() {
        for present in [0, 1, 64, u32::MAX] {
            policy.of(exit).threshold.at(present);
            let input = ExitInput::new(&[0.5, f32::MIN, f32::MAX], present, [2, 0]);
            policy.of(exit).assess(input);
        }
    }
    Some(policy)
}

/// A valid manifest, or `None`. If the manifest as read is not valid, its sections are replaced by those that follow from its other fields.
fn read_manifest(text: &[u8]) -> Option<NetworkManifest> {
    let mut manifest: NetworkManifest = serde_json::from_slice(text).ok()?;
    if manifest.check().is_err() {
        manifest.sections = manifest.expected_sections();
        manifest.check().ok()?;
    }
    Some(manifest)
}

/// A bundle with `onnx` as every section and as the packed form of the first. Sections that name contexts get a table of equal chances.
fn write(manifest: NetworkManifest, policy: Policy, onnx: &[u8]) -> Vec<u8> {
    let names: Vec<_> = manifest.sections.iter().map(|section| section.name.clone()).collect();
    let coded: Vec<_> =
        manifest.sections.iter().filter(|section| section.contexts_sha256.is_some()).map(|section| section.name.clone()).collect();
    let table = vec![128; if coded.is_empty() { 0 } else { manifest.features.channels as usize * CONTEXTS }];
    let writer = BundleWriter::new(manifest, policy).packed(&names[0], onnx);
    let writer = coded.iter().fold(writer, |writer, name| writer.contexts(name, table.clone()));
    let writer = names.iter().fold(writer, |writer, name| writer.section(name, onnx));
    writer.finish().expect("a manifest and a policy that hold make a bundle")
}

/// Calls everything that reads a bundle: nothing may panic.
fn check_bundle(bundle: &Bundle) {
    let manifest = bundle.manifest();
    manifest.limits().largest_payload();
    manifest.configuration.letter();
    LinkBytes::of(manifest);
    DeviceBody::of(manifest).mean(2, 1);
    for section in &manifest.sections {
        section.input_len();
        section.outputs.iter().for_each(|output| _ = output.elements());
        manifest.score_limits.get(&section.name);
        bundle.packed_section(&section.name);
        assert_eq!(bundle.contexts(&section.name).is_some(), section.contexts_sha256.is_some());
        let is_stored = bundle.stored_section_bytes(&section.name).is_some();
        // A bad deflate stream is not found before this call.
        let is_readable = bundle.section(&section.name).is_ok();
        assert!(is_stored || !is_readable);
        if let Ok(part) = bundle.only(&[&section.name]) {
            let part = Bundle::from_bytes(&part).expect("a part of a bundle opens");
            assert_eq!(part.network_id(), bundle.network_id());
        }
    }
    assert!(bundle.section("none").is_err());
    let own = bundle.signed_by();
    let _ = bundle.check_signature(&Trust { keys: own.as_slice(), site: None, oldest_release: 0 });
}

fn check_signed(bundle: &Bundle, changes: &[u8]) {
    let key = SigningKey::from_pkcs8(&[KEY_PREFIX, &[7; 32]].concat()).expect("a key");
    let keys = [key.verifying_key()];
    let trust = Trust { keys: &keys, site: None, oldest_release: 0 };
    let signed = bundle.signed(&key, Release::new(1, []));
    let opened = Bundle::from_bytes(&signed).expect("a signed bundle opens");
    assert_eq!(opened.check_signature(&trust), Ok(()));

    let mut changed = signed.clone();
    for change in changes.chunks_exact(3) {
        let at = usize::from(u16::from_le_bytes([change[0], change[1]])) % changed.len();
        changed[at] ^= change[2];
    }
    if changed != signed
        && let Ok(opened) = Bundle::from_bytes(&changed)
    {
        assert!(opened.check_signature(&trust).is_err(), "a changed bundle is trusted");
    }
}
