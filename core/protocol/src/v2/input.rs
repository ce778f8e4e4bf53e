//! Reading one input of a request.

use serde::Deserialize;
use serde_json::Value;

use super::V2Error;
use super::head::{BINARY_SIZE, Tensor, check_datatype, no_data, other_length, shown};

/// An input, and what its tensor must be.
pub(super) struct Input<'a> {
    pub(super) name: &'static str,
    pub(super) datatype: &'static str,
    /// Largest value.
    pub(super) max: u8,
    /// The values in words.
    pub(super) expected: &'static str,
    /// Shape of one sample.
    pub(super) shape: &'a [usize],
}

impl Input<'_> {
    /// Reads a tensor, binary or JSON (flat or nested); returns the number of samples and the bytes.
    ///
    /// The shape is checked before the data, so that it bounds what is allocated.
    pub(super) fn read(
        &self,
        tensor: &Tensor,
        raw: Option<&[u8]>,
        max_samples: usize,
    ) -> Result<(usize, Vec<u8>), V2Error> {
        let name = self.name;
        tensor.parameters.check_known(name, &[BINARY_SIZE])?;
        check_datatype(tensor, self.datatype)?;
        let shape = Vec::<usize>::deserialize(&tensor.shape).unwrap_or_default();
        let samples = match shape.split_first() {
            Some((&samples, rest)) if rest == self.shape && (1..=max_samples).contains(&samples) => samples,
            _ => return Err(self.other_shape(&tensor.shape, max_samples)),
        };
        let elements = samples * self.shape.iter().product::<usize>();
        let bytes = match (raw, &tensor.data) {
            (Some(raw), None) => {
                if raw.len() != elements {
                    return Err(other_length(name, elements, raw.len()));
                }
                if let Some(at) = raw.iter().position(|&byte| byte > self.max) {
                    return Err(self.other_value(at, &raw[at].to_string()));
                }
                raw.to_vec()
            }
            (None, Some(data)) => {
                let mut bytes = Vec::with_capacity(elements);
                self.flatten(data, elements, &mut bytes)?;
                if bytes.len() != elements {
                    return Err(self.other_count(elements, &bytes.len().to_string()));
                }
                bytes
            }
            _ => return Err(no_data(tensor)),
        };
        Ok((samples, bytes))
    }

    /// Appends the numbers of `value`, flat or nested, to `out`; more than `max` numbers in `out` are an error.
    fn flatten(&self, value: &Value, max: usize, out: &mut Vec<u8>) -> Result<(), V2Error> {
        let byte = match value {
            Value::Array(items) => return items.iter().try_for_each(|item| self.flatten(item, max, out)),
            _ if out.len() >= max => return Err(self.other_count(max, "more")),
            Value::Bool(is_set) => Some(u8::from(*is_set)),
            Value::Number(number) => number.as_u64().and_then(|number| u8::try_from(number).ok()),
            Value::Null | Value::String(_) | Value::Object(_) => None,
        };
        match byte.filter(|byte| *byte <= self.max) {
            Some(byte) => out.push(byte),
            None => return Err(self.other_value(out.len(), &shown(value))),
        }
        Ok(())
    }

    fn other_shape(&self, found: &Value, max_samples: usize) -> V2Error {
        let of_sample: String = self.shape.iter().map(|size| format!(", {size}")).collect();
        let (name, found) = (self.name, shown(found));
        V2Error(format!(
            "{name}: expected shape [n{of_sample}] with n from 1 to {max_samples}, found {found}"
        ))
    }

    /// `at` is the position in the flat tensor.
    fn other_value(&self, at: usize, found: &str) -> V2Error {
        V2Error(format!("{}: value {at}: expected {}, found {found}", self.name, self.expected))
    }

    fn other_count(&self, expected: usize, found: &str) -> V2Error {
        V2Error(format!("{}: expected {expected} values, found {found}", self.name))
    }
}
