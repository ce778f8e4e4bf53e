//! The files and folders that the settings name, opened and checked.

use std::fmt::Display;

use headwater_inference::bundle::Bundle;
use headwater_inference::policy::{LivePolicy, Policy, PolicyChanges, PolicyFileError};
use headwater_protocol::{DeviceId, GroupId, PolicyId, SiteId, Slot};
use headwater_settings::defaults;
use headwater_transport::BrokerAccess;
use headwater_transport::tls::ClientIdentity;

use crate::error::DeviceError;
use crate::settings::DeviceSettings;
use crate::source::Source;

/// A device with its policy and its access to the broker, opened.
#[derive(Clone, Debug)]
pub struct OpenedDevice {
    /// The settings as they were read.
    pub settings: DeviceSettings,
    /// Address of the broker, and the certificate and user that the device shows the broker.
    pub broker: BrokerAccess,
    /// Policy that replaces the bundle's policy, with its id; `None` for the bundle's policy. Only a device with an exit (configurations
    /// b, d) or with a positive `batch_ms` may have one.
    pub policy: Option<(Policy, PolicyId)>,
}

impl OpenedDevice {
    /// A device with these names and otherwise default settings.
    pub fn new(
        site: SiteId,
        group: GroupId,
        id: DeviceId,
        slot: Slot,
        broker: impl Into<BrokerAccess>,
    ) -> Self {
        let settings = DeviceSettings { site, group, id, slot, ..defaults() };
        Self { settings, broker: broker.into(), policy: None }
    }

    /// The policy of the running device; the policy can be read again from its file.
    pub fn live_policy(&self, bundle: &Bundle) -> LivePolicy {
        LivePolicy::new(self.settings.policy.clone(), bundle.policies().clone(), self.policy.clone())
    }
}

impl DeviceSettings {
    /// Reads the identity and the password of the device. The policy file is checked; [`DeviceSettings::open`] applies it to the policy of
    /// the bundle.
    ///
    /// # Errors
    /// [`DeviceError::Unfit`] for a policy, a password or a certificate that cannot be used.
    pub fn open_access(&self) -> Result<OpenedDevice, DeviceError> {
        self.policy.as_deref().map(PolicyChanges::read).transpose().map_err(unfit_policy)?;
        let broker = self.security.broker_access(&self.broker);
        let broker = broker.map_err(|mistakes| DeviceError::Unfit(mistakes.join("; ")))?;
        if let Some(own) = broker.identity.as_ref().and_then(ClientIdentity::certificate) {
            let holder = [self.site.as_str(), self.group.as_str(), self.id.as_str()];
            let fits = own.check_holder("device", &holder);
            fits.map_err(|mistake| DeviceError::Unfit(format!("tls.certificate_file: {mistake}")))?;
        }
        Ok(OpenedDevice { settings: self.clone(), broker, policy: None })
    }

    /// Writes the release number of the signed bundle to the release file, if bundles must be signed and `release_file` is set.
    ///
    /// # Errors
    /// [`DeviceError::Unfit`] for a file that cannot be written.
    pub fn keep_release(&self, bundle: &Bundle) -> Result<(), DeviceError> {
        let release = bundle.release().map(|signed| signed.number);
        self.security.keep_release(&self.full_name(), release).map_err(DeviceError::Unfit)
    }

    /// Site, group and name of the device.
    pub(crate) fn full_name(&self) -> String {
        format!("{}/{}/{}", self.site, self.group, self.id)
    }

    /// Opens the access to the broker, the policy, the bundle and the source of frames.
    ///
    /// # Errors
    /// [`DeviceError`] of the first part that cannot be used.
    pub fn open(&self) -> Result<(OpenedDevice, Bundle, Source), DeviceError> {
        let mut device = self.open_access()?;
        if let Some(dir) = self.state_dir.as_deref().filter(|dir| dir.exists() && !dir.is_dir()) {
            return Err(DeviceError::unusable(
                "number kept in",
                dir.display(),
                "expected a folder, found a file",
            ));
        }
        let unusable =
            |error: &dyn Display| DeviceError::unusable("loading the bundle", self.bundle.display(), error);
        let bundle = Bundle::open(&self.bundle).map_err(|error| unusable(&error))?;
        let trust = self.security.trust(&self.full_name(), Some(&self.site)).map_err(DeviceError::Unfit)?;
        if let Some(trust) = trust {
            bundle.check_signature(&trust).map_err(|error| unusable(&error))?;
        }
        if let Some(file) = &self.policy {
            let policy = PolicyChanges::policy_of(file, bundle.policies());
            device.policy = Some(policy.map_err(unfit_policy)?);
        }
        // The slot is checked before the source is opened: an archive's error for a missing slot would not name the setting `slot`.
        check_slot(&bundle, self.slot)?;
        let view = &bundle.manifest().preprocessing;
        let source = Source::open(&self.source, self.capture(), self.slot, view)?;
        Ok((device, bundle, source))
    }
}

/// Checks that the network has the slot.
pub(crate) fn check_slot(bundle: &Bundle, slot: Slot) -> Result<(), DeviceError> {
    let slots = bundle.manifest().slots;
    if slot.index() < usize::from(slots) {
        return Ok(());
    }
    let last = slots.saturating_sub(1);
    Err(DeviceError::Unfit(format!("slot: the network has slots 0 to {last}, found {slot}")))
}

#[expect(clippy::needless_pass_by_value, reason = "`map_err` gives the error by value")]
fn unfit_policy(mistake: PolicyFileError) -> DeviceError {
    DeviceError::Unfit(format!("policy: {mistake}"))
}
