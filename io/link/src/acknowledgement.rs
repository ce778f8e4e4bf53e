//! What became of a message that the broker has to acknowledge.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use rumqttc::{PubAckReason, PublishNotice, PublishNoticeError};

/// The broker's answer to a message at `QoS` 1.
pub struct Acknowledgement {
    answer: Pin<Box<dyn Future<Output = Delivery> + Send>>,
    known: Delivery,
}

/// What became of a message.
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
        /// Whether the broker's access rules do not allow the message.
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

    pub(crate) fn new(notice: PublishNotice) -> Self {
        let answer = async {
            match notice.wait_completion_async().await {
                Ok(()) => Delivery::Acknowledged,
                Err(PublishNoticeError::V5PubAck(code)) => Delivery::of_code(code),
                Err(PublishNoticeError::RetainNotSupported) => Delivery::Refused {
                    reason: "the broker keeps no retained messages".into(),
                    needs_rights: false,
                },
                Err(_) => Delivery::Lost,
            }
        };
        Self { answer: Box::pin(answer), known: Delivery::Pending }
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
    /// The outcome for a reason code of PUBACK.
    fn of_code(code: PubAckReason) -> Self {
        let reason = match code {
            PubAckReason::NotAuthorized => "not authorized",
            PubAckReason::QuotaExceeded => "a quota is used up",
            PubAckReason::TopicNameInvalid => "it does not accept the topic",
            PubAckReason::PayloadFormatInvalid => "it does not accept the payload",
            PubAckReason::PacketIdentifierInUse => "it awaits another message with the same number",
            PubAckReason::UnspecifiedError | PubAckReason::ImplementationSpecificError => {
                "it does not say why"
            }
            // These codes are no refusals; the client library gives no error for `Success`.
            PubAckReason::Success | PubAckReason::NoMatchingSubscribers => return Self::Acknowledged,
        };
        let (reason, needs_rights) = (format!("{reason} ({code:?})"), code == PubAckReason::NotAuthorized);
        Self::Refused { reason, needs_rights }
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
        assert_eq!(of(PubAckReason::NotAuthorized), refused("not authorized (NotAuthorized)", true));
        assert_eq!(of(PubAckReason::QuotaExceeded), refused("a quota is used up (QuotaExceeded)", false));
        assert_eq!(of(PubAckReason::NoMatchingSubscribers), Delivery::Acknowledged);
    }
}
