//! Certificates of a site in TLS handshakes between client and server of `transport`, and the refusals of each side.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use headwater_identity::{BrokerOptions, Member, Role, Site};
use headwater_transport::tls::{Certificate, ClientIdentity, IdentityFiles, KeyPair, ServerIdentity};
use headwater_transport::{Connector, Endpoint, Scheme};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// Limit that no step reaches, even on a busy machine.
const LIMIT: Duration = Duration::from_secs(20);
const DAYS: u32 = 30;

struct Hall {
    site: Site,
    folder: TempDir,
}

impl Hall {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let site = folder.path().join("hall");
        let hosts = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let options = BrokerOptions::default();
        let site = Site::create(&site, "hall".parse().unwrap(), &hosts, &options, DAYS).unwrap();
        Self { site, folder }
    }

    fn device(&mut self, name: &str) -> PathBuf {
        self.site.enroll(member(Role::Device, name), &[], DAYS).unwrap()
    }

    fn cloud(&mut self, host: &str) -> PathBuf {
        let cloud = Member::new(Role::Cloud, None, "cloud").unwrap();
        self.site.enroll(cloud, &[host.to_owned()], DAYS).unwrap()
    }
}

fn member(role: Role, name: &str) -> Member {
    Member::new(role, Some("gate".parse().unwrap()), name).unwrap()
}

fn files(folder: &Path) -> IdentityFiles {
    let of = |name: &str| folder.join(name);
    let own = KeyPair { certificate: of("certificate.pem"), key: of("key.pem") };
    IdentityFiles { authority: of("authority.pem"), own: Some(own), revoked: Some(of("revoked.crl")) }
}

/// Connects once. Returns the certificate that the server saw, or the reasons of client and server for a failure.
async fn connect(server: &ServerIdentity, client: IdentityFiles) -> Result<Option<Certificate>, [String; 2]> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let session = server.session();
    let served = tokio::spawn(async move {
        let (socket, _) = listener.accept().await.unwrap();
        let (mut stream, client) = session.accept(socket).await?;
        let mut question = [0; 4];
        stream.read_exact(&mut question).await?;
        stream.write_all(b"yes").await?;
        stream.shutdown().await?;
        Ok::<_, std::io::Error>(client)
    });
    let connector = Connector::default().with_identity(ClientIdentity::new(client).unwrap());
    let endpoint = Endpoint::new(Scheme::Https, "127.0.0.1", port).unwrap();
    let asked = async {
        let mut connection = connector.connect(&endpoint, LIMIT).await?;
        connection.write_all(b"well").await?;
        let mut answer = [0; 3];
        connection.read_exact(&mut answer).await.map(|_| answer)
    };
    let asked: std::io::Result<[u8; 3]> = asked.await;
    match (served.await.unwrap(), asked) {
        (Ok(client), Ok(answer)) => {
            assert_eq!(&answer, b"yes");
            assert!(connector.wire().sent > 300, "{:?}: the bytes of the handshake count", connector.wire());
            Ok(client)
        }
        (served, asked) => Err([
            asked.err().map(|error| error.to_string()).unwrap_or_default(),
            served.err().map(|error| error.to_string()).unwrap_or_default(),
        ]),
    }
}

#[tokio::test]
async fn both_ends_know_each_other() {
    let mut hall = Hall::new();
    let (cloud, device) = (hall.cloud("127.0.0.1"), hall.device("cam-0"));
    let server = ServerIdentity::mutual(files(&cloud)).unwrap();
    let seen = connect(&server, files(&device)).await.unwrap().unwrap();
    let parts = [seen.site.as_deref(), seen.group.as_deref(), seen.name.as_deref()];
    assert_eq!(parts, [Some("hall"), Some("gate"), Some("cam-0")]);
    let issued = hall.site.issued().last().unwrap();
    assert_eq!(u64::from_str_radix(&seen.serial, 16).unwrap(), issued.serial);
    let left = seen.expires.duration_since(SystemTime::now()).unwrap();
    assert!(left < Duration::from_secs(86_400 * u64::from(DAYS)) && left > Duration::from_secs(86_400 * 29));
    assert_eq!(ClientIdentity::new(files(&device)).unwrap().certificate().unwrap(), seen);
}

#[tokio::test]
async fn strangers_are_refused_by_both_ends() {
    let mut hall = Hall::new();
    let (cloud, device) = (hall.cloud("127.0.0.1"), hall.device("cam-0"));
    let mut elsewhere = Hall::new();
    let stranger = elsewhere.device("cam-0");
    let server = ServerIdentity::mutual(files(&cloud)).unwrap();
    let own = |folder: &Path| files(folder).own;
    // A device with a certificate of another authority, which trusts this site's authority.
    let of_other = IdentityFiles { own: own(&stranger), ..files(&device) };
    let [_, served] = connect(&server, of_other).await.unwrap_err();
    assert!(served.contains("BadSignature") || served.contains("UnknownIssuer"), "{served}");
    let without = IdentityFiles { own: None, ..files(&device) };
    let [_, served] = connect(&server, without.clone()).await.unwrap_err();
    assert!(served.contains("no certificates"), "{served}");
    // A server whose certificate is of another authority than the client trusts.
    let [asked, _] = connect(&server, files(&stranger)).await.unwrap_err();
    assert!(asked.contains("another authority"), "{asked}");
    let one_sided = ServerIdentity::one_sided(files(&cloud)).unwrap();
    assert_eq!(connect(&one_sided, without).await.unwrap(), None);
}

#[tokio::test]
async fn a_server_that_shows_the_authority_s_own_certificate_is_refused_with_what_to_do() {
    let mut hall = Hall::new();
    let (cloud, device) = (hall.cloud("127.0.0.1"), hall.device("cam-0"));
    let site = hall.folder.path().join("hall");
    let own = KeyPair { certificate: site.join("authority.crt"), key: site.join("authority.key") };
    let server = ServerIdentity::one_sided(IdentityFiles { own: Some(own), ..files(&cloud) }).unwrap();
    let [asked, _] = connect(&server, files(&device)).await.unwrap_err();
    assert!(asked.contains("the certificate of an authority itself") && asked.contains("enroll"), "{asked}");
}

#[tokio::test]
async fn a_server_must_have_the_name_that_was_called() {
    let mut hall = Hall::new();
    let (cloud, device) = (hall.cloud("cloud.example"), hall.device("cam-0"));
    let server = ServerIdentity::mutual(files(&cloud)).unwrap();
    let [asked, _] = connect(&server, files(&device)).await.unwrap_err();
    assert!(asked.contains("call the server by a name of its certificate"), "{asked}");
}

#[tokio::test]
async fn a_revoked_certificate_is_refused_once_the_list_is_read_again() {
    let mut hall = Hall::new();
    let (cloud, device, other) = (hall.cloud("127.0.0.1"), hall.device("cam-0"), hall.device("cam-1"));
    let server = ServerIdentity::mutual(files(&cloud)).unwrap();
    let device_files = files(&device);
    connect(&server, device_files.clone()).await.unwrap();
    hall.site.revoke(&member(Role::Device, "cam-0")).unwrap();
    let deadline = tokio::time::Instant::now() + LIMIT;
    let served = loop {
        match connect(&server, device_files.clone()).await {
            Err([_, served]) => break served,
            Ok(_) => assert!(tokio::time::Instant::now() < deadline, "still accepted"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert!(served.contains("Revoked"), "{served}");
    connect(&server, files(&other)).await.unwrap();
    let again = hall.site.enroll(member(Role::Device, "cam-0"), &[], DAYS).unwrap_err().to_string();
    assert!(again.contains("is revoked"), "{again}");
}

#[tokio::test]
async fn a_replaced_certificate_is_taken_by_the_next_handshake_and_an_open_connection_goes_on() {
    let mut hall = Hall::new();
    let (cloud, device) = (hall.cloud("127.0.0.1"), hall.device("cam-0"));
    let server = ServerIdentity::mutual(files(&cloud)).unwrap();
    let before = connect(&server, files(&device)).await.unwrap().unwrap();
    hall.site.renew(&member(Role::Device, "cam-0"), &[], DAYS).unwrap();
    let after = connect(&server, files(&device)).await.unwrap().unwrap();
    assert_ne!(before.serial, after.serial);
    // With a half-written file, the certificate that was loaded last stays in use.
    let identity = ClientIdentity::new(files(&device)).unwrap();
    fs::write(device.join("certificate.pem"), "-----BEGIN").unwrap();
    tokio::time::sleep(Duration::from_millis(1100)).await;
    assert!(ClientIdentity::new(files(&device)).is_err());
    let connector = Connector::default().with_identity(identity);
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let endpoint = Endpoint::new(Scheme::Https, "127.0.0.1", listener.local_addr().unwrap().port()).unwrap();
    let session = server.session();
    let served =
        tokio::spawn(async move { session.accept(listener.accept().await.unwrap().0).await.map(|_| ()) });
    connector.connect(&endpoint, LIMIT).await.unwrap();
    served.await.unwrap().unwrap();
}

/// Waits until `found` returns true. The identities read changed certificate files at most once a second.
async fn until(found: impl Fn() -> bool) {
    let looks = async {
        while !found() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(LIMIT, looks).await.expect("the files are looked at");
}

#[tokio::test]
async fn the_certificate_in_use_is_reported_while_newer_files_cannot_be_used() {
    let mut hall = Hall::new();
    let (cloud, device) = (hall.cloud("127.0.0.1"), hall.device("cam-0"));
    let server = ServerIdentity::mutual(files(&cloud)).unwrap();
    let client = ClientIdentity::new(files(&device)).unwrap();
    let in_use = (server.certificate_state().unwrap(), client.certificate_state().unwrap());
    assert!(!in_use.0.has_failed_reload && !in_use.1.has_failed_reload);
    let right = fs::read(device.join("certificate.pem")).unwrap();
    // The cloud's new certificate, valid for longer, beside another key; and a half-written certificate of the device.
    hall.site.renew(&hall.site.member(None, "cloud").unwrap(), &[], 300).unwrap();
    fs::copy(device.join("key.pem"), cloud.join("key.pem")).unwrap();
    fs::write(device.join("certificate.pem"), "-----BEGIN").unwrap();
    let states = || (server.certificate_state().unwrap(), client.certificate_state().unwrap());
    until(|| states().0.has_failed_reload && states().1.has_failed_reload).await;
    assert_eq!(states().0.expires_unix_s, in_use.0.expires_unix_s, "the new one is not in use");
    assert_eq!(states().1.expires_unix_s, in_use.1.expires_unix_s);
    fs::write(device.join("certificate.pem"), &right).unwrap();
    hall.site.renew(&hall.site.member(None, "cloud").unwrap(), &[], 300).unwrap();
    until(|| !states().0.has_failed_reload && !states().1.has_failed_reload).await;
    assert!(states().0.expires_unix_s > in_use.0.expires_unix_s + 86_400, "the new one is in use");
}

#[test]
fn keys_are_for_their_owner_alone_and_names_are_given_once() {
    let mut hall = Hall::new();
    let device = hall.device("cam-0");
    let rights = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(rights(&device.join("key.pem")), 0o600);
    let folder = device.parent().unwrap().parent().unwrap();
    assert_eq!((rights(&folder.join("authority.key")), rights(folder)), (0o600, 0o700));
    let taken = hall.site.enroll(member(Role::Operator, "cam-0"), &[], DAYS).unwrap_err().to_string();
    assert_eq!(taken, "gate/cam-0: is the device already; renew it, or choose another name");
    let unknown = hall.site.renew(&member(Role::Device, "cam-9"), &[], DAYS).unwrap_err().to_string();
    assert_eq!(unknown, "gate/cam-9: no such member; members are broker, gate/cam-0");
    let again =
        Site::create(folder, "other".parse().unwrap(), &["x".into()], &BrokerOptions::default(), DAYS);
    assert!(again.unwrap_err().to_string().contains("has the site hall already"));
    let rules = fs::read_to_string(folder.join("broker/access.rules")).unwrap();
    assert!(rules.contains("user CN=cam-0,OU=gate,O=hall"), "{rules}");
    hall.site.revoke(&member(Role::Device, "cam-0")).unwrap();
    let rules = fs::read_to_string(folder.join("broker/access.rules")).unwrap();
    assert!(!rules.contains("cam-0"), "{rules}");
    let Hall { site, .. } = hall;
    let issued = site.issued().to_vec();
    drop(site);
    assert_eq!(Site::open(folder).unwrap().issued(), issued);
}

#[test]
fn a_server_that_was_revoked_gets_a_new_certificate_and_other_hosts() {
    let mut hall = Hall::new();
    let folder = hall.device("cam-0").parent().unwrap().parent().unwrap().to_owned();
    let broker = hall.site.member(None, "broker").unwrap();
    hall.site.revoke(&broker).unwrap();
    let before = fs::read(folder.join("broker/certificate.pem")).unwrap();
    hall.site.renew(&broker, &["10.0.0.5".into()], DAYS).unwrap();
    assert_ne!(fs::read(folder.join("broker/certificate.pem")).unwrap(), before);
    let newest = hall.site.issued().last().unwrap();
    assert_eq!((newest.hosts.len(), newest.revoked.clone()), (1, None));
    let device = member(Role::Device, "cam-0");
    let no_server = hall.site.renew(&device, &["10.0.0.6".into()], DAYS).unwrap_err().to_string();
    assert!(no_server.contains("it is no server"), "{no_server}");
}

#[test]
fn the_brokers_folder_has_all_that_it_needs_for_another_machine() {
    let folder = tempfile::tempdir().unwrap();
    let options = BrokerOptions { folder: Some("/etc/mosquitto/hall".into()), ..BrokerOptions::default() };
    let site = folder.path().join("hall");
    Site::create(&site, "hall".parse().unwrap(), &["localhost".into()], &options, DAYS).unwrap();
    let configuration = fs::read_to_string(site.join("broker/mosquitto.conf")).unwrap();
    for name in ["authority.pem", "certificate.pem", "key.pem", "revoked.crl", "access.rules"] {
        assert!(site.join("broker").join(name).exists(), "{name}");
        assert!(
            configuration.contains(&format!(" /etc/mosquitto/hall/{name}\n")),
            "{name} in {configuration}"
        );
    }
    assert!(!configuration.contains("authority.key"));
}

#[test]
fn a_member_whose_folder_was_moved_away_stops_no_revocation() {
    let mut hall = Hall::new();
    let (device, other) = (hall.device("cam-0"), hall.device("cam-1"));
    fs::rename(&device, device.with_file_name("moved")).unwrap();
    hall.site.revoke(&member(Role::Device, "cam-1")).unwrap();
    let broker = device.parent().unwrap().parent().unwrap().join("broker");
    let rules = || fs::read_to_string(broker.join("access.rules")).unwrap();
    assert!(rules().contains("cam-0") && !rules().contains("cam-1"), "{}", rules());
    // A second call completes a run that was interrupted, and the date of the first revocation stays.
    let revoked = hall.site.issued().iter().find(|issued| issued.member.name == "cam-1").unwrap().clone();
    fs::write(broker.join("access.rules"), "").unwrap();
    hall.site.revoke(&member(Role::Device, "cam-1")).unwrap();
    assert!(rules().contains("cam-0") && !rules().contains("cam-1"), "{}", rules());
    assert!(hall.site.issued().contains(&revoked), "{revoked:?}");
    hall.device("cam-2");
    drop(other);
}

#[test]
fn names_that_share_a_folder_are_refused() {
    let mut hall = Hall::new();
    hall.device("cam-0");
    let folder = |role, group: Option<&str>, name: &str| {
        Member::new(role, group.map(|group| group.parse().unwrap()), name).unwrap()
    };
    for (member, hosts) in [
        (folder(Role::Device, Some("broker"), "cam-0"), vec![]),
        (folder(Role::Cloud, None, "gate"), vec!["localhost".to_owned()]),
    ] {
        let refused = hall.site.enroll(member, &hosts, DAYS).unwrap_err().to_string();
        assert!(refused.contains("one folder"), "{refused}");
    }
}

#[test]
fn a_site_is_made_in_an_empty_folder_alone_and_changed_by_one_program_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("authority.key"), "that of another site").unwrap();
    let (name, hosts) = ("hall".parse().unwrap(), ["localhost".to_owned()]);
    let options = BrokerOptions::default();
    let refused = Site::create(folder.path(), name, &hosts, &options, DAYS).unwrap_err().to_string();
    assert!(refused.contains("an empty folder"), "{refused}");
    let site = folder.path().join("new");
    drop(Site::create(&site, "hall".parse().unwrap(), &hosts, &options, DAYS).unwrap());
    let adds: Vec<_> = (0..8)
        .map(|number| {
            let site = site.clone();
            std::thread::spawn(move || {
                let device = member(Role::Device, &format!("cam-{number}"));
                Site::open(&site).unwrap().enroll(device, &[], DAYS).unwrap();
            })
        })
        .collect();
    adds.into_iter().for_each(|add| add.join().unwrap());
    assert_eq!(Site::open(&site).unwrap().issued().len(), 9, "the broker and eight devices");
}
