//! Checks of the settings, and of the files that the settings name.

use headwater_inference::bundle::Networks;
use headwater_inference::engine::Engine;
use headwater_inference::sections::CloudSection;
use headwater_settings::{Finding, Program, add_mistakes, bundles, no_file, readable_secret};
use headwater_transport::tls::End;

use crate::admission::Admission;
use crate::engine;
use crate::settings::{CloudConfig, CloudSettings, EngineChoice};

impl CloudSettings {
    /// Checks the files that the settings name, the engine and the sections. Returns the findings, and the networks; `None` if these cannot
    /// be opened.
    pub fn checks(&self) -> (Vec<Finding>, Option<Networks>) {
        let security = &self.service.security;
        let files = [("bundle", Some(&self.bundle)), ("next_bundle", self.next_bundle.as_ref())];
        let not_files = files.iter().filter_map(|(key, path)| no_file(key, path.map(AsRef::as_ref), false));
        let mut findings: Vec<_> = not_files.collect();
        let can_open = findings.is_empty();
        findings.extend(security.check_identities([("", security.tls.clone(), End::Server)]));
        findings.extend(readable_secret(self.service.http.keys_file.as_deref()));
        if !can_open {
            return (findings, None);
        }
        let networks = self.open_networks();
        findings.extend(bundles("", networks.as_ref().map(Networks::summary)));
        match (engine::choose(&self.service), &networks) {
            (Ok(engine), Ok(networks)) => findings.push(self.service.check_sections(&*engine, networks)),
            (Err(reason), Ok(_) | Err(_)) => findings.push(Finding::fail(ENGINE, reason, INSTALL)),
            (Ok(_), Err(_)) => {}
        }
        add_mistakes(Self::NAME, &mut findings, Admission::new(&self.service).err().into_iter().collect());
        (findings, networks.ok())
    }
}

const ENGINE: &str = "engine";

const INSTALL: &str = "install ONNX Runtime 1.24 or later and name its library in `onnxruntime`";

impl CloudConfig {
    /// Loads the cloud sections in the engine that the service would choose.
    fn check_sections(&self, engine: &dyn Engine, networks: &Networks) -> Finding {
        let mut sections = networks.bundles().iter().map(|(_, bundle)| CloudSection::load(bundle, engine));
        if let Some(error) = sections.find_map(Result::err) {
            return Finding::fail(ENGINE, error.to_string(), "take a bundle with the cloud's section");
        }
        match (self.engine, engine.name()) {
            (EngineChoice::Auto, "tract") => Finding::ok(
                ENGINE,
                format!("tract (built in); no library of ONNX Runtime is found, which is faster: {INSTALL}"),
            ),
            (EngineChoice::Auto | EngineChoice::Tract | EngineChoice::Ort, name) => Finding::ok(ENGINE, name),
        }
    }
}
