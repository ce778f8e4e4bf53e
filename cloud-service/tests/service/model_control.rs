//! An engine around tract whose model thread a test can stop, let run, or make panic.

use std::sync::{Arc, Condvar, Mutex};

use headwater_inference::bundle::SectionBytes;
use headwater_inference::engine::{Engine, EngineError, Input, Outputs, Section, TractEngine};
use tokio::sync::watch;

#[derive(Clone)]
pub(crate) struct ModelControl(Arc<Shared>);

struct Shared {
    mode: Mutex<Mode>,
    changed: Condvar,
    /// Number of batches that have entered the model since the last call of `stop`; loading the section runs one batch too.
    entered: watch::Sender<u32>,
}

#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Run,
    Stop,
    Panic,
}

impl ModelControl {
    pub(crate) fn new() -> Self {
        let entered = watch::Sender::new(0);
        Self(Arc::new(Shared { mode: Mutex::new(Mode::Run), changed: Condvar::new(), entered }))
    }

    /// Stops every batch that enters the model from now on.
    pub(crate) fn stop(&self) {
        self.0.entered.send_replace(0);
        self.set(Mode::Stop);
    }

    /// Lets stopped batches run.
    pub(crate) fn run(&self) {
        self.set(Mode::Run);
    }

    /// Makes the model panic on the next batch, or on the batch that is stopped.
    pub(crate) fn panic(&self) {
        self.set(Mode::Panic);
    }

    /// Waits until this number of batches has entered the model.
    pub(crate) async fn entered(&self, batches: u32) {
        let mut entered = self.0.entered.subscribe();
        entered.wait_for(|&entered| entered >= batches).await.unwrap();
    }

    fn set(&self, mode: Mode) {
        *self.0.mode.lock().unwrap() = mode;
        self.0.changed.notify_all();
    }
}

impl Engine for ModelControl {
    fn name(&self) -> &'static str {
        "controlled tract"
    }

    fn load(&self, section: &SectionBytes<'_>) -> Result<Box<dyn Section>, EngineError> {
        let section = TractEngine::new().load(section)?;
        Ok(Box::new(ControlledSection { section, control: self.clone() }))
    }
}

struct ControlledSection {
    section: Box<dyn Section>,
    control: ModelControl,
}

impl Section for ControlledSection {
    fn run(&mut self, batch: usize, input: Input<'_>, outputs: &mut Outputs) -> Result<(), EngineError> {
        let shared = &self.control.0;
        shared.entered.send_modify(|entered| *entered += 1);
        let mode =
            shared.changed.wait_while(shared.mode.lock().unwrap(), |mode| *mode == Mode::Stop).unwrap();
        let panics = *mode == Mode::Panic;
        drop(mode);
        assert!(!panics, "a panic that the test asked for");
        self.section.run(batch, input, outputs)
    }
}
