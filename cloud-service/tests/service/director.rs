//! An engine around tract whose model thread can be held, let go, or made to panic.

use std::sync::{Arc, Condvar, Mutex};

use headwater_inference::bundle::SectionBytes;
use headwater_inference::engine::{Engine, EngineError, Input, Outputs, Section, TractEngine};
use tokio::sync::watch;

/// Directs the model thread.
#[derive(Clone)]
pub(crate) struct Director(Arc<Stage>);

struct Stage {
    mode: Mutex<Mode>,
    changed: Condvar,
    /// Batches that have entered the model since it was last told to hold; loading runs one too.
    entered: watch::Sender<u32>,
}

#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Runs,
    Holds,
    Panics,
}

impl Director {
    pub(crate) fn new() -> Self {
        let entered = watch::Sender::new(0);
        Self(Arc::new(Stage { mode: Mutex::new(Mode::Runs), changed: Condvar::new(), entered }))
    }

    /// From now on a batch that enters the model stays there.
    pub(crate) fn holds(&self) {
        self.0.entered.send_replace(0);
        self.set(Mode::Holds);
    }

    /// Held batches go on.
    pub(crate) fn lets_go(&self) {
        self.set(Mode::Runs);
    }

    /// The next batch, or the one held, panics.
    pub(crate) fn panics(&self) {
        self.set(Mode::Panics);
    }

    /// Waits until so many batches are held.
    pub(crate) async fn entered(&self, batches: u32) {
        let mut entered = self.0.entered.subscribe();
        entered.wait_for(|&entered| entered >= batches).await.unwrap();
    }

    fn set(&self, mode: Mode) {
        *self.0.mode.lock().unwrap() = mode;
        self.0.changed.notify_all();
    }
}

impl Engine for Director {
    fn name(&self) -> &'static str {
        "directed tract"
    }

    fn load(&self, section: &SectionBytes<'_>) -> Result<Box<dyn Section>, EngineError> {
        let section = TractEngine::new().load(section)?;
        Ok(Box::new(Directed { section, director: self.clone() }))
    }
}

struct Directed {
    section: Box<dyn Section>,
    director: Director,
}

impl Section for Directed {
    fn run(&mut self, batch: usize, input: Input<'_>, outputs: &mut Outputs) -> Result<(), EngineError> {
        let stage = &self.director.0;
        stage.entered.send_modify(|entered| *entered += 1);
        let mode = stage.changed.wait_while(stage.mode.lock().unwrap(), |mode| *mode == Mode::Holds).unwrap();
        let panics = *mode == Mode::Panics;
        drop(mode);
        assert!(!panics, "directed to panic");
        self.section.run(batch, input, outputs)
    }
}
