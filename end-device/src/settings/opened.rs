//! The files and folders that the settings name, opened and checked.

use headwater_inference::bundle::Bundle;
use headwater_inference::policy::{LivePolicy, PolicyChanges, PolicyFileError};
use headwater_protocol::Slot;
use headwater_transport::tls::ClientIdentity;

use super::DeviceSettings;
use crate::config::DeviceConfig;
use crate::error::DeviceError;
use crate::source::Source;

/// The files and folders that the settings name, opened.
pub struct OpenedSettings {
    /// Configuration of the device, with its policy.
    pub config: DeviceConfig,
    /// The bundle.
    pub bundle: Bundle,
    /// The source of frames.
    pub source: Source,
}

impl OpenedSettings {
    /// The policy of the device, for as long as it runs.
    pub fn live_policy(&self, settings: &DeviceSettings) -> LivePolicy {
        LivePolicy::new(settings.policy.clone(), self.bundle.calibrated_policy(), self.config.policy.clone())
    }
}

impl DeviceSettings {
    /// Configuration of the device. The policy file is checked; [`DeviceSettings::open`] applies it to the policy of the bundle.
    ///
    /// # Errors
    /// [`DeviceError::Unfit`] for a policy or a certificate that cannot be used.
    ///
    /// # Panics
    /// Never: the declared range of `slot` is that of slots.
    pub fn config(&self) -> Result<DeviceConfig, DeviceError> {
        self.policy.as_deref().map(PolicyChanges::read).transpose().map_err(unfit_policy)?;
        let broker = self.security.broker_access(&self.broker);
        let broker = broker.map_err(|mistakes| DeviceError::Unfit(mistakes.join("; ")))?;
        if let Some(own) = broker.identity.as_ref().and_then(ClientIdentity::certificate) {
            let holder = [self.site.as_str(), self.group.as_str(), self.id.as_str()];
            let fits = own.check_holder("device", &holder);
            fits.map_err(|mistake| DeviceError::Unfit(format!("tls.certificate_file: {mistake}")))?;
        }
        Ok(DeviceConfig {
            site: self.site.clone(),
            group: self.group.clone(),
            id: self.id.clone(),
            slot: Slot::new(self.slot.get()).expect("the declared range of slots"),
            broker,
            policy: None,
            capture: self.capture(),
            options: self.options.clone(),
        })
    }

    /// Opens the policy, the bundle and the source of frames.
    ///
    /// # Errors
    /// [`DeviceError`] of the first part that cannot be used.
    pub fn open(&self) -> Result<OpenedSettings, DeviceError> {
        let mut config = self.config()?;
        if let Some(dir) = config.options.state_dir.as_deref().filter(|dir| dir.exists() && !dir.is_dir()) {
            return Err(DeviceError::unusable(
                "number kept in",
                dir.display(),
                "expected a folder, found a file",
            ));
        }
        let bundle = Bundle::open(&self.bundle)
            .map_err(|error| DeviceError::unusable("loading the bundle", self.bundle.display(), error))?;
        if let Some(trusted) = &self.security.trusted_keys {
            bundle
                .check_signature(&trusted.0)
                .map_err(|error| DeviceError::unusable("loading the bundle", self.bundle.display(), error))?;
        }
        if let Some(file) = &self.policy {
            let policy = PolicyChanges::policy_of(file, &bundle.calibrated_policy());
            config.policy = Some(policy.map_err(unfit_policy)?);
        }
        // The archive's words for a slot that it does not have say nothing about the setting.
        let (slots, slot) = (bundle.manifest().slots, config.slot);
        if slot.index() >= usize::from(slots) {
            let last = slots.saturating_sub(1);
            return Err(DeviceError::Unfit(format!("slot: the network has slots 0 to {last}, found {slot}")));
        }
        let view = &bundle.manifest().preprocessing;
        let source = Source::open(&self.source, config.capture, config.slot, view)?;
        Ok(OpenedSettings { config, bundle, source })
    }
}

#[expect(clippy::needless_pass_by_value, reason = "`map_err` gives the error by value")]
fn unfit_policy(mistake: PolicyFileError) -> DeviceError {
    DeviceError::Unfit(format!("policy: {mistake}"))
}
