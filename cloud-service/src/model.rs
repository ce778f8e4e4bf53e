//! The model thread: owns the cloud section, runs batches, tells its health.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use headwater_inference::bundle::Bundle;
use headwater_inference::engine::Engine;
use headwater_inference::sections::{CloudSection, SectionError};
use headwater_protocol::Fault;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tracing::{debug, error};

use crate::batch::Batcher;
use crate::health::Health;
use crate::model_counters::ModelCounters;
use crate::queue::Entry;

/// Starts the thread. Its section is loaded there too: that is model work.
///
/// # Errors
/// Whatever the system says when it has no thread to give.
pub(crate) fn spawn(
    bundle: Arc<Bundle>,
    engine: Arc<dyn Engine>,
    queue: mpsc::Receiver<Entry>,
    max_batch: usize,
    counters: Arc<ModelCounters>,
) -> std::io::Result<watch::Receiver<Health>> {
    let (health, watching) = watch::channel(Health::Loading);
    std::thread::Builder::new().name("headwater-model".into()).spawn(move || {
        // Declared first, dropped last: whoever waits hears of a panic only when the health tells of it.
        let (mut batcher, mut entries) = (Batcher::new(queue, max_batch), Vec::new());
        let mut last_words = LastWords { health, end: None };
        match CloudSection::load(&bundle, &*engine) {
            Ok(section) => {
                // The section holds what it needs; the compressed bytes can go.
                drop(bundle);
                last_words.health.send_replace(Health::Ready);
                serve(section, &mut batcher, &mut entries, &counters);
                last_words.end = Some(Health::Stopped);
            }
            Err(error) => last_words.end = Some(Health::Failed(error.to_string())),
        }
    })?;
    Ok(watching)
}

/// Tells the health at the end of the thread, whichever way it ends.
struct LastWords {
    health: watch::Sender<Health>,
    end: Option<Health>,
}

impl Drop for LastWords {
    fn drop(&mut self) {
        let end = self.end.take().unwrap_or_else(|| {
            error!("the model thread panicked: this service answers nothing more");
            Health::Failed("the model thread panicked".into())
        });
        self.health.send_replace(end);
    }
}

fn serve(section: CloudSection, batcher: &mut Batcher, entries: &mut Vec<Entry>, counters: &ModelCounters) {
    let mut runner = Runner { section, features: Vec::new(), presence: Vec::new(), counters };
    loop {
        batcher.gather(counters, entries);
        if entries.is_empty() {
            return;
        }
        let started = Instant::now();
        for entry in entries.iter() {
            counters.queue.observe(started - entry.queued);
        }
        match runner.run(entries) {
            Ok(logits) => answer(entries, &logits),
            // One entry must not fail its neighbours: each gets a run of its own.
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

/// The section and the buffers in which entries are joined to one batch.
struct Runner<'a> {
    section: CloudSection,
    features: Vec<u8>,
    presence: Vec<bool>,
    counters: &'a ModelCounters,
}

impl Runner<'_> {
    /// Logits `[samples of all entries, classes]`.
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
        self.counters.model.observe(started.elapsed());
        self.counters.batches.fetch_add(1, Relaxed);
        self.counters.samples.fetch_add(samples as u64, Relaxed);
        self.counters.largest_batch.fetch_max(samples as u64, Relaxed);
        result
    }
}

/// Cuts `[samples, classes]` into the parts of the entries.
fn answer(entries: &mut Vec<Entry>, logits: &[f32]) {
    let samples: usize = entries.iter().map(|entry| entry.batch.samples).sum();
    let classes = logits.len() / samples.max(1);
    let mut rest = logits;
    for entry in entries.drain(..) {
        let (own, left) = rest.split_at(entry.batch.samples * classes);
        rest = left;
        reply(entry, Ok(own.to_vec()));
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
