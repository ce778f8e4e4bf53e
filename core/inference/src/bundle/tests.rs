//! Bundles that are valid, and bundles that are refused.

use headwater_protocol::{Exit, SiteId, Slot};
use proptest::prelude::*;
use serde_json::json;
use sha2::{Digest, Sha256};

use super::*;
use crate::engine::TractEngine;
use crate::leader::Exits;
use crate::manifest::Aggregation;
use crate::policy::ExitPolicy;
use crate::sections::{CloudSection, DeviceSection};
use crate::testing::TinyNetwork;

fn tiny() -> TinyNetwork {
    TinyNetwork { slots: 2, view: [1, 4, 4], filters: 1, ..TinyNetwork::default() }
}

/// A small bundle, for tests that try every byte.
fn small() -> Vec<u8> {
    tiny().writer().report(json!({ "accuracy": 0.5 })).finish().unwrap()
}

fn names(bundle: &[u8]) -> Vec<String> {
    archive::read(bundle).unwrap().iter().map(|member| member.name.clone()).collect()
}

#[track_caller]
fn check_refused(bytes: &[u8], message: &str) {
    let error = Bundle::from_bytes(bytes).unwrap_err().to_string();
    assert!(error.contains(message), "expected an error with {message:?}, found: {error}");
}

/// The bundle with one member replaced and with matching `hashes.json` and framing.
fn with_member(bundle: &[u8], name: &str, contents: &[u8]) -> Vec<u8> {
    let members = archive::read(bundle).unwrap();
    let mut members: Vec<(&str, Vec<u8>)> =
        members.iter().map(|member| (member.name.as_str(), member.bytes_in(bundle).to_vec())).collect();
    for member in &mut members {
        if member.0 == name {
            member.1 = contents.to_vec();
        }
    }
    let covered = members.iter().filter(|(name, _)| [NETWORK, POLICY, REPORT].contains(name));
    let hashes = hashes::render(covered.map(|(name, bytes)| (*name, bytes.as_slice())));
    members.last_mut().unwrap().1 = hashes;
    archive::write(members.iter().map(|(name, bytes)| (*name, bytes.as_slice())))
}

fn with_network(change: impl FnOnce(&mut serde_json::Value)) -> Vec<u8> {
    let bundle = small();
    let members = archive::read(&bundle).unwrap();
    let mut network: serde_json::Value = serde_json::from_slice(&bundle[members[0].range.clone()]).unwrap();
    change(&mut network);
    with_member(&bundle, NETWORK, &serde_json::to_vec(&network).unwrap())
}

#[test]
fn a_bundle_with_a_further_exit_opens_and_every_tier_refuses_it_by_name() {
    let further = Exit::from_name("cloud.1").unwrap();
    let mut manifest = tiny().manifest();
    manifest.exits = vec![Exit::LOCAL, Exit::CLOUD, further];
    manifest.sections = manifest.expected_sections();
    let unstated = tiny().with_manifest(manifest.clone()).finish().unwrap_err().to_string();
    assert!(unstated.contains("cloud.1: expected rule, temperature and threshold"), "{unstated}");
    let policy = Policy::default().with(further, ExitPolicy::default());
    let network = TinyNetwork { policy: policy.clone(), ..tiny() };
    let bundle = Bundle::from_bytes(&network.with_manifest(manifest.clone()).finish().unwrap()).unwrap();
    assert_eq!((bundle.manifest().exits(), bundle.policy()), (&manifest.exits[..], &policy));
    let engine = TractEngine::new();
    let slot = Slot::new(0).unwrap();
    let refusals = [
        DeviceSection::load(&bundle, slot, &engine).err(),
        Exits::load(&bundle, &engine).err(),
        CloudSection::load(&bundle, &engine).err(),
    ];
    for refused in refusals {
        let refused = refused.unwrap().to_string();
        assert!(refused.contains("exits of `cloud`: expected 1, as this release runs, found 2"), "{refused}");
    }
}

#[test]
fn a_written_bundle_is_read_back() {
    let network = tiny();
    let bytes = small();
    let bundle = Bundle::from_bytes(&bytes).unwrap();
    assert_eq!(bundle.manifest().labels, network.manifest().labels);
    assert_eq!(bundle.policy(), &network.policy);
    assert_eq!(bundle.report(), Some(&json!({ "accuracy": 0.5 })));
    let onnx = bundle.section("cloud").unwrap().onnx;
    let written = crate::testing::OnnxGraph::new(&[1]).finish(&["x"]);
    assert_ne!(&*onnx, &written);
    assert_eq!(names(&bytes)[..2], [NETWORK, POLICY]);
    assert_eq!(names(&bytes)[names(&bytes).len() - 2..], [REPORT, HASHES]);
}

#[test]
fn a_section_is_read_as_it_was_written() {
    let manifest = tiny().manifest();
    let onnx = |name: &str| if name == "cloud" { vec![7; 5000] } else { vec![1, 2, 3] };
    let mut writer = BundleWriter::new(manifest.clone(), Policy::default());
    for section in manifest.sections.iter().rev() {
        writer = writer.section(section.name.clone(), onnx(&section.name));
    }
    let bytes = writer.finish().unwrap();
    let bundle = Bundle::from_bytes(&bytes).unwrap();
    for section in &manifest.sections {
        assert_eq!(&*bundle.section(&section.name).unwrap().onnx, onnx(&section.name));
    }
    // A section that deflating would make larger is stored as it is.
    assert_eq!(names(&bytes)[2..], ["device-0.onnx", "device-1.onnx", "cloud.onnx.deflate", HASHES]);
}

#[test]
fn the_same_contents_give_the_same_bytes() {
    assert_eq!(small(), small());
}

#[test]
fn the_ids_are_hashes_of_the_network_as_stored_and_of_the_values_of_the_policy() {
    let bytes = small();
    let bundle = Bundle::from_bytes(&bytes).unwrap();
    let members = archive::read(&bytes).unwrap();
    let hash = |i: usize| -> [u8; 32] { Sha256::digest(&bytes[members[i].range.clone()]).into() };
    assert_eq!(bundle.network_id().0, hash(0));
    assert_eq!(bundle.policy_id(), bundle.policy().id(), "of the values, not of the file");
}

#[test]
fn any_byte_changed_is_refused() {
    let mut bytes = small();
    for i in 0..bytes.len() {
        for flip in [0x01, 0x80, 0xff] {
            bytes[i] ^= flip;
            let refused = Bundle::from_bytes(&bytes);
            assert!(refused.is_err(), "byte {i} of {} changed by {flip:#x} and accepted", bytes.len());
            bytes[i] ^= flip;
        }
    }
    assert!(Bundle::from_bytes(&bytes).is_ok());
}

#[test]
fn any_truncation_is_refused() {
    let bytes = small();
    for length in 0..bytes.len() {
        assert!(Bundle::from_bytes(&bytes[..length]).is_err(), "cut at {length} of {}", bytes.len());
    }
}

#[test]
fn an_error_names_the_member_and_the_expected_and_found_values() {
    let bytes = small();
    for (i, name) in names(&bytes).iter().enumerate() {
        let range = archive::read(&bytes).unwrap()[i].range.clone();
        let mut altered = bytes.clone();
        altered[range.start + range.len() / 2] ^= 1;
        let error = Bundle::from_bytes(&altered).unwrap_err();
        let BundleError::Refused { part, expected, found } = &error else { panic!("{name}: {error}") };
        let (member, expected) =
            (part.strip_prefix("altered ").unwrap(), expected.strip_prefix("sha-256 ").unwrap());
        // If `hashes.json` itself is altered, the error may name the member whose hash was altered there.
        if name != HASHES {
            assert_eq!(member, name);
            assert!(expected != found && expected.len() == 64 && found.len() == 64, "{error}");
        }
    }
    check_refused(&bytes[..bytes.len() - 1], "cut off in end of the archive");
    check_refused(&bytes[..700], "cut off in network.json");
    check_refused(&[bytes.as_slice(), b"x"].concat(), "found 1 more bytes");
    let mut padded = bytes.clone();
    let first = archive::read(&bytes).unwrap()[0].range.clone();
    padded[first.end] = 3;
    check_refused(&padded, "padding after network.json: expected 0x00, found 0x03");
}

#[test]
fn a_file_that_is_not_a_tar_is_refused() {
    check_refused(b"", "cut off");
    check_refused(&[0xff; 4096], "expected a short ASCII name");
    check_refused(&[0; 1024], "members: expected network.json");
}

#[test]
fn a_member_with_a_huge_size_is_refused_before_anything_is_allocated() {
    let mut bytes = small();
    bytes[124..136].copy_from_slice(b"77777777777\0");
    check_refused(&bytes, "altered at byte 152, header of member 0, network.json");
}

#[test]
fn another_format_version_is_refused_by_name() {
    let bytes = with_network(|network| {
        network["format"] = json!(3);
        network["a_key_of_tomorrow"] = json!(1);
    });
    check_refused(&bytes, "format: expected 2, found 3");
}

#[test]
fn a_manifest_that_contradicts_itself_is_refused() {
    for (change, message) in [
        (json!({ "labels": [] }), "labels: expected 1 to 65535"),
        (json!({ "class_prior": [1.0] }), "class_prior: expected 4 numbers, one a label, found 1"),
        (json!({ "class_prior": [0.5, 0.5, 0.5, 0.5] }), "class_prior: expected a sum of 1, found 2"),
        (json!({ "slots": 0 }), "slots: expected 1 to 64, found 0"),
        (json!({ "slots": 65 }), "slots: expected 1 to 64, found 65"),
        (json!({ "slots": 3 }), "sections: expected device-0, device-1, device-2, cloud, found"),
        (json!({ "local_aggregation": "cc" }), "sections: expected device-0, device-1, local, cloud"),
        (json!({ "features": { "channels": 2, "height": 2, "width": 2 } }), "section device-0: outputs"),
        (
            json!({ "features": { "channels": 0, "height": 2, "width": 2 } }),
            "features: expected a shape of 1",
        ),
        (
            json!({ "features": { "channels": 4_000_000_000u32, "height": 4_000_000_000u32, "width": 4_000_000_000u32 } }),
            "features: expected a shape of 1",
        ),
        (json!({ "name": "a/b" }), "name: expected"),
        (
            json!({ "preprocessing": { "channels": 3, "height": 8, "width": 8, "scale": "unit", "regions": ["0,0,1,1"] } }),
            "preprocessing.regions: expected none, or one for each of",
        ),
        (json!({ "cloud_aggregation": "mp" }), "section cloud: input"),
    ] {
        let bytes = with_network(|network| {
            for (key, value) in change.as_object().unwrap() {
                network[key] = value.clone();
            }
        });
        check_refused(&bytes, message);
    }
}

#[test]
fn an_invalid_policy_is_refused() {
    let bytes = with_member(
        &small(),
        POLICY,
        br#"{"policies":[{"name":"a","policy":{"local":{"threshold":1.5}}}],"promises":[]}"#,
    );
    check_refused(&bytes, "expected a number in [0, 1], found 1.5");
    let bytes = with_member(
        &small(),
        POLICY,
        br#"{"policies":[{"name":"a","policy":{"window_ms":0}}],"promises":[]}"#,
    );
    check_refused(&bytes, "window_ms: expected 1 to 60000");
}

#[test]
fn a_json_file_of_very_many_small_values_is_refused() {
    let many = json!(vec![json!({ "": 0 }); 300_000]);
    let message = "expected at most 262144 keys and values, found ";
    check_refused(&with_network(|network| network["spec"] = many.clone()), message);
    check_refused(&with_member(&small(), REPORT, &serde_json::to_vec(&many).unwrap()), message);
    let error = tiny().writer().report(many).finish().unwrap_err().to_string();
    assert!(error.contains("report.json: expected at most 262144 keys and values"), "{error}");
}

#[test]
fn members_out_of_order_are_refused() {
    let bundle = small();
    let members = archive::read(&bundle).unwrap();
    let in_order = |order: &[usize]| {
        archive::write(order.iter().map(|&i| (members[i].name.as_str(), members[i].bytes_in(&bundle))))
    };
    assert!(Bundle::from_bytes(&in_order(&[0, 1, 2, 3, 4, 5, 6])).is_ok());
    for order in [
        &[1, 0, 2, 3, 4, 5, 6][..],
        &[0, 1, 3, 2, 4, 5, 6],
        &[0, 1, 2, 2, 3, 4, 5, 6],
        &[0, 1, 2, 3, 5, 4, 6],
        &[0, 1, 2, 3, 4, 5],
        &[0, 1, 2, 3, 4, 6],
        &[0, 1],
        &[],
    ] {
        assert!(Bundle::from_bytes(&in_order(order)).is_err(), "{order:?}");
    }
}

#[test]
fn a_tier_may_have_a_bundle_of_its_own_sections() {
    let whole = Bundle::from_bytes(&small()).unwrap();
    let bytes = whole.only(&["device-1"]).unwrap();
    assert!(bytes.len() < whole.stored_bytes());
    let part = Bundle::from_bytes(&bytes).unwrap();
    assert_eq!(part.network_id(), whole.network_id());
    assert_eq!(part.section("device-1").unwrap().onnx, whole.section("device-1").unwrap().onnx);
    let sections = whole.manifest().sections.iter();
    let held: Vec<_> =
        sections.filter(|s| part.stored_section_bytes(&s.name).is_some()).map(|s| &s.name).collect();
    assert_eq!(held, ["device-1"]);
    assert!(
        whole.manifest().sections.iter().all(|section| whole.stored_section_bytes(&section.name).is_some())
    );
    let error = part.section("cloud").unwrap_err().to_string();
    assert!(error.contains("cloud is not in this bundle (it holds device-1)"), "{error}");
    let error = part.section("edge").unwrap_err().to_string();
    assert!(error.contains("expected one of device-0, device-1, cloud, found \"edge\""), "{error}");
    assert!(part.only(&["cloud"]).is_err());
}

#[test]
fn sections_that_are_missing_or_too_many_are_not_written() {
    let network = TinyNetwork { local: Aggregation::Cc, ..tiny() };
    let error = BundleWriter::new(network.manifest(), Policy::default()).finish().unwrap_err();
    assert!(matches!(error, BundleError::NotInBundle { .. }), "{error}");
    let error = network.writer().section("edge", vec![]).finish().unwrap_err();
    assert!(matches!(error, BundleError::UnknownSection { .. }), "{error}");
}

#[test]
fn a_context_table_of_another_length_is_neither_written_nor_read() {
    let network = TinyNetwork { codes_maps: true, ..tiny() };
    let whole = network.writer().finish().unwrap();
    let table = Bundle::from_bytes(&whole).unwrap().contexts("device-0").unwrap().to_vec();
    for wrong in [&table[1..], &[]] {
        let message = format!("device-0.contexts: expected {} bytes, found {}", table.len(), wrong.len());
        let error = network.writer().contexts("device-0", wrong).finish().unwrap_err().to_string();
        assert!(error.contains(&message), "{error}");
        // A bundle with the wrong table and matching hashes, as another program may write it.
        let members = archive::read(&whole).unwrap();
        let hash = hashes::hex_sha256(wrong);
        let mut manifest: serde_json::Value =
            serde_json::from_slice(&whole[members[0].range.clone()]).unwrap();
        manifest["sections"][0]["contexts_sha256"] = hash.into();
        let bytes = with_member(&whole, "device-0.contexts", wrong);
        let bytes = with_member(&bytes, NETWORK, &serde_json::to_vec(&manifest).unwrap());
        check_refused(&bytes, &message);
    }
}

#[test]
fn a_missing_file_is_named() {
    let error = Bundle::open("no/such.hwb").unwrap_err();
    assert!(
        std::error::Error::source(&error).is_none(),
        "programs that print the chain would say the reason twice"
    );
    let error = error.to_string();
    assert!(error.contains("reading bundle no/such.hwb"), "{error}");
}

proptest! {
    #[test]
    fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..3000)) {
        prop_assert!(Bundle::from_bytes(&bytes).is_err());
    }

    #[test]
    fn several_bytes_changed_are_refused(changes in prop::collection::vec((any::<prop::sample::Index>(), 1u8..), 1..20)) {
        let whole = small();
        let mut bytes = whole.clone();
        for (index, flip) in changes {
            let at = index.index(bytes.len());
            bytes[at] ^= flip;
        }
        prop_assume!(bytes != whole);
        prop_assert!(Bundle::from_bytes(&bytes).is_err());
    }
}

fn signing_key() -> SigningKey {
    let document = ring::signature::Ed25519KeyPair::generate_pkcs8(&ring::rand::SystemRandom::new()).unwrap();
    SigningKey::from_pkcs8(document.as_ref()).unwrap()
}

#[test]
fn a_signature_covers_network_and_policy_and_every_part_of_the_bundle() {
    let (key, other) = (signing_key(), signing_key());
    let plain = Bundle::from_bytes(&small()).unwrap();
    let trusted = [key.verifying_key()];
    let trust = Trust { keys: &trusted, site: None, oldest_release: 0 };
    assert_eq!((plain.signed_by(), plain.check_signature(&trust)), (None, Err(SignatureError::Missing)));
    let signed = Bundle::from_bytes(&plain.signed(&key, Release::new(1, []))).unwrap();
    assert_eq!((signed.check_signature(&trust), signed.network_id()), (Ok(()), plain.network_id()));
    let others = Trust { keys: &[other.verifying_key()], ..trust };
    assert_eq!(signed.check_signature(&others), Err(SignatureError::Stranger(trusted[0])));
    let section = signed.manifest().sections[0].name.clone();
    let part = Bundle::from_bytes(&signed.only(&[&section]).unwrap()).unwrap();
    assert_eq!(part.check_signature(&trust), Ok(()));
    let again = Bundle::from_bytes(&signed.signed(&other, Release::new(1, []))).unwrap();
    assert_eq!(again.signed_by(), Some(other.verifying_key()));
}

/// A file that ends with its SHA-256.
fn weights(body: &[u8]) -> Vec<u8> {
    [body, &Sha256::digest(body)[..]].concat()
}

#[test]
fn trained_weights_are_a_member_that_policies_and_signatures_keep_and_a_tiers_part_leaves_out() {
    let plain = Bundle::from_bytes(&small()).unwrap();
    let (first, second) = (weights(b"first"), weights(b"second"));
    let bytes = plain.with_training_weights(&first).unwrap();
    let with = Bundle::from_bytes(&bytes).unwrap();
    let found = [&plain, &with].map(|bundle| bundle.training_weights().unwrap());
    assert_eq!(found, [None, Some(&first[..])]);
    assert_eq!(with.network_id(), plain.network_id());
    let key = signing_key();
    let signed = Bundle::from_bytes(&with.signed(&key, Release::new(1, []))).unwrap();
    let again = Bundle::from_bytes(&signed.with_training_weights(&second).unwrap()).unwrap();
    assert_eq!(again.signed_by(), signed.signed_by());
    let refused = again.training_weights().unwrap_err().to_string();
    assert!(refused.contains("which its signature does not cover; give the run folder"), "{refused}");
    let tuned = Bundle::from_bytes(&signed.with_policies(signed.policies()).unwrap()).unwrap();
    assert_eq!((tuned.training_weights().unwrap(), tuned.signed_by()), (Some(&first[..]), None));
    let part = Bundle::from_bytes(&signed.only(&["device-1"]).unwrap()).unwrap();
    assert_eq!((part.training_weights().unwrap(), part.signed_by()), (None, signed.signed_by()));

    let refused = plain.with_training_weights(b"no hash").unwrap_err().to_string();
    assert!(refused.contains("altered training-weights"), "{refused}");
    let member = archive::read(&bytes).unwrap().pop().unwrap();
    for at in member.range {
        let mut altered = bytes.clone();
        altered[at] ^= 1;
        check_refused(&altered, "altered training-weights");
    }
}

#[test]
fn an_earlier_release_a_foreign_site_and_a_changed_release_are_refused() {
    let key = signing_key();
    let site = |name| SiteId::new(name).unwrap();
    let release = Release::new(3, [site("south"), site("north"), site("south")]);
    let bytes = Bundle::from_bytes(&small()).unwrap().signed(&key, release);
    let signed = Bundle::from_bytes(&bytes).unwrap();
    let (keys, north, west) = ([key.verifying_key()], site("north"), site("west"));
    let trust = Trust { keys: &keys, site: Some(&north), oldest_release: 3 };
    assert_eq!(signed.check_signature(&trust), Ok(()));
    assert_eq!(signed.check_signature(&Trust { site: None, ..trust }), Ok(()), "it serves any site");
    let sites = vec!["north".to_owned(), "south".to_owned()];
    let foreign = SignatureError::OtherSite { site: west.clone(), sites };
    assert_eq!(signed.check_signature(&Trust { site: Some(&west), ..trust }), Err(foreign));
    let old = SignatureError::Old { expected: 4, found: 3 };
    assert_eq!(signed.check_signature(&Trust { oldest_release: 4, ..trust }), Err(old));

    let text = |from: &str, to: &str| {
        let members = signed.members.iter().map(|member| {
            let bytes = member.bytes_in(&signed.bytes);
            let is_signature = member.name == SIGNATURE;
            let text =
                is_signature.then(|| std::str::from_utf8(bytes).unwrap().replace(from, to).into_bytes());
            (member.name.as_str(), text.unwrap_or_else(|| bytes.to_vec()))
        });
        let members: Vec<_> = members.collect();
        Bundle::from_bytes(&archive::write(members.iter().map(|(name, bytes)| (*name, &bytes[..]))))
    };
    for (from, to) in [("\"number\": 3", "\"number\": 4"), ("\"north\", ", "")] {
        let changed = text(from, to).unwrap();
        let anywhere = Trust { site: None, ..trust };
        assert_eq!(changed.check_signature(&anywhere), Err(SignatureError::Wrong(keys[0])), "{to}");
    }
    let of_1 = text("  \"release\": { \"number\": 3, \"sites\": [\"north\", \"south\"] },\n", "");
    assert!(matches!(of_1, Err(BundleError::NoRelease)), "{of_1:?}");
}

#[test]
fn a_signature_of_another_policy_is_refused() {
    let key = signing_key();
    let signed = Bundle::from_bytes(&Bundle::from_bytes(&small()).unwrap().signed(&key, Release::new(1, [])));
    let signed = signed.unwrap();
    let signature =
        signed.members.iter().find(|member| member.name == SIGNATURE).unwrap().bytes_in(&signed.bytes);
    let mut policy = signed.policy().clone();
    policy.deadline_ms += 1;
    let sections = signed.manifest().sections.iter();
    let writer = sections.fold(BundleWriter::new(signed.manifest().clone(), policy), |writer, section| {
        let bytes = signed.section(&section.name).unwrap();
        let writer = writer.section(section.name.clone(), bytes.onnx.into_owned());
        match bytes.packed {
            Some(packed) => writer.packed(section.name.clone(), packed),
            None => writer,
        }
    });
    let other = Bundle::from_bytes(&writer.finish().unwrap()).unwrap();
    let members = other.members.iter().map(|member| (member.name.as_str(), member.bytes_in(&other.bytes)));
    let forged = Bundle::from_bytes(&archive::write(members.chain([(SIGNATURE, signature)]))).unwrap();
    assert_eq!(
        forged.check_signature(&Trust { keys: &[key.verifying_key()], site: None, oldest_release: 0 }),
        Err(SignatureError::Wrong(key.verifying_key()))
    );
}

#[test]
fn keys_are_read_strictly_and_a_signing_key_is_not_printed() {
    let key = signing_key();
    let text = key.verifying_key().to_string();
    assert_eq!(text.parse::<VerifyingKey>().unwrap(), key.verifying_key());
    assert_eq!(format!("{key:?}"), format!("SigningKey(of {text})"));
    for wrong in ["", "abc", &text[1..], &format!("{text}00"), &text.replace(char::is_numeric, "g")] {
        assert!(wrong.parse::<VerifyingKey>().is_err(), "{wrong}");
    }
    assert!(SigningKey::from_pkcs8(b"no key").unwrap_err().to_string().contains("an ed25519 key in PKCS#8"));
}

#[test]
fn a_bundle_that_is_no_file_is_refused_and_not_waited_for() {
    let refused = Bundle::open("/dev/zero").unwrap_err().to_string();
    assert!(refused.ends_with("expected a file, found something else"), "{refused}");
}
