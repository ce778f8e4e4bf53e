//! Results with details name the frames of their views.

use headwater_inference::exit::argmax;
use headwater_tests::group::{client_of, decide_all, ids, shipped_group, start};

/// Number of samples in flight at once.
const IN_FLIGHT: usize = 8;

#[tokio::test]
async fn with_details_a_result_has_frame_file_and_time_of_each_view_and_every_probability() {
    let mut settings = shipped_group();
    settings.site.details = true;
    let (samples, classes) = (settings.frames.len() as u64, settings.frames.labels.labels.len());
    let group = start(settings).await;
    let mut client = client_of(&group).await;
    let decisions = decide_all(&mut client, &ids(7 * samples, 24), IN_FLIGHT).await;
    group.shutdown().await.unwrap();
    for decision in &decisions {
        let frame = decision.sample.0 % samples;
        let present: Vec<_> = decision.presence.present().iter().collect();
        let slots: Vec<_> = decision.views.iter().map(|view| view.slot).collect();
        assert_eq!(slots, present, "{decision:?}");
        for view in &decision.views {
            let (device, file) = (format!("cam-{}", view.slot), format!("{frame:05}/cam{}.webp", view.slot));
            assert_eq!((view.device.as_deref(), view.frame), (Some(device.as_str()), Some(frame)));
            assert_eq!(view.file.as_deref(), Some(file.as_str()));
            assert!(view.captured_at.is_some(), "{view:?}");
        }
        if decision.class.is_some() {
            assert_eq!((decision.scores.len(), Some(argmax(&decision.scores))), (classes, decision.class));
        }
    }
}
