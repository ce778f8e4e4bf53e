//! Encode and decode of one summary. Run: `cargo bench -p headwater-protocol --profile release`.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use headwater_protocol::scores::floats;
use headwater_protocol::{Body, Header, Limits, Message, SampleId, Session, decode, encode};

fn summary(c: &mut Criterion) {
    let limits = Limits { classes: 10, feature_bits: 2048, view_bytes: 3072, ..Limits::default() };
    let scores: Vec<u8> = (0..10).flat_map(|i| (i as f32 * 0.3).to_le_bytes()).collect();
    let sample = SampleId(1_763_719_200_123);
    let mut bytes = Vec::with_capacity(64);
    c.bench_function("summary/encode_decode", |b| {
        b.iter(|| {
            bytes.clear();
            let header = Header { late: false, session: Session([1, 2]), sample, age_ms: 4 };
            encode(&Message { header, body: Body::Summary(black_box(&scores)) }, &limits, &mut bytes)
                .expect("the scores fit the limits");
            let message = decode(black_box(&bytes), &limits).expect("just encoded");
            match message.body {
                Body::Summary(scores) => floats(scores).sum::<f32>(),
                _ => 0.0,
            }
        });
    });
}

criterion_group!(benches, summary);
criterion_main!(benches);
