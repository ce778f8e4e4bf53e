//! Targets on the command line, in one grammar: `--target "loss<=0.5,wrong<=2,bytes<=20,p95_ms<=20"`. `--loss 0.5` and the like are short forms.

use std::str::FromStr;

/// A measure that can have a target. `new` takes `loss`, `wrong` and `bytes` into its files and warns of the other measures. `tune` keeps all but
/// `p95_ms` and refuses a target of it, since times are measured on the machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    /// Loss of accuracy against the last exit, in points.
    Loss,
    /// Wrong answers, in percent of the answers given.
    Wrong,
    /// Mean body bytes per device and sample.
    Bytes,
    /// Mean multiply-accumulates per sample.
    Macs,
    /// 95th percentile of the time of a sample, in milliseconds.
    P95Ms,
}

impl Key {
    const ALL: [Self; 5] = [Self::Loss, Self::Wrong, Self::Bytes, Self::Macs, Self::P95Ms];

    /// Name in `--target`.
    pub(crate) const fn name(self) -> &'static str {
        ["loss", "wrong", "bytes", "macs", "p95_ms"][self as usize]
    }
}

/// Targets by their measures: each value is the largest that is allowed.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Asked {
    values: [Option<f64>; Key::ALL.len()],
}

impl Asked {
    /// Target of a measure; `None` if none was asked for.
    pub(crate) fn of(&self, key: Key) -> Option<f64> {
        self.values[key as usize]
    }

    /// Takes the value of a short form. An error if `--target` has that measure too.
    pub(crate) fn with(mut self, key: Key, short: Option<f64>) -> Result<Self, String> {
        let name = key.name();
        if let (Some(long), Some(short)) = (self.of(key), short) {
            return Err(format!(
                "--{name} {short}: expected one target of {name}, found `{name}<={long}` in --target too; leave one out"
            ));
        }
        self.values[key as usize] = self.of(key).or(short);
        Ok(self)
    }

    /// Refuses targets of measures that are not in `kept`; `elsewhere` is the end of the error message.
    pub(crate) fn only(&self, kept: &[Key], elsewhere: &str) -> Result<(), String> {
        let other = Key::ALL.into_iter().find(|key| self.of(*key).is_some() && !kept.contains(key));
        other.map_or(Ok(()), |key| {
            let names: Vec<&str> = kept.iter().map(|key| key.name()).collect();
            Err(format!("--target: expected {}, found {}; {elsewhere}", names.join(", "), key.name()))
        })
    }
}

impl FromStr for Asked {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refused = |expected: &str, found: &str| {
            let found = if found.is_empty() { "nothing".to_owned() } else { format!("`{found}`") };
            Err(format!("expected {expected}, found {found}"))
        };
        let mut asked = Self::default();
        for target in text.split(',').map(str::trim) {
            let Some((name, number)) = target.split_once("<=") else {
                return refused("a target KEY<=NUMBER, such as loss<=0.5", target);
            };
            let (name, number) = (name.trim(), number.trim());
            let Some(key) = Key::ALL.into_iter().find(|key| key.name() == name) else {
                return refused(&format!("one of {}", Key::ALL.map(Key::name).join(", ")), name);
            };
            let Some(value) = number.parse::<f64>().ok().filter(|value| value.is_finite()) else {
                return refused("a number", number);
            };
            if asked.of(key).is_some() {
                return refused(&format!("every measure once, and {name} stands before"), target);
            }
            asked.values[key as usize] = Some(value);
        }
        Ok(asked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Asked, String> {
        text.parse()
    }

    #[test]
    fn targets_are_read_in_any_order_with_spaces() {
        let asked = parsed("bytes<=20, loss <= 0.5,p95_ms<=2e1").unwrap();
        let values = Key::ALL.map(|key| asked.of(key));
        assert_eq!(values, [Some(0.5), None, Some(20.0), None, Some(20.0)]);
    }

    #[test]
    fn a_mistake_is_named() {
        for (text, expected) in [
            ("loss<=0.5,wrng<=2", "one of loss, wrong, bytes, macs, p95_ms, found `wrng`"),
            ("loss=0.5", "a target KEY<=NUMBER, such as loss<=0.5, found `loss=0.5`"),
            ("loss<=0.5,", "a target KEY<=NUMBER, such as loss<=0.5, found nothing"),
            ("", "a target KEY<=NUMBER, such as loss<=0.5, found nothing"),
            ("bytes<= few", "a number, found `few`"),
            ("loss<=1, bytes<=NaN", "a number, found `NaN`"),
            ("ö<=1", "one of loss, wrong, bytes, macs, p95_ms, found `ö`"),
            ("loss<=1, loss<=2", "every measure once, and loss stands before, found `loss<=2`"),
        ] {
            assert_eq!(parsed(text), Err(format!("expected {expected}")));
        }
    }

    #[test]
    fn a_short_form_is_a_target_and_both_together_are_refused() {
        let asked = parsed("bytes<=20").unwrap().with(Key::Loss, Some(1.0)).unwrap();
        assert_eq!((asked.of(Key::Loss), asked.of(Key::Bytes)), (Some(1.0), Some(20.0)));
        assert_eq!(asked.clone().with(Key::Bytes, None), Ok(asked.clone()));
        let refused = asked.with(Key::Bytes, Some(3.0)).unwrap_err();
        assert!(
            refused.starts_with("--bytes 3: expected one target of bytes, found `bytes<=20`"),
            "{refused}"
        );
    }

    #[test]
    fn a_target_that_a_command_does_not_keep_is_refused_with_who_does() {
        let asked = parsed("loss<=1,p95_ms<=20").unwrap();
        assert_eq!(asked.only(&[Key::Loss, Key::P95Ms], ""), Ok(()));
        let refused = asked.only(&[Key::Loss, Key::Bytes], "times are measured");
        assert_eq!(
            refused,
            Err("--target: expected loss, bytes, found p95_ms; times are measured".to_owned())
        );
    }
}
