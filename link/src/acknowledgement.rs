//! What became of a message that the broker has to acknowledge.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use rumqttc::{PublishNotice, PublishNoticeError};

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
    },
    /// The connection ended before an answer: the broker may have the message.
    Lost,
}

impl Acknowledgement {
    pub(crate) fn new(notice: PublishNotice) -> Self {
        let answer = async {
            match notice.wait_completion_async().await {
                Ok(()) => Delivery::Acknowledged,
                Err(
                    error @ (PublishNoticeError::V5PubAck(_)
                    | PublishNoticeError::V5PubRec(_)
                    | PublishNoticeError::V5PubComp(_)
                    | PublishNoticeError::RetainNotSupported),
                ) => Delivery::Refused { reason: error.to_string() },
                Err(_) => Delivery::Lost,
            }
        };
        Self { answer: Box::pin(answer), known: Delivery::Pending }
    }

    /// What is known now, without waiting.
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

impl fmt::Debug for Acknowledgement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Acknowledgement").field(&self.known).finish()
    }
}
