//! A trial of a source: waits for one frame, and names the size and format of the frame.

use std::time::Duration;

use headwater_protocol::SampleId;
use tokio::time::sleep;

use super::Source;
use crate::config::Capture;

/// Time between two checks of whether a frame has come.
const POLL: Duration = Duration::from_millis(10);

impl Source {
    /// Starts the source, waits until a frame gives a view, and ends the source. Returns size and format of the frame; `None` for an archive,
    /// whose frames were read when it was opened. Needs a tokio runtime.
    ///
    /// # Errors
    /// A text with the reasons for which no frame came: faults, the end of the source, or the end of `limit`.
    pub async fn first_frame(self, limit: Duration) -> Result<Option<String>, String> {
        if !self.is_live() {
            return Ok(None);
        }
        let (report, is_asked) = (self.report.clone(), !self.has_own_timing());
        let running = self.start(Capture::Trigger, false);
        let mut running = running.map_err(|error| error.to_string())?;
        // A camera with a snapshot URL sends a frame only when it is asked.
        running.capture(SampleId(0), 0);
        let faults = || {
            let counts = report.lock();
            counts.frame_faults.keys().copied().filter(|fault| *fault != "none_yet").collect::<Vec<_>>()
        };
        let is_told = || {
            let has_frame = report.lock().source_frames > 0;
            let has_ended = report.latest().waits.is_some();
            has_frame || has_ended || is_asked && !faults().is_empty()
        };
        let looks = async {
            while !is_told() {
                sleep(POLL).await;
            }
        };
        let ended = tokio::select! {
            biased;
            () = looks => "",
            _ = running.next() => "the source ended without a frame",
            () = sleep(limit) => "no frame in time",
        };
        running.end().await;
        if report.lock().source_frames > 0 {
            return Ok(Some(report.latest().format.clone().unwrap_or_else(|| "a frame".into())));
        }
        let mut reasons: Vec<_> = report.latest().waits.clone().into_iter().collect();
        let faults = faults();
        // The reason of a camera that is asked has the fault already.
        let has_fault = is_asked && !reasons.is_empty();
        reasons.extend((!faults.is_empty() && !has_fault).then(|| format!("faults: {}", faults.join(", "))));
        reasons.extend((!ended.is_empty()).then(|| ended.to_owned()));
        Err(reasons.join("; "))
    }
}
