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
                let is_nested = data.as_array().and_then(|items| items.first()).is_some_and(Value::is_array);
                if is_nested {
                    self.nested(data, &shape, &mut bytes)?;
                } else {
                    self.nested(data, &[elements], &mut bytes)?;
                }
                bytes
            }
            _ => return Err(no_data(tensor)),
        };
        Ok((samples, bytes))
    }

    /// Appends the numbers of `value`, lists of exactly this shape, to `out`.
    fn nested(&self, value: &Value, shape: &[usize], out: &mut Vec<u8>) -> Result<(), V2Error> {
        let Some((&expected, rest)) = shape.split_first() else { return self.number(value, out) };
        let Value::Array(items) = value else {
            return Err(self.other_value(out.len(), &shown(value)));
        };
        if items.len() != expected {
            return Err(self.other_count(expected, items.len(), out.len()));
        }
        items.iter().try_for_each(|item| self.nested(item, rest, out))
    }

    fn number(&self, value: &Value, out: &mut Vec<u8>) -> Result<(), V2Error> {
        let byte = match value {
            // Only a tensor of truth values has them.
            Value::Bool(is_set) if self.max == 1 => Some(u8::from(*is_set)),
            Value::Number(number) => number.as_u64().and_then(|number| u8::try_from(number).ok()),
            Value::Bool(_) | Value::Null | Value::String(_) | Value::Object(_) | Value::Array(_) => None,
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

    /// `at` is the position in the flat tensor at which the list begins.
    fn other_count(&self, expected: usize, found: usize, at: usize) -> V2Error {
        let place = if at == 0 { String::new() } else { format!("list at value {at}: ") };
        V2Error(format!("{}: {place}expected {expected} values, found {found}", self.name))
    }
}
