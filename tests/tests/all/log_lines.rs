//! Lines of an aggregator's log when the broker or a device comes and goes.

use headwater_link::broker::EmbeddedBroker;
use headwater_tests::other_programs::free_address;
use headwater_tests::programs::{Log, device, service};
use headwater_tests::shipped;

#[tokio::test]
async fn the_broker_and_the_devices_are_logged_when_they_come_and_go() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (address, bundle) = (free_address(), shipped::bundle_path());
    let log = Log::new(folder.path(), "aggregator");
    let _aggregator = log.start(&mut service("headwater-aggregator", &address, &bundle));
    log.until(&["WARN", "cannot connect", "refused", "away_s=0"]).await;
    let _broker = EmbeddedBroker::start_at(address.port()).expect("the port is held");
    log.until(&["INFO", "connected", "away_s="]).await;

    let device = Log::new(folder.path(), "device").start(&mut device(0, &address, &bundle));
    log.until(&["INFO", "device up", "device=cam-0", "slot=0"]).await;
    drop(device);
    log.until(&["WARN", "device down", "device=cam-0", "slot=0"]).await;
}
