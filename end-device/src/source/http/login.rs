//! User and password of a camera: basic authentication (RFC 7617), and digest (RFC 7616) once the camera asks for it.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;
use headwater_transport::random;
use hyper::header::{HeaderMap, HeaderValue, WWW_AUTHENTICATE};
use md5::{Digest as _, Md5};
use parking_lot::Mutex;
use sha2::Sha256;

/// User and password of a camera.
pub(super) struct Login {
    user: String,
    password: String,
    /// The latest challenge to digest authentication, and the number of requests that have answered it.
    digest: Mutex<Option<(Challenge, u32)>>,
}

impl Login {
    /// # Errors
    /// A text that does not repeat the pair.
    pub(super) fn of_pair(pair: &str) -> Result<Self, String> {
        let parts = pair.split_once(':').filter(|_| !pair.chars().any(char::is_control));
        let (user, password) = parts.ok_or("expected user:password in one line, found another text")?;
        Ok(Self { user: user.to_owned(), password: password.to_owned(), digest: Mutex::default() })
    }

    /// The header value for a request of this path and query, and the nonce in a digest. The value is marked as sensitive, so that it is never
    /// printed.
    pub(super) fn authorization(&self, path: &str) -> Option<(HeaderValue, Option<String>)> {
        let digest = self.digest.lock().as_mut().map(|(challenge, requests)| {
            *requests += 1;
            (challenge.clone(), *requests)
        });
        let text = match &digest {
            Some((challenge, request)) => {
                let client_nonce = format!("{:016x}{:016x}", random(), random());
                challenge.answer(self, path, *request, &client_nonce)?
            }
            None => format!("Basic {}", BASE64.encode(format!("{}:{}", self.user, self.password))),
        };
        let mut value = HeaderValue::from_bytes(text.as_bytes()).ok()?;
        value.set_sensitive(true);
        Some((value, digest.map(|(challenge, _)| challenge.text("nonce").to_owned())))
    }

    /// Takes the challenge of a camera that refused a request with this nonce.
    ///
    /// # Errors
    /// The reason for which another request would be refused too.
    pub(super) fn take_challenge(&self, headers: &HeaderMap, used: Option<&str>) -> Result<(), String> {
        let asked = challenges(headers);
        let usable = asked.iter().filter(|challenge| challenge.digest().is_some());
        let Some(new) = usable.max_by_key(|challenge| challenge.digest().map(|digest| digest.hash)) else {
            let is_basic = asked.iter().any(|challenge| challenge.scheme.eq_ignore_ascii_case("basic"));
            // The camera took Digest before, and takes Basic alone now.
            if is_basic && self.digest.lock().take().is_some() {
                return Ok(());
            }
            return Err(match is_basic {
                true => "the camera refuses user and password".into(),
                false => format!(
                    "expected a camera that takes Basic or Digest with MD5 or SHA-256, {}",
                    found(headers)
                ),
            });
        };
        let mut digest = self.digest.lock();
        // The camera sends the same nonce again, so it refuses user and password. More tries would lock the account on many cameras.
        let nonce = new.text("nonce");
        if used == Some(nonce) && !new.text("stale").eq_ignore_ascii_case("true") {
            return Err(format!("the camera refuses user and password (Digest of {:?})", new.text("realm")));
        }
        // Another request may have brought this nonce already: then the count of its requests goes on.
        if digest.as_ref().is_none_or(|(known, _)| known.text("nonce") != nonce) {
            *digest = Some((new.clone(), 0));
        }
        Ok(())
    }
}

/// The schemes of authentication that a camera names, as the end of an error message.
pub(super) fn found(headers: &HeaderMap) -> String {
    let of = |challenge: &Challenge| match challenge.parameter("algorithm") {
        Some(algorithm) => format!("{} with {algorithm}", challenge.scheme),
        None => challenge.scheme.clone(),
    };
    let asked: Vec<_> = challenges(headers).iter().take(4).map(of).collect();
    match asked.is_empty() {
        true => "found one that does not say what it takes".into(),
        false => format!("found one that takes {}", asked.join(", ")),
    }
}

/// One way in which a camera takes user and password.
#[derive(Clone)]
struct Challenge {
    scheme: String,
    parameters: Vec<(String, String)>,
}

/// The challenges of an answer. One header line may have several: `Basic realm="cam", Digest realm="cam", nonce="1"`.
fn challenges(headers: &HeaderMap) -> Vec<Challenge> {
    let mut challenges: Vec<Challenge> = Vec::new();
    for value in headers.get_all(WWW_AUTHENTICATE) {
        for piece in pieces(&String::from_utf8_lossy(value.as_bytes())) {
            let (scheme, parameter) = match piece.split_once(char::is_whitespace) {
                Some((scheme, rest)) if !scheme.contains('=') && !rest.trim_start().starts_with('=') => {
                    (Some(scheme), rest)
                }
                None if !piece.contains('=') => (Some(piece), ""),
                _ => (None, piece),
            };
            challenges
                .extend(scheme.map(|scheme| Challenge { scheme: scheme.into(), parameters: Vec::new() }));
            if let (Some(challenge), Some((name, value))) = (challenges.last_mut(), parameter.split_once('='))
            {
                challenge.parameters.push((name.trim().to_owned(), unquoted(value.trim())));
            }
        }
    }
    challenges
}

/// The texts between commas that stand outside quotes.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    let is_end = move |character: char| {
        is_quoted ^= character == '"' && !is_escaped;
        is_escaped = is_quoted && character == '\\' && !is_escaped;
        character == ',' && !is_quoted
    };
    text.split(is_end).map(str::trim).filter(|piece| !piece.is_empty())
}

fn unquoted(value: &str) -> String {
    let Some(inner) = value.strip_prefix('"') else { return value.to_owned() };
    let mut text = String::new();
    let mut characters = inner.strip_suffix('"').unwrap_or(inner).chars();
    while let Some(character) = characters.next() {
        text.extend(if character == '\\' { characters.next() } else { Some(character) });
    }
    text
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Hash of digest authentication, in ascending order of strength.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Hash {
    Md5,
    Sha256,
}

/// Form of the answer to a challenge of digest authentication.
struct Digest {
    hash: Hash,
    /// True if the first part of the answer covers both nonces (`-sess`).
    is_of_session: bool,
    /// The `qop` of an answer that covers the number of the request: `auth`, or `auth-int` with the body; `None` for cameras of RFC 2069.
    quality: Option<&'static str>,
}

impl Challenge {
    fn parameter(&self, name: &str) -> Option<&str> {
        let found = self.parameters.iter().find(|(found, _)| found.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    /// A parameter; empty if the camera leaves it out.
    fn text(&self, name: &str) -> &str {
        self.parameter(name).unwrap_or_default()
    }

    /// Form of the answer to the challenge; `None` for another scheme, and for a digest that cannot be answered.
    fn digest(&self) -> Option<Digest> {
        self.parameter("nonce").filter(|_| self.scheme.eq_ignore_ascii_case("digest"))?;
        let algorithm = self.parameter("algorithm").unwrap_or("MD5").to_ascii_uppercase();
        let of_session = algorithm.strip_suffix("-SESS");
        let hash = match of_session.unwrap_or(&algorithm) {
            "MD5" => Hash::Md5,
            "SHA-256" => Hash::Sha256,
            _ => return None,
        };
        let quality = match self.parameter("qop") {
            Some(offered) => {
                let is_offered =
                    |quality: &&str| offered.split(',').any(|one| one.trim().eq_ignore_ascii_case(quality));
                Some(["auth", "auth-int"].into_iter().find(is_offered)?)
            }
            None => None,
        };
        Some(Digest { hash, is_of_session: of_session.is_some(), quality })
    }

    /// The header value for a GET of this path (RFC 7616, section 3.4); `None` for a challenge that cannot be answered.
    fn answer(&self, login: &Login, path: &str, request: u32, client_nonce: &str) -> Option<String> {
        let Digest { hash, is_of_session, quality } = self.digest()?;
        let (realm, nonce, count) = (self.text("realm"), self.text("nonce"), format!("{request:08x}"));
        let mut who = hash.of(&[&login.user, realm, &login.password]);
        if is_of_session {
            who = hash.of(&[&who, nonce, client_nonce]);
        }
        let what = match quality {
            // The hash of a body without bytes.
            Some("auth-int") => hash.of(&["GET", path, &hash.of(&[""])]),
            _ => hash.of(&["GET", path]),
        };
        let response = match quality {
            Some(quality) => hash.of(&[&who, nonce, &count, client_nonce, quality, &what]),
            None => hash.of(&[&who, nonce, &what]),
        };
        let [user, realm, nonce, path] = [login.user.as_str(), realm, nonce, path].map(quoted);
        let mut fields =
            format!("username={user}, realm={realm}, nonce={nonce}, uri={path}, response=\"{response}\"");
        // The algorithm stands in the answer only if the camera names it, and as the camera writes it: some cameras refuse other answers.
        fields.extend(self.parameter("algorithm").map(|algorithm| format!(", algorithm={algorithm}")));
        fields.extend(self.parameter("opaque").map(|opaque| format!(", opaque={}", quoted(opaque))));
        fields.extend(quality.map(|quality| format!(", qop={quality}, nc={count}")));
        if quality.is_some() || is_of_session {
            fields += &format!(", cnonce=\"{client_nonce}\"");
        }
        Some(format!("Digest {fields}"))
    }
}

impl Hash {
    /// The hash of these parts with colons between them, in hexadecimal.
    fn of(self, parts: &[&str]) -> String {
        let text = parts.join(":");
        let bytes = match self {
            Self::Md5 => Md5::digest(text).to_vec(),
            Self::Sha256 => Sha256::digest(text).to_vec(),
        };
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(lines: &[&str]) -> HeaderMap {
        lines.iter().map(|line| (WWW_AUTHENTICATE, HeaderValue::from_str(line).unwrap())).collect()
    }

    fn challenge(line: &str) -> Challenge {
        challenges(&asked(&[line])).remove(0)
    }

    #[test]
    fn user_and_password_become_the_header_of_the_standard() {
        // RFC 7617, section 2.
        let (header, _) = Login::of_pair("Aladdin:open sesame").unwrap().authorization("/").unwrap();
        assert_eq!(header, "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
        assert!(!format!("{header:?}").contains("Basic"));
        assert!(Login::of_pair("nobody").is_err() && Login::of_pair("a:b\r\nX: y").is_err());
    }

    #[test]
    fn a_digest_is_that_of_the_standards() {
        let check = |line: &str, password: &str, client_nonce: &str, response: &str| {
            let login = Login::of_pair(&format!("Mufasa:{password}")).unwrap();
            let answer = challenge(line).answer(&login, "/dir/index.html", 1, client_nonce).unwrap();
            assert!(answer.contains(&format!("response=\"{response}\"")), "{answer}");
            answer
        };
        // RFC 7616, section 3.9.1.
        let (nonce, client_nonce) = (
            r#"nonce="7ypf/xlj9XXwfDPEoM4URrv/xwf94BcCAzFZH4GiTo0v""#,
            "f2/wE4q74E6zIJEtWaHKaf5wv/H5QzzpXusqGemxURZJ",
        );
        let line = |algorithm: &str| {
            format!(
                r#"Digest realm="http-auth@example.org", qop="auth, auth-int", algorithm={algorithm}, {nonce}, opaque="FQhe/qaU925kfnzjCev0ciny7QMkPqMAFRtzCUYo5tdS""#
            )
        };
        let sha = "753927fa0e85d155564e2e272a28d1802ca10daf4496794697cf8db5856cb6c1";
        check(&line("SHA-256"), "Circle of Life", client_nonce, sha);
        let answer = check(&line("MD5"), "Circle of Life", client_nonce, "8ca523f5e9506fed4657c9700eebdbec");
        for field in [
            r#"Digest username="Mufasa", realm="http-auth@example.org", "#,
            r#"uri="/dir/index.html", "#,
            "algorithm=MD5, opaque=\"FQhe",
            "qop=auth, nc=00000001, cnonce=\"f2/w",
        ] {
            assert!(answer.contains(field), "{field} in {answer}");
        }
        // RFC 2617, section 3.5, and the same without `qop`, as cameras of RFC 2069 ask.
        let line = r#"Digest realm="testrealm@host.com", nonce="dcd98b7102dd2f0e8b11d0f600bfb0c093""#;
        for (more, response) in [
            (r#"qop="auth""#, "6629fae49393a05397450978507c4ef1"),
            (r#"qop="AUTH,auth-int""#, "6629fae49393a05397450978507c4ef1"),
            (r#"qop="auth-int""#, "5e6610ecf9ba3017a4870ad48e3ad30b"),
            (r#"qop=auth, algorithm=MD5-sess"#, "8e3825c57e897f5a0dec6c2d4e5059d0"),
            (r#"algorithm="md5-sess""#, "4726bc10c33fa6cb357eb27807b1cce8"),
        ] {
            check(&format!("{line}, {more}"), "Circle Of Life", "0a4f113b", response);
        }
        let answer = check(line, "Circle Of Life", "0a4f113b", "670fd8c2df070c60b045671b8b24ff02");
        assert!(!answer.contains("cnonce") && !answer.contains("algorithm"), "{answer}");
    }

    #[test]
    fn the_strongest_of_several_challenges_is_answered_however_they_are_written() {
        let headers = asked(&[
            "Negotiate",
            r#"Basic realm="a, b", digest realm = "say \"cam\"", NONCE=1, Digest nonce="2", algorithm=sha-256"#,
            r#"Digest nonce="3", algorithm=SHA-512-256"#,
        ]);
        let found: Vec<_> = challenges(&headers).into_iter().map(|one| one.scheme).collect();
        assert_eq!(found, ["Negotiate", "Basic", "digest", "Digest", "Digest"]);
        let challenge = &challenges(&headers)[2];
        assert_eq!((challenge.text("realm"), challenge.text("nonce")), ("say \"cam\"", "1"));
        let login = Login::of_pair("a:b").unwrap();
        login.take_challenge(&headers, None).unwrap();
        let (header, used) = login.authorization("/").unwrap();
        assert_eq!(used.as_deref(), Some("2"));
        let header = header.to_str().unwrap();
        assert!(header.contains(r#"nonce="2""#) && header.contains("algorithm=sha-256"), "{header}");
        // A camera that sends the same nonce again refuses the password; a camera that sends a new or a stale nonce does not.
        assert!(login.take_challenge(&headers, Some("2")).unwrap_err().contains("refuses user and password"));
        login.take_challenge(&asked(&[r#"Digest nonce="4""#]), Some("2")).unwrap();
        login.take_challenge(&asked(&[r#"Digest nonce="4", stale=TRUE"#]), Some("4")).unwrap();
        // A request without this nonce, at the same time, says nothing of the password.
        login.take_challenge(&asked(&[r#"Digest nonce="4""#]), None).unwrap();
        // A camera that takes Basic alone now gets Basic; its next refusal is one of the password.
        let basic = asked(&[r#"Basic realm="cam""#]);
        login.take_challenge(&basic, Some("4")).unwrap();
        assert_eq!(login.authorization("/").unwrap().1, None);
        assert!(login.take_challenge(&basic, None).unwrap_err().contains("refuses user and password"));
    }

    #[test]
    fn a_camera_that_takes_neither_is_named_with_what_it_takes() {
        let refused =
            |lines: &[&str]| Login::of_pair("a:b").unwrap().take_challenge(&asked(lines), None).unwrap_err();
        let other = refused(&["Bearer", r#"Digest nonce="3", algorithm=SHA-512-256"#]);
        assert!(other.ends_with("found one that takes Bearer, Digest with SHA-512-256"), "{other}");
        assert!(refused(&[r#"Digest nonce="3", qop="other""#]).ends_with("takes Digest"));
        assert!(refused(&[]).ends_with("does not say what it takes"));
        assert_eq!(refused(&["Basic realm=\"cam\""]), "the camera refuses user and password");
    }

    #[test]
    fn no_text_of_a_camera_panics() {
        for line in
            ["", ",", "=", "\"", "Digest", "Digest =", "Digest nonce=\"", "Digest nonce=\\,\"\\", "a b c"]
        {
            let _ = Login::of_pair("a:b").unwrap().take_challenge(&asked(&[line]), None);
        }
    }
}
