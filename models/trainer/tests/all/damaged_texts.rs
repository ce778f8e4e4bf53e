//! Specs and recipes with damaged bytes are refused by name, or are other specs and recipes.

use std::path::Path;

use headwater_calibration::random::Random;
use headwater_spec::Spec;
use headwater_spec::file_error::FileError;
use headwater_training::memory;
use headwater_training::recipe::Recipe;

/// Damages a text in 200 ways, and gives each to `parse`.
fn damaged(text: &str, parse: impl Fn(&Path, &str) -> Result<(), FileError>) {
    let (file, mut random, mut refused) =
        (Path::new("damaged.toml"), Random::new(1, &[text.len() as u64]), 0);
    for kind in 0..200 {
        let mut bytes = text.as_bytes().to_vec();
        let at = random.below(bytes.len());
        match kind % 4 {
            0 => bytes[at] ^= 1 << random.below(7),
            1 => bytes.truncate(at),
            // Inserted digits make a number large, or a word another word.
            2 => drop(bytes.splice(at..at, *b"99999999")),
            _ => {
                let (from, to) = (random.below(at + 1), at);
                let again = bytes[from..to].to_vec();
                drop(bytes.splice(at..at, again));
            }
        }
        if let Err(error) = parse(file, &String::from_utf8_lossy(&bytes)) {
            refused += 1;
            assert!(error.to_string().starts_with("damaged.toml"), "{error}");
        }
    }
    assert!(refused > 20, "{refused} of 200");
}

#[test]
fn damaged_specs_and_recipes_are_refused_by_name_or_fit() {
    let spec = include_str!("../../../networks/ddnn-c.toml");
    let recipe = Recipe::read(None).unwrap();
    damaged(spec, |file, text| {
        let spec = Spec::parse(file, text)?;
        // Costs and memory of a network that is too large to train are computed without a panic.
        spec.cost();
        let _ = memory::check(&spec, &recipe);
        Ok(())
    });
    damaged(include_str!("../../../recipes/default.toml"), |file, text| Recipe::parse(file, text).map(drop));
}
