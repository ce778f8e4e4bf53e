//! The gradient of the joint loss against finite differences, on the float parts of a network.

use std::path::Path;

use headwater_calibration::data::Batch;
use headwater_calibration::data::Parts;
use headwater_protocol::Exit;
use headwater_samples::Part;
use headwater_spec::Spec;
use headwater_training::layers::{Parameter, Pass, State, TrainedState};
use headwater_training::network::Network;
use headwater_training::recipe::Recipe;

/// Step of the central difference; with `f32` losses of about 10, rounding adds some 1e-3 to the quotient.
const STEP: f32 = 1e-2;
/// Tolerance for the curvature over the step and for rounding.
const TOLERANCE: f32 = 2e-2;

const SPEC: &str = r#"
[network]
name = "tiny"
configuration = "c"
labels = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"]
[device]
count = 6
input = [3, 32, 32]
blocks = [{ kind = "convp", filters = 2, stride = 2 }]
head = { kind = "fc", binary = true }
[local]
aggregation = "LOCAL"
[cloud]
aggregation = "CLOUD"
blocks = [{ kind = "conv", filters = 3, stride = 2 }, { kind = "fc" }]
"#;

fn loss(network: &Network, recipe: &Recipe, state: &State, batch: &Batch) -> f64 {
    let pass = Pass::training(TrainedState { layout: &network.layout, state });
    recipe.loss.of(&network.spec, &network.forward(&pass, batch), batch).sums.loss / batch.labels.len() as f64
}

#[track_caller]
fn check(local: &str, cloud: &str) {
    // Every parameter after the last sign: batch norm of heads, the local section, the cloud section.
    let after_signs = |name: &str| name.contains("head.norm") || !name.starts_with("device");
    check_parameters(&SPEC.replace("LOCAL", local).replace("CLOUD", cloud), after_signs, 30);
}

/// Compares the gradient of the parameters with chosen names with finite differences, for more than `min_compared` numbers.
#[track_caller]
fn check_parameters(text: &str, chosen: impl Fn(&str) -> bool, min_compared: usize) {
    let spec = Spec::parse(Path::new("tiny"), text).unwrap();
    let network = Network::new(spec);
    let mut recipe = Recipe::read(None).unwrap();
    // The teacher is a constant for the gradient and not for a finite difference, so distillation is left out here.
    Exit::FIRST.into_iter().for_each(|exit| recipe.loss.distillation.exits.insert(exit, 0.0));
    let parts = Parts::drawn(24, 4, 4);
    let parts = if network.spec.network.slots() == 1 { parts.first_slot() } else { parts };
    let samples = parts.part(Part::Train, None, 1);
    let batch = Batch::plain(&samples, 0..24);
    let mut state = network.layout.initial(3);
    // Biases begin at 0, where black pixels are right at the kink of relu and finite differences mean nothing.
    for bias in network.layout.parameters.iter().filter(|parameter| parameter.name.ends_with("bias")) {
        state.parameters[bias.range.clone()].fill(0.2);
    }

    let pass = Pass::training(TrainedState { layout: &network.layout, state: &state });
    let found = recipe.loss.of(&network.spec, &network.forward(&pass, &batch), &batch);
    let (gradient, _) = pass.finish(&found.total.backward());

    let mut compared = 0;
    for Parameter { name, range: at, .. } in network.layout.parameters.iter().filter(|it| chosen(&it.name)) {
        for index in [at.start, at.start + at.len() / 2, at.end - 1] {
            let mut moved = state.clone();
            moved.parameters[index] += STEP;
            let above = loss(&network, &recipe, &moved, &batch);
            moved.parameters[index] -= 2.0 * STEP;
            let below = loss(&network, &recipe, &moved, &batch);
            let expected = ((above - below) / f64::from(2.0 * STEP)) as f32;
            let found = gradient[index];
            assert!(
                (found - expected).abs() <= TOLERANCE * (1.0 + expected.abs()),
                "{name}[{}]: expected {expected}, found {found}",
                index - at.start
            );
            compared += 1;
        }
    }
    assert!(compared > min_compared, "compared {compared}");
}

/// Floats from the pixels on, as in `BranchyNet`: convolutions with a bias, relu after pools, heads of several blocks.
const FLOATS: &str = r#"
[network]
name = "floats"
configuration = "LETTER"
labels = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"]
[device]
count = COUNT
input = [3, 32, 32]
blocks = [{ kind = "conv", filters = 3, stride = 2, norm = false, activation = "none" }, { kind = "pool", activation = "relu" }]
head = [{ kind = "conv", filters = 2, norm = false }, { kind = "pool", pad = 1, activation = "relu" }, { kind = "fc" }]
[edge]
aggregation = "HOW"
blocks = [{ kind = "conv", filters = 3, norm = false }]
head = { kind = "fc" }
MORE
[cloud]
aggregation = "cc"
blocks = [{ kind = "conv", filters = 3, stride = 2 }, { kind = "pool", global = true, average = true }, { kind = "fc" }]
"#;

#[test]
fn the_joint_gradient_equals_finite_differences_for_every_aggregation() {
    check("ap", "cc");
    check("mp", "ap");
    check("cc", "mp");
}

#[test]
fn the_joint_gradient_equals_finite_differences_through_floats_and_edges() {
    let spec = |letter: &str, count: &str, how: &str, more: &str| {
        let text = FLOATS.replace("LETTER", letter).replace("COUNT", count).replace("HOW", how);
        text.replace("MORE", more)
    };
    check_parameters(&spec("d", "1", "mp", ""), |_| true, 30);
    check_parameters(&spec("e", "6", "ap", "[local]\naggregation = \"ap\""), |_| true, 60);
    let two = "groups = [[0, 3], [1, 2, 4, 5]]\nfusion = \"cc\"\n[local]\naggregation = \"cc\"";
    check_parameters(&spec("f", "6", "cc", two), |_| true, 60);
}

#[test]
fn the_straight_through_gradient_reaches_the_binary_weights() {
    let text = SPEC.replace("LOCAL", "ap").replace("CLOUD", "cc");
    let network = Network::new(Spec::parse(Path::new("tiny"), &text).unwrap());
    let recipe = Recipe::read(None).unwrap();
    let samples = Parts::drawn(24, 4, 4).part(Part::Train, None, 1);
    let batch = Batch::plain(&samples, 0..24);
    let state = network.layout.initial(3);
    let pass = Pass::training(TrainedState { layout: &network.layout, state: &state });
    let found = recipe.loss.of(&network.spec, &network.forward(&pass, &batch), &batch);
    let (gradient, _) = pass.finish(&found.total.backward());
    for Parameter { name, range, .. } in
        network.layout.parameters.iter().filter(|parameter| parameter.name.ends_with("weight"))
    {
        assert!(gradient[range.clone()].iter().any(|g| *g != 0.0), "{name} gets no gradient");
    }
}
