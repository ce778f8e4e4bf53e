//! Outcome of a message at `QoS` 1, which the broker has to acknowledge.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use rumqttc::{PublishNotice, PublishNoticeError};

use crate::broker_bytes::Seen;

/// The broker's answer to a message at `QoS` 1.
pub struct Acknowledgement {
    answer: Pin<Box<dyn Future<Output = Delivery> + Send>>,
    known: Delivery,
}

/// Outcome of a message at `QoS` 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// No answer yet.
    Pending,
    /// The broker has the message.
    Acknowledged,
    /// The broker refused the message.
    Refused {
        /// Reason, for people.
        reason: String,
        /// True when the broker's access rules do not allow the message.
        needs_rights: bool,
    },
    /// The connection ended before an answer: the broker may have the message.
    Lost,
}

impl Acknowledgement {
    /// Waits for the answer, or for the end of the connection. Cancelling the wait loses nothing.
    pub async fn wait(&mut self) -> Delivery {
        if self.known == Delivery::Pending {
            self.known = self.answer.as_mut().await;
        }
        self.known.clone()
    }

    pub(crate) fn new(notice: PublishNotice, seen: Arc<Mutex<Seen>>) -> Self {
        Self { answer: Box::pin(async move { Delivery::of(notice, &seen).await }), known: Delivery::Pending }
    }

    /// Returns the outcome that is known now, without waiting.
    pub fn poll(&mut self) -> Delivery {
        if self.known == Delivery::Pending {
            let mut context = Context::from_waker(Waker::noop());
            if let Poll::Ready(known) = self.answer.as_mut().poll(&mut context) {
                self.known = known;
            }
        }
        self.known.clone()
    }
}

impl Delivery {
    /// Waits until the broker has answered a message or the connection has ended.
    pub(crate) async fn of(notice: PublishNotice, seen: &Mutex<Seen>) -> Self {
        let code = match notice.wait_completion_async().await {
            Ok(()) => return Self::Acknowledged,
            Err(PublishNoticeError::V5PubAck(code)) => code as u8,
            // PUBREC belongs to QoS 2; a broker may still send it for a message at QoS 1.
            Err(PublishNoticeError::V5PubRec(code)) => code as u8,
            Err(PublishNoticeError::RetainNotSupported) => 0x9a,
            Err(_) => return Self::Lost,
        };
        Self::of_code(seen.lock().refusal(code))
    }

    /// The outcome for a reason code of PUBACK or PUBREC (MQTT 5, section 2.4). Every code from 0x80 on is a refusal, listed or not.
    fn of_code(code: u8) -> Self {
        let (name, reason) = match code {
            // Codes below 0x80 are successes; the client library returns no error for them.
            0x00..0x80 => return Self::Acknowledged,
            0x80 => ("UnspecifiedError", "it does not say why"),
            0x83 => ("ImplementationSpecificError", "it does not say why"),
            0x87 => ("NotAuthorized", "not authorized"),
            0x89 => ("ServerBusy", "it is busy"),
            0x90 => ("TopicNameInvalid", "it does not accept the topic"),
            0x91 => ("PacketIdentifierInUse", "it awaits another message with the same number"),
            0x95 => {
                ("PacketTooLarge", "the message is above its limit, such as message_size_limit of Mosquitto")
            }
            0x96 => ("MessageRateTooHigh", "messages come too fast"),
            0x97 => ("QuotaExceeded", "a quota is used up"),
            0x99 => ("PayloadFormatInvalid", "it does not accept the payload"),
            0x9a => ("RetainNotSupported", "it keeps no retained messages"),
            0x9b => ("QoSNotSupported", "it does not allow this QoS"),
            _ => ("unknown code", "it does not say why"),
        };
        let reason = format!("{reason} ({name}, 0x{code:02x})");
        Self::Refused { reason, needs_rights: code == 0x87 }
    }
}

impl fmt::Debug for Acknowledgement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Acknowledgement").field(&self.known).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_whether_access_rules_are_its_reason() {
        let refused = |reason: &str, needs_rights| Delivery::Refused { reason: reason.into(), needs_rights };
        let of = Delivery::of_code;
        assert_eq!(of(0x87), refused("not authorized (NotAuthorized, 0x87)", true));
        assert_eq!(of(0x97), refused("a quota is used up (QuotaExceeded, 0x97)", false));
        let too_large =
            "the message is above its limit, such as message_size_limit of Mosquitto (PacketTooLarge, 0x95)";
        assert_eq!(of(0x95), refused(too_large, false));
        assert_eq!(of(0xc3), refused("it does not say why (unknown code, 0xc3)", false));
        assert_eq!(of(0x10), Delivery::Acknowledged);
    }
}
