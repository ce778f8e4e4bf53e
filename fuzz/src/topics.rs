//! Random text as a topic name: what parses prints to the same name.

#![no_main]

use headwater_protocol::{GroupId, SiteId, Topics};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|name: &str| {
    // Site and group are those of the name itself, so that long and odd ids are tried too.
    let mut levels = name.split('/').skip(2);
    let (site, group) = (levels.next().unwrap_or_default(), levels.next().unwrap_or_default());
    let (Ok(site), Ok(group)) = (SiteId::new(site), GroupId::new(group)) else { return };
    let topics = Topics::new(&site, &group);
    if let Ok(topic) = topics.parse(name) {
        assert_eq!(topics.name(&topic), name);
    }
    let other = GroupId::new("another-group").expect("a name");
    assert!(group == other || Topics::new(&site, &other).parse(name).is_err(), "a topic of two groups");
});
