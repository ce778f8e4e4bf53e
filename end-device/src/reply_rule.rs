//! The reply that a device sends for an output of its section.

use headwater_inference::bundle::Bundle;
use headwater_inference::exit::ExitInput;
use headwater_inference::manifest::FeatureEncoding;
use headwater_inference::policy::{ExitPolicy, Policy};
use headwater_inference::sections::TierOutput;
use headwater_protocol::{DeviceDecision, Exit, PolicyId};

/// Rule that chooses the reply, from the network's configuration and the policy.
#[derive(Clone, Debug)]
pub(crate) struct ReplyRule {
    /// Policy of the exit `device`, with its id; `None` in a network without this exit (all but configurations b, d).
    exit: Option<(ExitPolicy, PolicyId)>,
    has_section: bool,
    encoding: FeatureEncoding,
}

/// Reply of a device for one sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Reply {
    /// Scores. The leader may request the features, unless they follow unasked ([`ReplyRule::sends_features_unasked`]).
    Summary,
    /// The view itself.
    Input,
    /// The device's own decision alone.
    Decided(DeviceDecision),
}

impl ReplyRule {
    /// The rule for a network, under the bundle's policy or the policy given in its place.
    pub(crate) fn of(bundle: &Bundle, policy: Option<(Policy, PolicyId)>) -> Self {
        let manifest = bundle.manifest();
        let exit = || match policy {
            Some((policy, id)) => (policy.of(Exit::DEVICE).clone(), id),
            None => (bundle.policy().of(Exit::DEVICE).clone(), bundle.policy_id()),
        };
        Self {
            exit: manifest.configuration.has(Exit::DEVICE).then(exit),
            has_section: manifest.configuration.has_device_section(),
            encoding: manifest.features.encoding,
        }
    }

    /// Id of the policy of the exit `device`; `None` in a network without this exit.
    pub(crate) fn policy(&self) -> Option<PolicyId> {
        self.exit.as_ref().map(|(_, id)| *id)
    }

    /// Replaces the policy of the exit `device` for outputs from now on; without this exit nothing changes.
    pub(crate) fn set_policy(&mut self, policy: ExitPolicy, id: PolicyId) {
        if let Some(exit) = &mut self.exit {
            *exit = (policy, id);
        }
    }

    /// True when features follow a summary without a request.
    pub(crate) fn sends_features_unasked(&self) -> bool {
        self.exit.is_some()
    }

    /// Chooses the reply for an output.
    ///
    /// # Errors
    /// A text for the log when the section gave features that are not finite, which the leader would refuse.
    pub(crate) fn reply_to(&self, output: &TierOutput) -> Result<Reply, String> {
        if !self.has_section {
            return Ok(Reply::Input);
        }
        if !self.encoding.takes(&output.features) {
            return Err("the section gave features that are not finite".into());
        }
        let Some((exit, policy)) = &self.exit else { return Ok(Reply::Summary) };
        let assessment = exit.assess(ExitInput::of_device(&output.scores));
        if !assessment.leaves {
            return Ok(Reply::Summary);
        }
        let (class, confidence) = (assessment.class, assessment.confidence);
        Ok(Reply::Decided(DeviceDecision { class, confidence, policy: *policy }))
    }
}

#[cfg(test)]
mod tests {
    use headwater_inference::manifest::Configuration;
    use headwater_inference::policy::{ExitThreshold, Threshold};
    use headwater_inference::testing::TinyNetwork;

    use super::*;

    fn reply_rule(configuration: Configuration, threshold: f32) -> ReplyRule {
        let network = TinyNetwork { policy: policy(threshold), ..TinyNetwork::of(configuration) };
        ReplyRule::of(&Bundle::from_bytes(&network.bundle()).unwrap(), None)
    }

    fn policy(threshold: f32) -> Policy {
        let mut policy = Policy::default();
        policy.of_mut(Exit::DEVICE).threshold = Threshold::One(ExitThreshold::new(threshold).unwrap());
        policy
    }

    fn output() -> TierOutput {
        TierOutput { scores: vec![0.0, 9.0, 0.0, 0.0], features: vec![0; 8] }
    }

    #[test]
    fn a_device_that_is_alone_decides_when_it_is_sure_and_sends_all_when_not() {
        for configuration in [Configuration::B, Configuration::D] {
            let sure = reply_rule(configuration, 0.5).reply_to(&output());
            assert!(matches!(sure, Ok(Reply::Decided(DeviceDecision { class: 1, .. }))), "{sure:?}");
            let unsure = reply_rule(configuration, 0.0);
            assert_eq!(unsure.reply_to(&output()), Ok(Reply::Summary));
            assert!(unsure.sends_features_unasked());
        }
    }

    #[test]
    fn a_policy_of_the_device_replaces_the_bundle_s() {
        let network = TinyNetwork { policy: policy(0.0), ..TinyNetwork::of(Configuration::B) };
        let bundle = Bundle::from_bytes(&network.bundle()).unwrap();
        let id = PolicyId([7; 8]);
        let reply = ReplyRule::of(&bundle, Some((policy(1.0), id))).reply_to(&output());
        assert!(
            matches!(reply, Ok(Reply::Decided(DeviceDecision { policy, .. })) if policy == id),
            "{reply:?}"
        );
    }

    #[test]
    fn another_policy_holds_for_the_outputs_that_follow() {
        let mut rule = reply_rule(Configuration::B, 0.0);
        assert_eq!(rule.reply_to(&output()), Ok(Reply::Summary));
        let id = PolicyId([7; 8]);
        rule.set_policy(policy(1.0).of(Exit::DEVICE).clone(), id);
        let reply = rule.reply_to(&output());
        assert!(matches!(reply, Ok(Reply::Decided(DeviceDecision { policy, .. })) if policy == id));
    }

    #[test]
    fn a_policy_gives_a_device_of_a_group_no_exit() {
        let mut rule = reply_rule(Configuration::C, 1.0);
        rule.set_policy(policy(1.0).of(Exit::DEVICE).clone(), PolicyId([7; 8]));
        assert_eq!(rule.reply_to(&output()), Ok(Reply::Summary));
    }

    #[test]
    fn a_device_of_a_group_never_decides() {
        for configuration in [Configuration::C, Configuration::E, Configuration::F] {
            assert_eq!(reply_rule(configuration, 1.0).reply_to(&output()), Ok(Reply::Summary));
        }
    }

    #[test]
    fn a_device_without_a_section_sends_its_view() {
        let rule = reply_rule(Configuration::A, 1.0);
        assert_eq!(rule.reply_to(&TierOutput::default()), Ok(Reply::Input));
    }

    #[test]
    fn features_that_are_not_finite_are_not_sent() {
        let network = TinyNetwork { encoding: FeatureEncoding::F32, ..TinyNetwork::of(Configuration::C) };
        let rule = ReplyRule::of(&Bundle::from_bytes(&network.bundle()).unwrap(), None);
        let features = f32::NAN.to_le_bytes().to_vec();
        assert!(rule.reply_to(&TierOutput { features, ..output() }).is_err());
    }
}
