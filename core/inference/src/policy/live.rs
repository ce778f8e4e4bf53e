//! A policy in effect whose file may be read again while a service runs.

use std::fmt;
use std::path::{Path, PathBuf};

use headwater_protocol::PolicyId;

use super::{Policies, Policy, PolicyChanges, PolicyDifference, PolicyFileError};

/// The policy of a running service, and the file that changes the bundle's calibrated policy.
#[derive(Clone, Debug)]
pub struct LivePolicy {
    file: Option<PathBuf>,
    bundle: Policies,
    in_effect: (Policy, PolicyId),
}

/// Result of reading a policy file again.
#[derive(Clone, Debug, PartialEq)]
pub enum Reread {
    /// The service has no policy file.
    NoFile,
    /// The policy of the file has the same values as the policy in effect.
    Unchanged,
    /// Another policy is in effect.
    Changed {
        /// Id of the earlier policy.
        from: PolicyId,
        /// Values that differ; never empty.
        differences: Vec<PolicyDifference>,
    },
    /// The file cannot be used. The earlier policy stays.
    Refused(PolicyFileError),
}

impl Reread {
    /// Id of the policy that was in effect before a change; `None` without a change.
    pub fn earlier(&self) -> Option<PolicyId> {
        match self {
            Self::Changed { from, .. } => Some(*from),
            Self::NoFile | Self::Unchanged | Self::Refused(_) => None,
        }
    }

    /// [`Reread::Changed`], or [`Reread::Unchanged`] if no values differ.
    pub fn from_to(from: PolicyId, differences: Vec<PolicyDifference>) -> Self {
        if differences.is_empty() { Self::Unchanged } else { Self::Changed { from, differences } }
    }

    /// True when the file cannot be used.
    pub fn is_refused(&self) -> bool {
        matches!(self, Self::Refused(_))
    }
}

/// The sentence for the log of a service.
impl fmt::Display for Reread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoFile => f.write_str("there is no policy file (`policy`), and the policy stays"),
            Self::Unchanged => f.write_str("the policy is unchanged"),
            Self::Refused(mistake) => {
                write!(f, "the policy file is refused, and the earlier policy stays: {mistake}")
            }
            Self::Changed { differences, .. } => {
                f.write_str("another policy holds for new samples: ")?;
                for (index, difference) in differences.iter().enumerate() {
                    write!(f, "{}{difference}", if index == 0 { "" } else { ", " })?;
                }
                Ok(())
            }
        }
    }
}

impl LivePolicy {
    /// `in_effect` is the policy in effect with its id; `None` stands for the bundle's policy in use.
    pub fn new(file: Option<PathBuf>, bundle: Policies, in_effect: Option<(Policy, PolicyId)>) -> Self {
        let in_effect = in_effect.unwrap_or_else(|| (bundle.in_use().clone(), bundle.in_use().id()));
        Self { file, bundle, in_effect }
    }

    /// The policy in effect, with its id.
    pub fn in_effect(&self) -> &(Policy, PolicyId) {
        &self.in_effect
    }

    /// The policy file; `None` if the service has none.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// The policies of the bundle.
    pub fn bundle(&self) -> &Policies {
        &self.bundle
    }

    /// Reads the file: true when it keeps out the commands of planning programs, false also without a file that can be used.
    pub fn is_pinned(&self) -> bool {
        let file = self.file.as_deref().map(PolicyChanges::read);
        file.is_some_and(|file| file.is_ok_and(|changes| changes.is_pinned()))
    }

    /// Puts another policy into effect; returns the values that differ.
    pub fn take(&mut self, policy: (Policy, PolicyId)) -> Vec<PolicyDifference> {
        let differences = self.in_effect.0.differences(&policy.0);
        self.in_effect = policy;
        differences
    }

    /// Reads the file again and puts its policy into effect; if the file cannot be used, the earlier policy stays.
    pub fn read_again(&mut self) -> Reread {
        let Some(file) = &self.file else { return Reread::NoFile };
        let policy = match PolicyChanges::policy_of(file, &self.bundle) {
            Ok(policy) => policy,
            Err(error) => return Reread::Refused(error),
        };
        let (_, from) = self.in_effect;
        let differences = self.take(policy);
        Reread::from_to(from, differences)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_again_and_a_wrong_one_leaves_the_policy_as_it_was() {
        let calibrated = Policies::new(Policy { window_ms: 70, ..Policy::default() });
        let folder = std::env::temp_dir().join(format!("headwater-live-policy-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("policy.toml");
        let write = |text: &str| std::fs::write(&file, text).unwrap();
        let mut live = LivePolicy::new(Some(file.clone()), calibrated.clone(), None);
        assert!(matches!(live.read_again(), Reread::Refused(_)), "there is no file yet");
        write("window_ms = 40\n");
        let Reread::Changed { from, differences } = live.read_again() else { panic!("{live:?}") };
        assert_eq!(
            (from, differences[0].to_string().as_str()),
            (calibrated.in_use().id(), "window_ms 70 -> 40")
        );
        let sentence = Reread::Changed { from, differences }.to_string();
        assert_eq!(sentence, "another policy holds for new samples: window_ms 70 -> 40");
        assert_eq!(live.read_again(), Reread::Unchanged);
        write("window_ms = 0\n");
        let refused = live.read_again();
        assert!(matches!(&refused, Reread::Refused(error) if error.to_string().contains("policy.toml:1: ")));
        assert_eq!(live.in_effect().0.window_ms, 40);
        write("");
        assert!(matches!(live.read_again(), Reread::Changed { .. }));
        assert_eq!(&live.in_effect().0, calibrated.in_use());
        assert_eq!(LivePolicy::new(None, calibrated, None).read_again(), Reread::NoFile);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
