//! User and password of a camera: basic authentication (RFC 7617), and digest (RFC 7616) once the camera asks for it.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;
use headwater_transport::random;
use hyper::header::{HeaderMap, HeaderValue, WWW_AUTHENTICATE};
use md5::{Digest, Md5};
use parking_lot::Mutex;
use sha2::Sha256;

/// User and password of a camera.
pub(super) struct Login {
    user: String,
    password: String,
    /// The latest challenge to digest authentication, and the requests under it.
    digest: Mutex<Option<(DigestChallenge, u32)>>,
}

impl Login {
    /// # Errors
    /// A sentence without the pair.
    pub(super) fn of_pair(pair: &str) -> Result<Self, String> {
        let parts = pair.split_once(':').filter(|_| !pair.chars().any(char::is_control));
        let (user, password) = parts.ok_or("expected user:password in one line, found another text")?;
        Ok(Self { user: user.to_owned(), password: password.to_owned(), digest: Mutex::default() })
    }

    /// The header value for a request of this path and query, marked as sensitive so that it is never printed; and the nonce in it.
    pub(super) fn authorization(&self, path: &str) -> Option<(HeaderValue, Option<String>)> {
        let digest = self.digest.lock().as_mut().map(|(challenge, requests)| {
            *requests += 1;
            (challenge.clone(), *requests)
        });
        let nonce = digest.as_ref().map(|(challenge, _)| challenge.nonce.clone());
        let text = match digest {
            Some((challenge, request)) => {
                let client_nonce = format!("{:016x}{:016x}", random(), random());
                challenge.answer(self, path, request, &client_nonce)
            }
            None => format!("Basic {}", BASE64.encode(format!("{}:{}", self.user, self.password))),
        };
        let mut value = HeaderValue::from_bytes(text.as_bytes()).ok()?;
        value.set_sensitive(true);
        Some((value, nonce))
    }

    /// Takes the challenge of a camera that refused a request with this nonce.
    ///
    /// # Errors
    /// The reason for which another request would be refused too.
    pub(super) fn take_challenge(&self, headers: &HeaderMap, used: Option<&str>) -> Result<(), String> {
        let asked = challenges(headers);
        let usable = asked.iter().filter_map(DigestChallenge::of).max_by_key(|challenge| challenge.hash);
        let Some(new) = usable else {
            let is_basic = asked.iter().any(|challenge| challenge.scheme.eq_ignore_ascii_case("basic"));
            // A camera that took Digest takes Basic alone now.
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
        // The same nonce again: it is not the nonce that is refused. More tries would lock the account on many cameras.
        if used == Some(&*new.nonce) && !new.is_stale {
            return Err(format!("the camera refuses user and password (Digest of {:?})", new.realm));
        }
        // Another request may have brought the nonce; its requests are counted on.
        if digest.as_ref().is_none_or(|(known, _)| known.nonce != new.nonce) {
            *digest = Some((new, 0));
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
struct Challenge {
    scheme: String,
    parameters: Vec<(String, String)>,
}

impl Challenge {
    fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters
            .iter()
            .find(|(found, _)| found.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }
}

/// The challenges of an answer, those of one header line too: `Basic realm="cam", Digest realm="cam", nonce="1"`.
fn challenges(headers: &HeaderMap) -> Vec<Challenge> {
    let mut challenges: Vec<Challenge> = Vec::new();
    for value in headers.get_all(WWW_AUTHENTICATE) {
        for piece in pieces(&String::from_utf8_lossy(value.as_bytes())) {
            let parameter = match piece.split_once(char::is_whitespace) {
                Some((scheme, rest)) if !scheme.contains('=') && !rest.trim_start().starts_with('=') => {
                    challenges.push(Challenge { scheme: scheme.to_owned(), parameters: Vec::new() });
                    rest
                }
                None if !piece.contains('=') => {
                    challenges.push(Challenge { scheme: piece, parameters: Vec::new() });
                    continue;
                }
                _ => &piece,
            };
            if let (Some(challenge), Some((name, value))) = (challenges.last_mut(), parameter.split_once('='))
            {
                challenge.parameters.push((name.trim().to_owned(), unquoted(value.trim())));
            }
        }
    }
    challenges
}

/// The text between commas that stand outside quotes.
fn pieces(text: &str) -> Vec<String> {
    let (mut pieces, mut is_quoted, mut is_escaped) = (vec![String::new()], false, false);
    for character in text.chars() {
        match character {
            ',' if !is_quoted => {
                pieces.push(String::new());
                continue;
            }
            '"' if !is_escaped => is_quoted = !is_quoted,
            _ => {}
        }
        is_escaped = is_quoted && character == '\\' && !is_escaped;
        pieces.last_mut().expect("there is always one").push(character);
    }
    pieces.into_iter().map(|piece| piece.trim().to_owned()).filter(|piece| !piece.is_empty()).collect()
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

/// Hash of digest authentication; the stronger one is the greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Hash {
    Md5,
    Sha256,
}

/// A challenge to digest authentication that can be answered.
#[derive(Clone, Debug)]
struct DigestChallenge {
    realm: String,
    nonce: String,
    opaque: Option<String>,
    /// As the camera writes it; some take no answer that names one they did not.
    algorithm: Option<String>,
    hash: Hash,
    /// The first part of the answer covers both nonces (`-sess`).
    is_of_session: bool,
    /// The answer covers the number of the request (`qop`: `auth`, or `auth-int` with the body); not with cameras of RFC 2069.
    quality: Option<&'static str>,
    /// The camera refuses the nonce alone.
    is_stale: bool,
}

impl DigestChallenge {
    fn of(challenge: &Challenge) -> Option<Self> {
        if !challenge.scheme.eq_ignore_ascii_case("digest") {
            return None;
        }
        let algorithm = challenge.parameter("algorithm").map(str::to_owned);
        let (hash, is_of_session) = match algorithm.as_deref().unwrap_or("MD5").to_ascii_uppercase().as_str()
        {
            "MD5" => (Hash::Md5, false),
            "MD5-SESS" => (Hash::Md5, true),
            "SHA-256" => (Hash::Sha256, false),
            "SHA-256-SESS" => (Hash::Sha256, true),
            _ => return None,
        };
        let quality = match challenge.parameter("qop") {
            Some(offered) => {
                let is_offered =
                    |quality: &&str| offered.split(',').any(|one| one.trim().eq_ignore_ascii_case(quality));
                Some(["auth", "auth-int"].into_iter().find(is_offered)?)
            }
            None => None,
        };
        Some(Self {
            realm: challenge.parameter("realm").unwrap_or_default().to_owned(),
            nonce: challenge.parameter("nonce")?.to_owned(),
            opaque: challenge.parameter("opaque").map(str::to_owned),
            algorithm,
            hash,
            is_of_session,
            quality,
            is_stale: challenge.parameter("stale").is_some_and(|stale| stale.eq_ignore_ascii_case("true")),
        })
    }

    /// The header value for a GET of this path (RFC 7616, section 3.4).
    fn answer(&self, login: &Login, path: &str, request: u32, client_nonce: &str) -> String {
        let Self { realm, nonce, .. } = self;
        let count = format!("{request:08x}");
        let mut who = self.hash_of(&[&login.user, realm, &login.password]);
        if self.is_of_session {
            who = self.hash_of(&[&who, nonce, client_nonce]);
        }
        let what = match self.quality {
            // The hash of a body without bytes.
            Some("auth-int") => self.hash_of(&["GET", path, &self.hash_of(&[""])]),
            _ => self.hash_of(&["GET", path]),
        };
        let response = match self.quality {
            Some(quality) => self.hash_of(&[&who, nonce, &count, client_nonce, quality, &what]),
            None => self.hash_of(&[&who, nonce, &what]),
        };
        let quoted_ones =
            [("username", login.user.as_str()), ("realm", realm), ("nonce", nonce), ("uri", path)];
        let mut fields: Vec<_> =
            quoted_ones.iter().map(|(name, value)| format!("{name}={}", quoted(value))).collect();
        fields.push(format!("response=\"{response}\""));
        fields.extend(self.algorithm.iter().map(|algorithm| format!("algorithm={algorithm}")));
        fields.extend(self.opaque.iter().map(|opaque| format!("opaque={}", quoted(opaque))));
        if let Some(quality) = self.quality {
            fields.push(format!("qop={quality}, nc={count}"));
        }
        if self.quality.is_some() || self.is_of_session {
            fields.push(format!("cnonce=\"{client_nonce}\""));
        }
        format!("Digest {}", fields.join(", "))
    }

    /// The hash of these parts with colons between them, in hexadecimal.
    fn hash_of(&self, parts: &[&str]) -> String {
        let text = parts.join(":");
        let bytes = match self.hash {
            Hash::Md5 => Md5::digest(text).to_vec(),
            Hash::Sha256 => Sha256::digest(text).to_vec(),
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

    fn challenge(line: &str) -> DigestChallenge {
        DigestChallenge::of(&challenges(&asked(&[line]))[0]).expect("a challenge that can be answered")
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
            let answer = challenge(line).answer(&login, "/dir/index.html", 1, client_nonce);
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
        let challenge = DigestChallenge::of(&challenges(&headers)[2]).unwrap();
        assert_eq!((challenge.realm.as_str(), challenge.nonce.as_str()), ("say \"cam\"", "1"));
        let login = Login::of_pair("a:b").unwrap();
        login.take_challenge(&headers, None).unwrap();
        let (header, used) = login.authorization("/").unwrap();
        assert_eq!(used.as_deref(), Some("2"));
        let header = header.to_str().unwrap();
        assert!(header.contains(r#"nonce="2""#) && header.contains("algorithm=sha-256"), "{header}");
        // The same nonce again refuses the password; a new or a stale one does not.
        assert!(login.take_challenge(&headers, Some("2")).unwrap_err().contains("refuses user and password"));
        login.take_challenge(&asked(&[r#"Digest nonce="4""#]), Some("2")).unwrap();
        login.take_challenge(&asked(&[r#"Digest nonce="4", stale=TRUE"#]), Some("4")).unwrap();
        // A request without this nonce, at the same time, says nothing of the password.
        login.take_challenge(&asked(&[r#"Digest nonce="4""#]), None).unwrap();
        // A camera that takes Basic again gets it, once without a new refusal.
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
