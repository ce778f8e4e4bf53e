//! The model thread: owns the cloud section, runs batches, publishes its health.

use std::sync::Arc;

use headwater_inference::bundle::Bundle;
use headwater_inference::engine::Engine;
use headwater_inference::sections::{CloudSection, SectionError};
use headwater_protocol::Fault;
use headwater_telemetry::WorkLoop;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{debug, error};

use crate::health::Health;
use crate::metrics::ModelCounts;
use crate::queue::{Batcher, Entry};

/// Starts the thread, which loads the section first.
///
/// # Errors
/// The system's error if it starts no further thread.
pub(crate) fn spawn(
    bundle: Arc<Bundle>,
    engine: Arc<dyn Engine>,
    mut batcher: Batcher,
    counts: Arc<Mutex<ModelCounts>>,
    work_loop: WorkLoop,
) -> std::io::Result<watch::Receiver<Health>> {
    let (health, watching) = watch::channel(Health::Loading);
    std::thread::Builder::new().name("headwater-model".into()).spawn(move || {
        // `entries` is declared first and so dropped last: callers learn of a panic only after the health has changed.
        let mut entries = Vec::new();
        let mut at_end = HealthAtEnd { health, end: None };
        match CloudSection::load(&bundle, &*engine) {
            Ok(section) => {
                // The bytes of the bundle are not needed any more.
                drop(bundle);
                at_end.health.send_replace(Health::Ready);
                serve(section, &mut batcher, &mut entries, (&counts, &work_loop));
                at_end.end = Some(Health::Stopped);
            }
            Err(error) => at_end.end = Some(Health::Failed(error.to_string())),
        }
    })?;
    Ok(watching)
}

/// Publishes the health when the thread ends, after a panic too.
struct HealthAtEnd {
    health: watch::Sender<Health>,
    end: Option<Health>,
}

impl Drop for HealthAtEnd {
    fn drop(&mut self) {
        let end = self.end.take().unwrap_or_else(|| {
            error!("the model thread panicked: the service cannot answer for its network");
            Health::Failed("the model thread panicked".into())
        });
        self.health.send_replace(end);
    }
}

fn serve(
    section: CloudSection,
    batcher: &mut Batcher,
    entries: &mut Vec<Entry>,
    (counts, work_loop): (&Mutex<ModelCounts>, &WorkLoop),
) {
    let mut runner = Runner { section, features: Vec::new(), presence: Vec::new(), counts };
    loop {
        work_loop.end_round();
        batcher.next_run(counts, entries);
        if entries.is_empty() {
            return;
        }
        work_loop.begin_round();
        let started = Instant::now();
        for entry in entries.iter() {
            counts.lock().queue.add(started - entry.queued);
        }
        match runner.run(entries) {
            Ok(logits) => answer(entries, &logits),
            // One entry must not fail the other entries: each entry is run again alone.
            Err(_) if entries.len() > 1 => {
                for entry in entries.drain(..) {
                    let result = runner.run(std::slice::from_ref(&entry));
                    reply(entry, result.map_err(|error| failed(&error)));
                }
            }
            Err(error) => entries.drain(..).for_each(|entry| reply(entry, Err(failed(&error)))),
        }
    }
}

/// The section, and buffers that join entries to one batch.
struct Runner<'a> {
    section: CloudSection,
    features: Vec<u8>,
    presence: Vec<bool>,
    counts: &'a Mutex<ModelCounts>,
}

impl Runner<'_> {
    /// Runs the entries as one batch; returns logits `[samples of all entries, classes]`.
    fn run(&mut self, entries: &[Entry]) -> Result<Vec<f32>, SectionError> {
        let samples = entries.iter().map(|entry| entry.batch.samples).sum();
        let started = Instant::now();
        let result = if let [entry] = entries {
            self.section.run(samples, &entry.batch.features, &entry.batch.presence)
        } else {
            self.features.clear();
            self.presence.clear();
            for entry in entries {
                self.features.extend_from_slice(&entry.batch.features);
                self.presence.extend_from_slice(&entry.batch.presence);
            }
            self.section.run(samples, &self.features, &self.presence)
        };
        let mut counts = self.counts.lock();
        counts.model.add(started.elapsed());
        counts.batches += 1;
        counts.samples += samples as u64;
        counts.largest_batch = counts.largest_batch.max(samples as u64);
        result
    }
}

/// Splits logits `[samples, classes]` by entry and replies.
fn answer(entries: &mut Vec<Entry>, logits: &[f32]) {
    let samples: usize = entries.iter().map(|entry| entry.batch.samples).sum();
    let classes = logits.len() / samples.max(1);
    let mut rest = logits;
    for entry in entries.drain(..) {
        let (logits, others) = rest.split_at(entry.batch.samples * classes);
        rest = others;
        reply(entry, Ok(logits.to_vec()));
    }
}

fn failed(error: &SectionError) -> Fault {
    error!(%error, "the model failed on a request");
    Fault::Internal
}

fn reply(entry: Entry, result: Result<Vec<f32>, Fault>) {
    if entry.reply.send(result).is_err() {
        debug!("a caller left while its batch ran");
    }
}
