//! How hard a data set is: a plain float network that sees one camera alone.

use serde::Serialize;

use crate::data::{Batch, Samples, SlotViews};
use crate::fused::soft_target_loss;
use crate::layers::{Block, Builder, Layout, Pass, State};
use crate::loss::{Figures, best};
use crate::random::Random;
use crate::recipe::Optimiser;
use crate::spec::{BlockSpec, ConvSpec, FcActivation, FcSpec, FloatActivation, LayerShape};
use crate::training::{Adam, StepResult, Workers, average, update_statistics};

/// Samples of one step.
const BATCH: usize = 128;
/// Samples that are classified at once.
const CHUNK: usize = 128;

/// What one camera alone reaches.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CameraResult {
    /// Device slot.
    pub slot: usize,
    /// Share of the part that it sees.
    pub sees: f64,
    /// Share of correct answers among the samples it sees.
    pub seen_accuracy: f64,
    /// Share of correct answers over the whole part; a sample it does not see is answered with the majority class.
    pub accuracy: f64,
}

/// A plain network: three float convolutions and a fully connected layer.
struct Plain {
    blocks: Vec<Block>,
    layout: Layout,
}

impl Plain {
    fn new(input: [usize; 3], classes: usize) -> Self {
        let conv = |filters, stride| {
            let activation = FloatActivation::Relu;
            BlockSpec::Conv(ConvSpec { filters, kernel: 3, stride, pad: 1, norm: true, activation })
        };
        let fc = FcSpec { outputs: Some(classes), binary: false, activation: FcActivation::None };
        let mut builder = Builder::default();
        let mut shape = input;
        let blocks = [conv(24, 1), conv(32, 2), conv(64, 2), BlockSpec::Fc(fc)].into_iter().enumerate();
        let blocks = blocks
            .map(|(index, block)| {
                let [_, h, w] = shape;
                let output = match &block {
                    BlockSpec::Conv(spec) => {
                        [spec.filters, spec.window().positions(h), spec.window().positions(w)]
                    }
                    _ => [classes, 1, 1],
                };
                let layer = LayerShape { block, input: shape, output };
                shape = output;
                Block::new(&mut builder, &format!("plain.{index}"), &layer)
            })
            .collect();
        Self { blocks, layout: builder.finish() }
    }

    fn logits(
        &self,
        pass: &Pass<'_>,
        views: &SlotViews,
        [channels, h, w]: [usize; 3],
    ) -> burn::tensor::Tensor<2> {
        let x = pass.tensor(views.pixels.clone(), [views.rows.len(), channels, h, w]);
        let y = self.blocks.iter().fold(x, |x, block| block.forward(pass, x));
        let [batch, classes, ..] = y.dims();
        y.reshape([batch, classes])
    }
}

/// Trains a plain network on what `slot` sees of `train`, for `epochs`, and measures it on `part`.
pub fn single_camera(
    workers: &Workers,
    (train, part): (&Samples, &Samples),
    slot: usize,
    (optimiser, epochs, seed): (&Optimiser, u32, u64),
) -> CameraResult {
    let network = Plain::new(train.shape, train.classes);
    let mut state = network.layout.initial(seed);
    let mut adam = Adam::new(network.layout.parameter_count());
    let seen: Vec<usize> = (0..train.len()).filter(|index| train.seen[*index] >> slot & 1 == 1).collect();
    let steps = u64::from(epochs) * (seen.len() / BATCH) as u64;
    let mut step = 0;
    for epoch in 0..epochs {
        let order = Random::new(seed, &[3, slot as u64, u64::from(epoch)]).permutation(seen.len());
        for indices in order.chunks_exact(BATCH) {
            step += 1;
            let found = average(
                workers.each(indices.chunks(BATCH.div_ceil(workers.count())).collect(), |part| {
                    gradient(&network, &state, train, slot, part.iter().map(|index| seen[*index as usize]))
                }),
                &network.layout,
            );
            adam.step(
                optimiser,
                &network.layout,
                &mut state,
                &found.gradient,
                (step, optimiser.rate(step, steps)),
            );
            update_statistics(&network.layout, &mut state, &found.statistics, optimiser.statistics_momentum);
        }
    }
    measure(workers, &network, &state, part, slot, best(&train.prior()))
}

fn gradient(
    network: &Plain,
    state: &State,
    samples: &Samples,
    slot: usize,
    indices: impl Iterator<Item = usize>,
) -> StepResult {
    let batch = Batch::plain(samples, indices);
    let views = &batch.views[slot];
    let rows = views.rows.len();
    let pass = Pass::training(&network.layout, state);
    let logits = network.logits(&pass, views, samples.shape);
    let mut targets = vec![0.0; rows * samples.classes];
    for (target, row) in targets.chunks_exact_mut(samples.classes).zip(&views.rows) {
        target[usize::from(batch.labels[*row as usize])] = 1.0;
    }
    let loss = soft_target_loss(logits, &targets, &vec![1.0 / rows as f32; rows], 1.0);
    let (gradient, statistics) = pass.finish(&loss.backward());
    StepResult { gradient, statistics, figures: Figures { samples: rows as u64, ..Figures::default() } }
}

fn measure(
    workers: &Workers,
    network: &Plain,
    state: &State,
    samples: &Samples,
    slot: usize,
    majority: usize,
) -> CameraResult {
    let seen: Vec<usize> = (0..samples.len()).filter(|index| samples.seen[*index] >> slot & 1 == 1).collect();
    let share = seen.len().div_ceil(workers.count()).max(1);
    let right: usize = workers
        .each(seen.chunks(share).collect(), |part| {
            let chunks = part.chunks(CHUNK).map(|chunk| {
                let batch = Batch::plain(samples, chunk.iter().copied());
                let pass = Pass::inference(&network.layout, state);
                let logits = network.logits(&pass, &batch.views[slot], samples.shape);
                let logits = logits.into_data().try_to_vec::<f32>().expect("logits are f32");
                let rows = logits.chunks_exact(samples.classes).zip(&batch.labels);
                rows.filter(|(row, label)| best(row) == usize::from(**label)).count()
            });
            chunks.sum::<usize>()
        })
        .into_iter()
        .sum();
    let unseen = (0..samples.len()).filter(|index| samples.seen[*index] >> slot & 1 == 0);
    let guessed = unseen.filter(|index| usize::from(samples.labels[*index]) == majority).count();
    let count = samples.len().max(1) as f64;
    CameraResult {
        slot,
        sees: seen.len() as f64 / count,
        seen_accuracy: right as f64 / seen.len().max(1) as f64,
        accuracy: (right + guessed) as f64 / count,
    }
}
