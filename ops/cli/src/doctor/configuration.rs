//! Settings that the program of a tier would refuse, as `--check-config` names them.

use headwater_end_device::Device;
use headwater_protocol::PolicyId;

use super::finding::Finding;
use super::tier::{Tier, TierNetworks, TierSettings};

/// Check that names a mistake better than this one, if that check has found a fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Certificate,
    Bundle,
    Disk,
    Nobody,
}

/// Settings of a tier, checked.
pub(super) struct Checked {
    pub(super) findings: Vec<Finding>,
    /// Policy in effect of each member; `None` where the settings cannot be opened.
    pub(super) policies: Vec<Option<PolicyId>>,
}

/// Findings about a file that cannot be read as settings.
pub(super) fn unreadable(mistakes: &[String], program: &str) -> Vec<Finding> {
    let advice = format!("correct the file; `{program} --help` explains every setting");
    mistakes.iter().map(|mistake| Finding::fail("configuration", mistake, &advice)).collect()
}

/// Opens every file of the settings, and checks what the program's start would refuse. `others` are the findings of the checks that own some
/// of the settings.
pub(super) fn check(tier: &Tier, networks: &TierNetworks, others: &[Finding]) -> Checked {
    let (mistakes, policies) = open(tier, networks);
    let is_named = |owner: Owner| {
        let owned = match owner {
            Owner::Certificate => "certificate",
            Owner::Bundle => "bundle",
            Owner::Disk => "disk",
            Owner::Nobody => return false,
        };
        others
            .iter()
            .any(|finding| finding.level == super::finding::Level::Fail && finding.check.starts_with(owned))
    };
    let mut findings: Vec<_> = mistakes
        .iter()
        .filter(|mistake| !is_named(owner(key(mistake))))
        .map(|mistake| {
            let key = key(mistake);
            let check = if key == "policy" { "policy" } else { "configuration" };
            Finding::fail(check, mistake, advice(key, tier))
        })
        .collect();
    if mistakes.is_empty() {
        findings.push(Finding::ok("configuration", format!("{} takes every setting", tier.kind.program())));
    }
    Checked { findings, policies }
}

/// Mistakes of the settings, and the policy of each member.
fn open(tier: &Tier, networks: &TierNetworks) -> (Vec<String>, Vec<Option<PolicyId>>) {
    match &tier.settings {
        TierSettings::Device(settings) => {
            // Without a bundle the rest cannot be opened, and the check of the bundle says why.
            if networks.iter().all(Option::is_none) {
                return (settings.open_access().err().iter().map(ToString::to_string).collect(), vec![None]);
            }
            match settings.open() {
                Ok((device, bundle, source)) => {
                    let policy = device.policy.as_ref().map_or(bundle.policy_id(), |(_, id)| *id);
                    let checked = Device::check(&device, &bundle, &source);
                    (checked.err().iter().map(ToString::to_string).collect(), vec![Some(policy)])
                }
                Err(error) => (vec![error.to_string()], vec![None]),
            }
        }
        TierSettings::Aggregator(loaded) => match loaded.open_checked() {
            Ok(config) => {
                let policy = config.groups.iter().map(|group| {
                    let of_file = group.policy.as_ref().map(|(_, id)| *id);
                    Some(of_file.unwrap_or_else(|| group.networks.current().policy_id()))
                });
                (Vec::new(), policy.collect())
            }
            Err(mistakes) => (mistakes, vec![None; tier.members.len()]),
        },
        TierSettings::Cloud(settings) => (settings.open_files(), Vec::new()),
    }
}

/// Key of a mistake, without the place of a group: `policy` in `group[1].policy: ...`.
fn key(mistake: &str) -> &str {
    let key = mistake.split(':').next().unwrap_or_default();
    match key.split_once("].") {
        Some((table, key)) if table.starts_with("group[") => key,
        Some(_) | None => key,
    }
}

fn owner(key: &str) -> Owner {
    match key {
        "bundle" | "next_bundle" => Owner::Bundle,
        "certificate_file" | "key_file" => Owner::Certificate,
        "journal.path" => Owner::Disk,
        key if key == "tls" || key.starts_with("tls.") => Owner::Certificate,
        _ => Owner::Nobody,
    }
}

fn advice(key: &str, tier: &Tier) -> String {
    let (file, program) = (tier.file.display(), tier.kind.program());
    match key {
        "policy" => "correct the policy file (docs/policy.toml explains every key, `headwater policy show` prints the policy in effect)".into(),
        "broker.password_file" | "cloud.key_file" => {
            "write the secret into the first line of the file, for the program's user alone (mode 0600)".into()
        }
        "http.keys_file" => {
            "write a key of 16 characters or more into the file (openssl rand -hex 16), and the same key into the file of `cloud.key_file` \
             of each aggregator"
                .into()
        }
        _ => format!("correct it in {file}; `{program} --help` explains every setting"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tier::TierKind;
    use super::*;

    /// Settings of a file with this text; all mistakes where it is refused.
    fn read(kind: TierKind, text: &str) -> Result<Tier, Vec<String>> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        Tier::read(kind, file.path())
    }

    #[track_caller]
    fn check_refused(kind: TierKind, text: &str, expected: &str) {
        let mistakes = read(kind, text).err().unwrap_or_default();
        assert!(mistakes.iter().any(|mistake| mistake.contains(expected)), "{expected} in {mistakes:?}");
    }

    #[test]
    fn a_stream_as_kind_of_a_source_and_a_device_that_is_named_twice_are_refused_with_a_hint() {
        let device = "site = \"hall\"\ngroup = \"gate\"\nid = \"cam-0\"\nslot = 0\nbundle = \"a.hwb\"\n";
        let stream = format!("{device}[source]\nkind = \"rtsp\"\n");
        check_refused(TierKind::Device, &stream, "use \"stdin\" behind ffmpeg (docs/sources.md)");
        let group =
            "site = \"hall\"\ngroup = \"gate\"\nbundle = \"a.hwb\"\ndevices = \"cam-0,cam-1,cam-0\"\n";
        check_refused(TierKind::Aggregator, group, "devices: expected each name once, found cam-0 again");
    }

    #[test]
    fn a_slot_that_the_network_does_not_have_is_named_with_its_slots() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        let text = format!(
            "site = \"hall\"\ngroup = \"gate\"\nid = \"cam-0\"\nslot = 7\nbundle = \"{root}/models/shipped/fashion-6cam.hwb\"\n\
             [source]\npath = \"{root}/samples/shipped/fashion-6cam-300.tar.gz\"\n"
        );
        let tier = read(TierKind::Device, &text).unwrap_or_else(|mistakes| panic!("{mistakes:?}"));
        let (_, networks) = crate::doctor::bundles::open(&tier);
        let checked = check(&tier, &networks, &[]);
        let found = &checked.findings[0].found;
        assert!(found.contains("slot: the network has slots 0 to 5, found 7"), "{found}");
    }

    #[test]
    fn a_certificate_that_has_expired_is_a_warning_of_the_settings() {
        use headwater_identity::{BrokerOptions, Member, Role, Site};
        let folder = tempfile::tempdir().unwrap();
        let (own, hosts) = (folder.path().join("site"), ["localhost".to_owned()]);
        let options = BrokerOptions::default();
        let mut site = Site::create(&own, "hall".parse().unwrap(), &hosts, &options, 30).unwrap();
        let cloud = Member::new(Role::Cloud, None, "cloud").unwrap();
        let files = site.enroll(cloud, &hosts, 0).unwrap();
        let file = folder.path().join("cloud.toml");
        let path = |name: &str| files.join(name).display().to_string();
        let text = format!(
            "bundle = \"a.hwb\"\n[tls]\nauthority_file = {:?}\ncertificate_file = {:?}\nkey_file = {:?}\n",
            path("authority.pem"),
            path("certificate.pem"),
            path("key.pem")
        );
        std::fs::write(&file, text).unwrap();
        // A certificate ends at a whole second, so one of no days has ended when it is made.
        let sources = headwater_settings::Sources::of_file(&file);
        let loaded = headwater_settings::load::<headwater_cloud_service::CloudSettings>(sources).unwrap();
        let warnings = loaded.warnings.join("\n");
        assert!(
            warnings.contains("tls.certificate_file: ") && warnings.contains("expired 0 days ago"),
            "{warnings}"
        );
    }

    #[test]
    fn the_key_of_a_mistake_is_that_behind_the_group() {
        for (mistake, expected) in [
            ("policy: policy.toml: unknown field", "policy"),
            ("group[1].policy: policy.toml: unknown field", "policy"),
            ("tls: a.pem: expected a certificate", "tls"),
            ("no key at all", "no key at all"),
        ] {
            assert_eq!(key(mistake), expected);
        }
        assert_eq!(owner("tls.certificate_file"), Owner::Certificate);
        assert_eq!(owner("policy"), Owner::Nobody);
    }
}
