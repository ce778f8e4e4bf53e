//! Refusals of sites in temporary folders, and the files that a failed run leaves.

use std::collections::BTreeMap;

use super::*;

/// A site in a new folder, with one device in the group `gate`.
fn site(folder: &Path) -> Site {
    let hosts = ["localhost".to_owned()];
    let options = BrokerOptions::default();
    let mut site = Site::create(folder, "hall".parse().unwrap(), &hosts, &options, 30).unwrap();
    site.enroll(device("cam-0"), &[], 30).unwrap();
    site
}

fn device(name: &str) -> Member {
    Member::new(Role::Device, Some("gate".parse().unwrap()), name).unwrap()
}

/// Every file under a folder, with its content.
fn content(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let of = |path: PathBuf| match path.is_dir() {
        true => content(&path),
        false => BTreeMap::from([(path.clone(), fs::read(&path).unwrap())]),
    };
    entries.flat_map(of).collect()
}

#[test]
fn an_authority_whose_key_and_certificate_do_not_belong_together_issues_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (own, other) = (folder.path().join("own"), folder.path().join("other"));
    let mut own_site = site(&own);
    drop(site(&other));
    for file in [AUTHORITY, AUTHORITY_KEY] {
        let right = fs::read(own.join(file)).unwrap();
        fs::copy(other.join(file), own.join(file)).unwrap();
        let before = content(&own);
        for refused in [
            own_site.enroll(device("cam-1"), &[], 30).map(drop),
            own_site.renew(&device("cam-0"), &[], 30).map(drop),
            own_site.revoke(&device("cam-0")),
        ] {
            let error = refused.expect_err("the pair is refused").to_string();
            for name in [AUTHORITY, AUTHORITY_KEY] {
                assert!(error.contains(&own.join(name).display().to_string()), "{error}");
            }
        }
        assert_eq!(content(&own), before, "files were written with the {file} of another site");
        fs::write(own.join(file), right).unwrap();
    }
    own_site.enroll(device("cam-1"), &[], 30).expect("the right pair");
}

#[test]
fn a_member_whose_files_cannot_be_written_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let own = folder.path().join("own");
    let mut site = site(&own);
    let issued = site.issued().to_vec();
    // The access rules are first written to a file of this name; a folder of the same name makes that fail.
    let in_the_way = own.join("broker/access.rules.new");
    fs::create_dir(&in_the_way).unwrap();
    let (new, other_group) =
        (device("cam-1"), Member::new(Role::Device, Some("belt".parse().unwrap()), "cam-0").unwrap());
    for member in [&new, &other_group] {
        let error = site.enroll(member.clone(), &[], 30).expect_err("refused").to_string();
        assert!(error.contains("access.rules"), "{error}");
    }
    assert!(
        own.join("gate/cam-0").exists() && !own.join("gate/cam-1").exists() && !own.join("belt").exists()
    );
    assert_eq!(site.issued(), issued);
    drop(site);
    fs::remove_dir(in_the_way).unwrap();
    let mut site = Site::open(&own).unwrap();
    assert_eq!((site.issued(), site.unfinished()), (&issued[..], Vec::new()));
    site.enroll(new, &[], 30).expect("nothing is in the way");
}

#[test]
fn a_site_that_is_refused_leaves_no_folder() {
    let folder = tempfile::tempdir().unwrap();
    let own = folder.path().join("own");
    let make = |host: &str, options: &BrokerOptions| {
        Site::create(&own, "hall".parse().unwrap(), &[host.to_owned()], options, 30).map(drop)
    };
    let options = BrokerOptions::default();
    assert!(make("https://broker", &options).is_err() && !own.exists());
    assert!(make("broker", &BrokerOptions { port: 0, ..options.clone() }).is_err() && !own.exists());
    make("broker", &options).expect("nothing is in the way");
}

#[test]
fn a_run_that_found_the_folder_empty_too_leaves_the_site_of_the_first_one_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let (own, options) = (folder.path().join("own"), BrokerOptions::default());
    drop(site(&own));
    let before = content(&own);
    let second = |hosts: &[String]| Site::create_in(&own, "yard".parse().unwrap(), hosts, &options, 30);
    // Without a host the broker's certificate would be refused; the existing site must be reported first.
    for hosts in [&["broker".to_owned()][..], &[]] {
        let error = second(hosts).map(drop).expect_err("refused");
        assert!(error.to_string().contains("has the site hall already"), "{error}");
        assert_eq!(content(&own), before);
    }
    // This is the state after a first run that was killed before it wrote its record.
    fs::remove_file(own.join(SITE)).unwrap();
    let before = content(&own);
    let error = second(&[]).map(drop).expect_err("refused").to_string();
    assert!(error.contains("found files in it"), "{error}");
    assert_eq!(content(&own), before);
}

#[test]
fn a_run_that_fails_leaves_the_folder_as_it_found_it() {
    let folder = tempfile::tempdir().unwrap();
    let own = folder.path().join("own");
    let make = || Site::create(&own, "hall".parse().unwrap(), &[], &BrokerOptions::default(), 30).map(drop);
    assert!(make().is_err() && !own.exists());
    fs::create_dir(&own).unwrap();
    assert!(make().is_err());
    assert_eq!(content(&own), BTreeMap::new());
}

#[test]
fn of_runs_at_the_same_time_one_makes_the_site() {
    let folder = tempfile::tempdir().unwrap();
    let (own, hosts) = (folder.path().join("own"), ["localhost".to_owned()]);
    let make = |name: &str| {
        Site::create(&own, name.parse().unwrap(), &hosts, &BrokerOptions::default(), 30).map(drop)
    };
    let names = ["hall", "yard", "plant", "gate"];
    let made = std::thread::scope(|scope| {
        let runs = names.map(|name| scope.spawn(move || make(name).is_ok()));
        runs.map(|run| run.join().unwrap())
    });
    assert_eq!(made.iter().filter(|made| **made).count(), 1, "{made:?}");
    let mut site = Site::open(&own).unwrap();
    let first = names.iter().position(|name| *name == site.name().as_str()).unwrap();
    assert!(made[first], "the site is that of the run that says so");
    site.enroll(device("cam-0"), &[], 30).expect("key and certificate are of one authority");
}

#[test]
fn a_file_of_two_authorities_may_have_the_own_one_second() {
    let folder = tempfile::tempdir().unwrap();
    let (own, other) = (folder.path().join("own"), folder.path().join("other"));
    let mut own_site = site(&own);
    drop(site(&other));
    let both = [other.join(AUTHORITY), own.join(AUTHORITY)].map(|file| fs::read(file).unwrap());
    fs::write(own.join(AUTHORITY), both.concat()).unwrap();
    own_site.enroll(device("cam-1"), &[], 30).expect("the key is that of the second certificate");
    fs::write(own.join(AUTHORITY), "no certificate").unwrap();
    let error = own_site.enroll(device("cam-2"), &[], 30).expect_err("no certificate").to_string();
    assert!(error.contains("expected a certificate in PEM"), "{error}");
}
