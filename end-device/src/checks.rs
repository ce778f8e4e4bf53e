//! Checks of the settings and of what they name.

use headwater_inference::bundle::{Bundle, Networks};
use headwater_inference::engine::PackedEngine;
use headwater_inference::sections::DeviceSection;
use headwater_protocol::PolicyId;
use headwater_settings::{Finding, Program, Written, add_mistakes, bundles, no_file, readable_secret};
use headwater_transport::tls::End;

use crate::device::Device;
use crate::engine::ChosenEngine;
use crate::settings::DeviceSettings;

impl DeviceSettings {
    /// Checks everything that the settings name, and everything that the start would refuse. Also returns the networks if the bundle can be
    /// opened, and with them the id of the policy in effect if policy, bundle and source can be opened.
    pub fn checks(&self) -> (Vec<Finding>, Option<(Networks, Option<PolicyId>)>) {
        let files = [
            ("bundle", Some(&self.bundle), false),
            ("policy", self.policy.as_ref(), false),
            ("source.path", self.source.path.as_ref(), true),
        ];
        let not_files =
            files.iter().filter_map(|(key, path, folder)| no_file(key, path.map(AsRef::as_ref), *folder));
        let mut findings: Vec<_> = not_files.collect();
        let can_open = findings.is_empty();
        findings.extend(self.security.check_identities([("", self.security.tls.clone(), End::Client)]));
        findings.extend(readable_secret(self.broker.password_file.as_deref()));
        findings.extend(self.state_folder().map(|folder| folder.check()));
        if !can_open {
            return (findings, None);
        }
        let trust = self.security.trust(&self.full_name(), Some(&self.site));
        let trust = trust.map_err(|mistake| vec![mistake]);
        let networks = trust.and_then(|trust| Networks::open(&self.bundle, None, trust.as_ref()));
        findings.extend(bundles("", networks.as_ref().map(Networks::summary)));
        let mut mistakes = self.security.broker_access(&self.broker).err().unwrap_or_default();
        let mut policy = None;
        if let Ok(networks) = &networks {
            findings.push(self.check_engine(networks.current()));
            let view = &networks.current().manifest().preprocessing;
            let difference = self.source.difference_from_training(view, self.slot);
            let advice = "leave both settings out, or train the network on such views";
            findings.extend(difference.map(|difference| Finding::warn("source", difference, advice)));
            let opened = self.open().and_then(|(device, bundle, source)| {
                policy = Some(device.policy.as_ref().map_or(bundle.policy_id(), |(_, id)| *id));
                Device::check(&device, &bundle, &source)
            });
            mistakes.extend(opened.err().map(|error| error.to_string()).filter(|_| mistakes.is_empty()));
        } else {
            mistakes.extend(self.open_access().err().map(|error| error.to_string()));
        }
        add_mistakes(Self::NAME, &mut findings, mistakes);
        (findings, networks.ok().map(|networks| (networks, policy)))
    }

    /// The state folder, with the bytes by which the spool may still grow there; `None` without a state folder.
    fn state_folder(&self) -> Option<Written> {
        let folder = self.state_dir.clone()?;
        let entries = std::fs::read_dir(folder.join("spool")).into_iter().flatten().flatten();
        let used: u64 = entries.filter_map(|entry| entry.metadata().ok()).map(|entry| entry.len()).sum();
        let wanted = self.spool.max_bytes.saturating_sub(used);
        Some(Written { key: "state_dir".into(), folder, file: None, wanted })
    }

    /// Loads the section in the engine that the device would use.
    fn check_engine(&self, bundle: &Bundle) -> Finding {
        const CHECK: &str = "engine";
        const INSTALL: &str = "install ONNX Runtime 1.24 or later and name its library in `onnxruntime`";
        let chosen = match ChosenEngine::new(self, bundle) {
            Ok(chosen) => chosen,
            Err(error) => return Finding::fail(CHECK, error.to_string(), INSTALL),
        };
        if let Err(error) = DeviceSection::load(bundle, self.slot, &*chosen.engine) {
            let advice = "take a bundle with this slot's section, or correct `slot`";
            return Finding::fail(CHECK, format!("section of slot {}: {error}", self.slot), advice);
        }
        match (chosen.replaced, chosen.engine.name()) {
            (Some(reason), _) => Finding::warn(
                CHECK,
                format!("tract, which is slower: {reason}"),
                format!("export a bundle with packed sections, or: {INSTALL}"),
            ),
            (None, "packed") => {
                Finding::ok(CHECK, format!("packed, with {} instructions", PackedEngine.path()))
            }
            (None, name) => Finding::ok(CHECK, name),
        }
    }
}
