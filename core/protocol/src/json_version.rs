//! The version of a JSON message, in its field `schema`.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The version of a JSON message. A message of another version is refused when it is read; one without a version counts as version 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Schema<const VERSION: u16>;

impl<const VERSION: u16> Serialize for Schema<VERSION> {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_u16(VERSION)
    }
}

impl<'de, const VERSION: u16> Deserialize<'de> for Schema<VERSION> {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        // A missing field reads as `None`: not every message of version 1 has the field.
        let found = Option::<u64>::deserialize(json)?.unwrap_or(1);
        if found == u64::from(VERSION) {
            return Ok(Self);
        }
        Err(D::Error::custom(format_args!(
            "expected schema {VERSION}, found schema {found}: use programs of one release"
        )))
    }
}

#[cfg(feature = "schema")]
impl<const VERSION: u16> schemars::JsonSchema for Schema<VERSION> {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        format!("Schema{VERSION}").into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "const": VERSION })
    }
}
