//! `policy.json`: policies by name, and the promises about them.

use headwater_protocol::{Exit, PolicyName};
use serde::{Deserialize, Serialize};

use super::{Policy, PolicyError, Promise};

const MAX_POLICIES: usize = 16;

/// The policies of a bundle by name; the first is in use. Each policy has the promises that name it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Stored", into = "Stored")]
pub struct Policies(Vec<Named>);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Named {
    name: PolicyName,
    policy: Policy,
}

/// `policy.json` as it is stored.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    policies: Vec<Named>,
    promises: Vec<Promise>,
}

impl Policies {
    /// Name of the policy that training leaves in a bundle.
    ///
    /// # Panics
    /// Never: `calibrated` is a valid name.
    pub fn calibrated() -> PolicyName {
        PolicyName::new("calibrated").expect("a name")
    }

    /// One policy, named `calibrated`.
    pub fn new(policy: Policy) -> Self {
        Self(Vec::new()).with(Self::calibrated(), policy)
    }

    /// These policies with `policy` in use; it replaces a policy of the same name. The promises of `policy` then name `name` alone, and no
    /// other promise names `name`.
    #[must_use]
    pub fn with(mut self, name: PolicyName, mut policy: Policy) -> Self {
        self.0.retain(|own| own.name != name);
        for promise in self.0.iter_mut().flat_map(|own| &mut own.policy.promises) {
            promise.policies.retain(|own| *own != name);
        }
        for promise in &mut policy.promises {
            promise.policies = vec![name.clone()];
        }
        self.0.insert(0, Named { name, policy });
        self
    }

    /// The policy in use.
    ///
    /// # Panics
    /// Never: there is at least one policy.
    pub fn in_use(&self) -> &Policy {
        &self.0.first().expect("at least one policy").policy
    }

    /// The policy of a name; `None` if there is none of that name.
    pub fn get(&self, name: &PolicyName) -> Option<&Policy> {
        self.0.iter().find(|own| own.name == *name).map(|own| &own.policy)
    }

    /// Names and policies, the one in use first.
    pub fn iter(&self) -> impl Iterator<Item = (&PolicyName, &Policy)> {
        self.0.iter().map(|own| (&own.name, &own.policy))
    }

    /// Checks each policy, and that each policy states every exit of a network.
    ///
    /// # Errors
    /// The first mistake.
    pub fn check(&self, exits: &[Exit]) -> Result<(), PolicyError> {
        for (name, policy) in self.iter() {
            policy.check().and_then(|()| policy.check_exits(exits)).map_err(|error| match self.0.len() {
                1 => error,
                _ => PolicyError::Named { name: name.clone(), error: Box::new(error) },
            })?;
        }
        Ok(())
    }
}

impl TryFrom<Stored> for Policies {
    type Error = PolicyError;
    fn try_from(stored: Stored) -> Result<Self, PolicyError> {
        let mut policies = Self(stored.policies);
        if policies.0.is_empty() || policies.0.len() > MAX_POLICIES {
            return Err(PolicyError::Policies(policies.0.len()));
        }
        for (index, named) in policies.0.iter().enumerate() {
            if policies.0.iter().take(index).any(|earlier| earlier.name == named.name) {
                return Err(PolicyError::NameTwice(named.name.clone()));
            }
        }
        for promise in stored.promises {
            if promise.policies.is_empty() {
                return Err(PolicyError::PromiseOfNone);
            }
            for name in &promise.policies {
                let Some(named) = policies.0.iter_mut().find(|own| own.name == *name) else {
                    return Err(PolicyError::UnknownName(name.clone()));
                };
                named.policy.promises.push(promise.clone());
            }
        }
        Ok(policies)
    }
}

impl From<Policies> for Stored {
    fn from(Policies(policies): Policies) -> Self {
        let mut promises: Vec<Promise> = Vec::new();
        for promise in policies.iter().flat_map(|named| &named.policy.promises) {
            if !promises.contains(promise) {
                promises.push(promise.clone());
            }
        }
        Self { policies, promises }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Bound, CalibrationData, Presence};
    use super::*;

    fn name(name: &str) -> PolicyName {
        PolicyName::new(name).unwrap()
    }

    fn promise(loss: f64) -> Promise {
        Promise {
            kind: Bound::Net.into(),
            policies: Vec::new(),
            loss,
            confidence: 0.95,
            presence: Presence { missing: 0.0, by_missing: Vec::new() },
            part: CalibrationData { data: "made".into(), samples: 500, groups: None, largest_group: None },
            answered: None,
        }
    }

    #[test]
    fn policies_come_back_from_their_file_with_their_promises_the_newest_in_use() {
        let first = Policy { promises: vec![promise(0.01)], ..Policy::default() };
        let second = Policy { window_ms: 20, promises: vec![promise(0.02)], ..Policy::default() };
        let policies = Policies::new(first.clone()).with(name("frugal"), second);
        let text = serde_json::to_string(&policies).unwrap();
        assert_eq!(serde_json::from_str::<Policies>(&text).unwrap(), policies);
        let found: Vec<_> = policies.iter().map(|(name, policy)| (name.as_str(), policy.window_ms)).collect();
        assert_eq!(found, [("frugal", 20), ("calibrated", 50)]);
        assert_eq!(policies.in_use().promises[0].policies, [name("frugal")]);
        let replaced = policies.with(name("calibrated"), first);
        assert_eq!((replaced.iter().count(), replaced.in_use().window_ms), (2, 50));
    }

    #[test]
    fn one_promise_may_be_about_several_policies() {
        let mut json =
            serde_json::to_value(Policies::new(Policy::default()).with(name("b"), Policy::default()))
                .unwrap();
        let shared = Promise { policies: vec![name("b"), name("calibrated")], ..promise(0.01) };
        json["promises"] = serde_json::json!([shared]);
        let policies: Policies = serde_json::from_value(json.clone()).unwrap();
        assert!(policies.iter().all(|(_, policy)| policy.promises == [shared.clone()]), "{policies:?}");
        assert_eq!(serde_json::to_value(&policies).unwrap(), json);
        let other = policies.with(name("b"), Policy::default());
        let left = &other.get(&name("calibrated")).unwrap().promises[0];
        assert_eq!(left.policies, [name("calibrated")], "the new policy was not tested");
    }

    #[test]
    fn a_file_that_says_no_policies_is_refused_with_what_was_expected() {
        let policy = serde_json::to_value(Policy::default()).unwrap();
        let named = |name: &str| serde_json::json!({"name": name, "policy": policy});
        let of = |names: &[&str]| {
            serde_json::to_value(Promise {
                policies: names.iter().map(|n| name(n)).collect(),
                ..promise(0.01)
            })
        };
        let many: Vec<_> = (0..17).map(|index| named(&index.to_string())).collect();
        for (policies, promises, expected) in [
            (vec![], vec![], "policies: expected 1 to 16, found 0"),
            (many, vec![], "policies: expected 1 to 16, found 17"),
            (vec![named("a"), named("a")], vec![], "policies: expected names that differ, found a twice"),
            (vec![named("a")], vec![of(&[])], "promises: expected the names of its policies, found none"),
            (vec![named("a")], vec![of(&["a", "b"])], "expected the name of a policy of the bundle, found b"),
            (vec![named("a/b")], vec![], "policy name"),
        ] {
            let promises: Vec<_> = promises.into_iter().map(Result::unwrap).collect();
            let json = serde_json::json!({"policies": policies, "promises": promises});
            let refused = serde_json::from_value::<Policies>(json).unwrap_err().to_string();
            assert!(refused.contains(expected), "{expected}: {refused}");
        }
        let earlier = serde_json::from_value::<Policies>(policy).unwrap_err().to_string();
        assert!(earlier.contains("expected `policies` or `promises`"), "{earlier}");
    }

    #[test]
    fn each_policy_is_checked_and_a_mistake_names_it() {
        let policies = Policies::new(Policy::default());
        let wrong = Policy { window_ms: 0, ..Policy::default() };
        let error = policies.clone().with(name("b"), wrong.clone()).check(&[]).unwrap_err().to_string();
        assert!(error.starts_with("policy b: window_ms: expected 1 to 60000"), "{error}");
        assert_eq!(policies.check(&Exit::FIRST), Ok(()));
        assert!(Policies::new(wrong).check(&[]).unwrap_err().to_string().starts_with("window_ms"));
    }
}
