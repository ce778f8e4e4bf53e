//! A running source, as the agent sees it: asked for the frame of a sample, or heard when it has something by itself.

use std::borrow::Cow;
use std::future::pending;
use std::time::Duration;

use headwater_protocol::SampleId;
use headwater_samples::View;
use headwater_samples::archive::Frame;

use super::archive::Frames;
use super::faults::{Faults, FrameFault};
#[cfg(feature = "http")]
use super::http::Asking;
use super::outlet::{Inlet, SourceEnd};

/// A running source.
pub(crate) struct Feed {
    kind: Kind,
    is_over: bool,
}

enum Kind {
    Archive(Frames),
    Timed {
        inlet: Inlet,
        end: SourceEnd,
        max_age: Duration,
        faults: Faults,
    },
    #[cfg(feature = "http")]
    Asked(Box<Asking>),
}

/// What a source has for a sample it is asked for.
pub(crate) enum Taken<'a> {
    /// Its frame.
    Frame(Frame<'a>),
    /// Nothing: it comes as an event when it was asked for, or never, and that is counted.
    Nothing,
}

/// What a source has by itself.
pub(crate) enum Event {
    /// A frame that is a sample.
    Own(View),
    /// The frame of a sample that was asked for.
    #[cfg(feature = "http")]
    Answer { sample: SampleId, captured_us: u64, view: View },
    /// Nothing more comes; clean when it came to its end and did not break off.
    Ended { is_clean: bool },
}

impl Feed {
    pub(crate) fn of_archive(frames: Frames) -> Self {
        Self { kind: Kind::Archive(frames), is_over: false }
    }

    pub(crate) fn of_inlet(inlet: Inlet, end: SourceEnd, max_age: Duration, faults: Faults) -> Self {
        Self { kind: Kind::Timed { inlet, end, max_age, faults }, is_over: false }
    }

    #[cfg(feature = "http")]
    pub(crate) fn of_snapshots(asking: Asking) -> Self {
        Self { kind: Kind::Asked(Box::new(asking)), is_over: false }
    }

    /// True after [`Event::Ended`].
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    /// What it has for a sample that is captured now.
    #[cfg_attr(not(feature = "http"), expect(unused_variables, reason = "only what is asked needs the time"))]
    pub(crate) fn take(&mut self, sample: SampleId, captured_us: u64) -> Taken<'_> {
        match &mut self.kind {
            Kind::Archive(frames) => Taken::Frame(frames.frame(sample)),
            Kind::Timed { .. } if self.is_over => Taken::Nothing,
            // Frames that are samples themselves answer nothing else.
            Kind::Timed { inlet: Inlet::Each(_), .. } => Taken::Nothing,
            Kind::Timed { inlet: Inlet::Newest(newest), max_age, faults, .. } => {
                let shot = newest.borrow().clone();
                let Some(shot) = shot else {
                    faults.count(FrameFault::NoneYet, "a sample is due and no frame has come yet");
                    return Taken::Nothing;
                };
                let age = shot.came.elapsed();
                if age > *max_age {
                    let (age_ms, most_ms) = (age.as_millis(), max_age.as_millis());
                    let what = format_args!("the newest frame came {age_ms} ms ago, max_age_ms is {most_ms}");
                    faults.count(FrameFault::Stale, what);
                    return Taken::Nothing;
                }
                Taken::Frame(Frame::View(Cow::Owned(shot.view.clone())))
            }
            #[cfg(feature = "http")]
            Kind::Asked(asking) => {
                asking.ask(sample, captured_us);
                Taken::Nothing
            }
        }
    }

    /// Waits for what it has by itself; nothing is lost when the wait is given up.
    pub(crate) async fn next(&mut self) -> Event {
        let end = match &mut self.kind {
            Kind::Archive(_) => return pending().await,
            Kind::Timed { inlet: Inlet::Each(each), end, .. } => match each.recv().await {
                Some(shot) => return Event::Own(shot.view),
                None => end,
            },
            Kind::Timed { inlet: Inlet::Newest(newest), end, .. } => {
                while newest.changed().await.is_ok() {}
                end
            }
            #[cfg(feature = "http")]
            Kind::Asked(asking) => loop {
                match asking.answer().await {
                    Some(super::http::Answer { sample, captured_us, view: Some(view) }) => {
                        return Event::Answer { sample, captured_us, view };
                    }
                    Some(_) => {}
                    // The sender lives as long as the receiver.
                    None => return pending().await,
                }
            },
        };
        self.is_over = true;
        Event::Ended { is_clean: end.is_clean() }
    }
}
