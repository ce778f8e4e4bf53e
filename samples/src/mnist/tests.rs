use super::*;

/// A data set of so many images, each filled with its index.
fn small(train: usize, validation: usize, test: usize) -> Mnist {
    let images = |count: usize| {
        let mut images = Images::default();
        (0..count).for_each(|index| images.push(&[index as u8; IMAGE_BYTES], (index % CLASSES) as u8));
        images
    };
    Mnist {
        files: Files { train: images(train + validation), test: images(test), validation_count: validation },
        labels: DIGITS,
    }
}

#[test]
fn the_validation_part_is_the_end_of_the_train_files() {
    let data = small(30, 10, 5);
    assert_eq!([Part::Train, Part::Validation, Part::Test].map(|part| data.len(part)), [30, 10, 5]);
    let mut view = [0; IMAGE_BYTES];
    for (part, index, filled) in [(Part::Train, 29, 29), (Part::Validation, 0, 30), (Part::Test, 4, 4)] {
        assert!(data.view_into(part, index, 0, &mut view));
        assert_eq!((view, data.label(part, index)), ([filled; IMAGE_BYTES], u16::from(filled) % 10));
    }
}

#[test]
#[should_panic(expected = "sample 30 of a part of 30")]
fn a_part_ends_where_the_next_one_begins() {
    small(30, 10, 5).label(Part::Train, 30);
}

#[test]
fn a_missing_file_says_what_was_looked_for_and_where() {
    let dir = tempfile::tempdir().unwrap();
    let error = Mnist::digits(dir.path()).err().unwrap().to_string();
    for word in ["train-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte", &dir.path().display().to_string()] {
        assert!(error.contains(word), "{error}");
    }
}

#[test]
fn files_of_another_size_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = [&[0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 28, 0, 0, 0, 28][..], &[0; 784]].concat();
    std::fs::write(dir.path().join("train-images-idx3-ubyte"), file).unwrap();
    let error = Mnist::fashion(dir.path()).err().unwrap().to_string();
    assert!(error.contains("expected dimensions [60000, 28, 28], found [1, 28, 28]"), "{error}");
}
