//! Permits, batches, deadlines, callers that leave.

use axum::http::StatusCode;
use headwater_cloud_service::CloudConfig;
use headwater_inference::engine::BATCHED_TOLERANCE;
use headwater_protocol::v2::InferRequest;

use crate::calls::{Direct, begins, infer, request};

#[tokio::test]
async fn what_waits_is_answered_in_one_batch_and_as_if_it_were_alone() {
    let cloud = Direct::new().await;
    cloud.model.holds();
    let mut first = Box::pin(cloud.infers(1, 1));
    begins(&mut first).await;
    cloud.model.entered(1).await;
    let mut waiting: Vec<_> = (2..6).map(|seed| Box::pin(cloud.infers(seed, usize::from(seed)))).collect();
    for one in &mut waiting {
        begins(one).await;
    }
    cloud.model.lets_go();
    assert_eq!(first.await.logits(1), cloud.expected(1, 1));
    for (seed, one) in (2..6).zip(waiting) {
        let samples = usize::from(seed);
        let (found, expected) = (one.await.logits(samples), cloud.expected(seed, samples));
        assert!(found.iter().zip(&expected).all(|(f, e)| (f - e).abs() <= BATCHED_TOLERANCE), "{seed}");
    }
    let report = cloud.state.report();
    assert_eq!((report.answered, report.batches, report.samples, report.largest_batch), (5, 2, 15, 14));
}

#[tokio::test]
async fn one_request_more_than_the_permits_is_refused_at_the_door() {
    let cloud = Direct::with(CloudConfig { most_requests: 2, ..CloudConfig::default() }).await;
    cloud.model.holds();
    let mut inside = [Box::pin(cloud.infers(1, 1)), Box::pin(cloud.infers(2, 1))];
    for one in &mut inside {
        begins(one).await;
    }
    cloud.infers(3, 1).await.is_refused(429, "overloaded");
    cloud.model.lets_go();
    for one in inside {
        assert_eq!(one.await.status, StatusCode::OK);
    }
    assert_eq!(cloud.infers(3, 1).await.status, StatusCode::OK, "works on");
}

#[tokio::test]
async fn a_request_whose_deadline_passes_in_the_queue_is_told_in_time_and_never_run() {
    let cloud = Direct::new().await;
    cloud.model.holds();
    let mut first = Box::pin(cloud.infers(1, 1));
    begins(&mut first).await;
    cloud.model.entered(1).await;
    let hurried = InferRequest { deadline_ms: Some(5), ..request(2, 1) };
    cloud.asks(infer(&hurried).map(Into::into)).await.is_refused(504, "deadline_exceeded");
    cloud.model.lets_go();
    assert_eq!(first.await.status, StatusCode::OK);
    assert_eq!(cloud.infers(3, 1).await.status, StatusCode::OK);
    let report = cloud.state.report();
    assert_eq!((report.skipped_deadline, report.samples), (1, 2));
}

#[tokio::test]
async fn no_caller_waits_longer_than_the_service_allows() {
    let cloud = Direct::with(CloudConfig { deadline_ms: 5, ..CloudConfig::default() }).await;
    cloud.model.holds();
    let patient = InferRequest { deadline_ms: Some(3_600_000), ..request(2, 1) };
    cloud.asks(infer(&patient).map(Into::into)).await.is_refused(504, "deadline_exceeded");
    cloud.model.lets_go();
}

#[tokio::test]
async fn a_request_whose_caller_has_gone_is_skipped_and_counted() {
    let cloud = Direct::new().await;
    cloud.model.holds();
    let mut first = Box::pin(cloud.infers(1, 1));
    begins(&mut first).await;
    cloud.model.entered(1).await;
    let mut fickle = Box::pin(cloud.infers(2, 1));
    begins(&mut fickle).await;
    drop(fickle);
    cloud.model.lets_go();
    assert_eq!(first.await.status, StatusCode::OK);
    assert_eq!(cloud.infers(3, 1).await.status, StatusCode::OK);
    let report = cloud.state.report();
    assert_eq!((report.skipped_caller_gone, report.samples), (1, 2));
}

#[tokio::test]
async fn a_panic_in_the_model_is_an_error_at_once_and_the_service_is_not_ready() {
    let cloud = Direct::new().await;
    cloud.model.holds();
    let mut first = Box::pin(cloud.infers(1, 1));
    begins(&mut first).await;
    cloud.model.entered(1).await;
    let mut queued = Box::pin(cloud.infers(2, 1));
    begins(&mut queued).await;
    cloud.model.panics();
    first.await.is_refused(500, "internal");
    queued.await.is_refused(500, "internal");
    cloud.infers(3, 1).await.is_refused(500, "internal");
    for path in ["/v2/health/ready", "/v2/health/live", "/v2/models/headwater/ready"] {
        cloud.gets(path).await.is_refused(503, "unavailable");
    }
}
