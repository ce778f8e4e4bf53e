//! Triggers: binary from our programs, JSON from programs of a user.

use serde::{Deserialize, Serialize};

use crate::ids::{SampleId, Session, clipped};
use crate::limits::Limits;
use crate::message::{Body, Message, decode};
use crate::message_error::DecodeError;

/// A trigger in JSON: `{"sample": 17}`.
///
/// The id must be there: devices and leader read the trigger each on their own and must name the same sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TriggerMessage {
    /// Id of the sample.
    pub sample: SampleId,
}

/// A trigger of either form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trigger {
    /// Id of the sample.
    pub sample: SampleId,
    /// Session of the network that the trigger names; `None` for JSON, which triggers any network of the group.
    pub session: Option<Session>,
}

/// Byte order mark, which some editors put before a text.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

impl Trigger {
    /// Longest trigger in JSON.
    pub const MAX_JSON_BYTES: usize = 1024;

    /// Largest step above the newest id at which one trigger alone is believed; see [`TriggeredIds`](crate::TriggeredIds).
    pub const MAX_STEP: u64 = 1000;

    /// Largest id of a trigger; 2^30 ids are left above it, so that ids do not run out.
    pub const MAX_ID: SampleId = SampleId(u64::MAX - (1 << 30));

    /// Reads a message on the topic `trigger`. A message that begins with `{`, after a byte order mark or white space, is JSON: no binary
    /// message of this version begins with these bytes.
    ///
    /// # Errors
    /// [`DecodeError`] for bytes that are neither form, and for a binary message of another kind.
    pub fn read(payload: &[u8], limits: &Limits) -> Result<Self, DecodeError> {
        let text = payload.strip_prefix(BYTE_ORDER_MARK).unwrap_or(payload).trim_ascii_start();
        match decode(payload, limits) {
            Ok(Message { header, body: Body::Trigger }) => {
                Ok(Self { sample: header.sample, session: Some(header.session) })
            }
            _ if text.first() == Some(&b'{') => Self::read_json(text),
            Ok(Message { body, .. }) => Err(DecodeError::NotATrigger(body.kind().name())),
            Err(error) => Err(error),
        }
    }

    fn read_json(payload: &[u8]) -> Result<Self, DecodeError> {
        if payload.len() > Self::MAX_JSON_BYTES {
            return Err(DecodeError::Oversize { limit: Self::MAX_JSON_BYTES, found: payload.len() });
        }
        match serde_json::from_slice::<TriggerMessage>(payload) {
            Ok(TriggerMessage { sample }) => Ok(Self { sample, session: None }),
            Err(error) => Err(DecodeError::TriggerJson(clipped(&error.to_string(), 200))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::Fault;
    use crate::header::Header;
    use crate::kind::VERSION;
    use crate::message::encode;

    fn read(payload: &[u8]) -> Result<Trigger, DecodeError> {
        Trigger::read(payload, &Limits::default())
    }

    fn binary(body: Body<'_>) -> Vec<u8> {
        let header = Header::to_group(Session([0xab, 0xcd]), SampleId(17));
        let mut bytes = Vec::new();
        encode(&Message { header, body }, &Limits::default(), &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn both_forms_name_the_sample() {
        let sample = SampleId(17);
        let session = Some(Session([0xab, 0xcd]));
        assert_eq!(read(&binary(Body::Trigger)), Ok(Trigger { sample, session }));
        for text in [
            r#"{"sample":17}"#,
            "{ \"sample\": 17, \"why\": \"a door opened\" }\n",
            " {\"sample\":17}",
            "\r\n\t{\"sample\":17}",
            "\u{feff}{\"sample\":17}",
        ] {
            assert_eq!(read(text.as_bytes()), Ok(Trigger { sample, session: None }));
        }
        let largest = format!(r#"{{"sample":{}}}"#, u64::MAX);
        assert_eq!(read(largest.as_bytes()).unwrap().sample, SampleId(u64::MAX));
        assert_ne!(b'{' >> 4, VERSION, "no binary message of this version begins like JSON");
    }

    #[test]
    fn what_is_no_trigger_is_refused_by_its_reason() {
        for (text, fault) in [
            ("{}", Fault::Malformed),
            (r#"{"sample":-1}"#, Fault::Malformed),
            (r#"{"sample":1.5}"#, Fault::Malformed),
            (r#"{"sample":"17"}"#, Fault::Malformed),
            (r#"{"sample":18446744073709551616}"#, Fault::Malformed),
            (r#"{"sample":17"#, Fault::Malformed),
            (r#"{"sample":17} x"#, Fault::Malformed),
            ("17", Fault::Malformed),
            ("", Fault::Malformed),
        ] {
            assert_eq!(read(text.as_bytes()).unwrap_err().fault(), fault, "{text}");
        }
        let error = read(b"{}").unwrap_err().to_string();
        assert!(error.contains("sample"), "{error}");
        assert_eq!(read(&binary(Body::Gone)), Err(DecodeError::NotATrigger("gone")));
        let long = format!(r#"{{"sample":17,"why":"{}"}}"#, "x".repeat(Trigger::MAX_JSON_BYTES));
        let oversize = DecodeError::Oversize { limit: Trigger::MAX_JSON_BYTES, found: long.len() };
        assert_eq!(read(long.as_bytes()), Err(oversize));
        let error = read(format!(r#"{{"sample":"{}"}}"#, "é".repeat(400)).as_bytes()).unwrap_err();
        assert!(error.to_string().chars().count() < 300, "{error}");
    }
}
