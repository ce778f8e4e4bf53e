//! Permits, batches, deadlines, and callers that leave.

use axum::http::StatusCode;
use headwater_inference::engine::BATCHED_TOLERANCE;
use headwater_protocol::v2::InferRequest;

use crate::calls::{Direct, infer, poll_once, request};

#[tokio::test]
async fn waiting_requests_run_in_one_batch_with_the_answers_of_single_runs() {
    let cloud = Direct::new().await;
    cloud.model.stop();
    let mut first = Box::pin(cloud.infer(1, 1));
    poll_once(&mut first).await;
    cloud.model.entered(1).await;
    let mut waiting: Vec<_> = (2..6).map(|seed| Box::pin(cloud.infer(seed, usize::from(seed)))).collect();
    for one in &mut waiting {
        poll_once(one).await;
    }
    cloud.model.run();
    assert_eq!(first.await.logits(1), cloud.expected(1, 1));
    for (seed, one) in (2..6).zip(waiting) {
        let samples = usize::from(seed);
        let (found, expected) = (one.await.logits(samples), cloud.expected(seed, samples));
        assert!(found.iter().zip(&expected).all(|(f, e)| (f - e).abs() <= BATCHED_TOLERANCE), "{seed}");
    }
    assert_eq!(cloud.state.report().answered(), 5);
    let model = cloud.counts();
    assert_eq!((model.batches, model.samples, model.largest_batch), (2, 15, 14));
}

#[tokio::test]
async fn a_request_without_a_permit_is_refused_at_once() {
    let cloud = Direct::with("http.max_requests = 2").await;
    cloud.model.stop();
    let mut inside = [Box::pin(cloud.infer(1, 1)), Box::pin(cloud.infer(2, 1))];
    for one in &mut inside {
        poll_once(one).await;
    }
    cloud.infer(3, 1).await.is_refused(429, "overloaded");
    cloud.model.run();
    for one in inside {
        assert_eq!(one.await.status, StatusCode::OK);
    }
    assert_eq!(cloud.infer(3, 1).await.status, StatusCode::OK, "the service works on");
}

#[tokio::test]
async fn a_request_whose_deadline_passes_in_the_queue_is_refused_in_time_and_never_run() {
    let cloud = Direct::new().await;
    cloud.model.stop();
    let mut first = Box::pin(cloud.infer(1, 1));
    poll_once(&mut first).await;
    cloud.model.entered(1).await;
    let short = InferRequest { deadline_ms: Some(5), ..request(2, 1) };
    cloud.ask(infer(&short).map(Into::into)).await.is_refused(504, "deadline_exceeded");
    cloud.model.run();
    assert_eq!(first.await.status, StatusCode::OK);
    assert_eq!(cloud.infer(3, 1).await.status, StatusCode::OK);
    let model = cloud.counts();
    assert_eq!((model.skipped("deadline"), model.samples), (1, 2));
}

#[tokio::test]
async fn no_caller_waits_longer_than_the_deadline_of_the_service() {
    let cloud = Direct::with("http.deadline_ms = 5").await;
    cloud.model.stop();
    let long = InferRequest { deadline_ms: Some(3_600_000), ..request(2, 1) };
    cloud.ask(infer(&long).map(Into::into)).await.is_refused(504, "deadline_exceeded");
    cloud.model.run();
}

#[tokio::test]
async fn a_panic_in_the_model_is_an_error_at_once_and_the_service_is_not_ready() {
    let cloud = Direct::new().await;
    cloud.model.stop();
    let mut first = Box::pin(cloud.infer(1, 1));
    poll_once(&mut first).await;
    cloud.model.entered(1).await;
    let mut queued = Box::pin(cloud.infer(2, 1));
    poll_once(&mut queued).await;
    cloud.model.panic();
    first.await.is_refused(500, "internal");
    queued.await.is_refused(500, "internal");
    cloud.infer(3, 1).await.is_refused(500, "internal");
    for path in ["/v2/health/ready", "/v2/health/live", "/v2/models/headwater/ready"] {
        cloud.get(path).await.is_refused(503, "unavailable");
    }
}
