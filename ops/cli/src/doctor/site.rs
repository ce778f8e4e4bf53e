//! The folder that `headwater enroll` made: what an interrupted command left, and certificates that end soon.

use std::path::{Path, PathBuf};
use std::time::Duration;

use headwater_identity::Site;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use headwater_settings::Finding;
use headwater_settings::SOON;

/// Checks the folder of a site. If another command keeps it locked beyond `limit`, the finding says so.
pub(super) async fn check(folder: PathBuf, limit: Duration) -> Vec<Finding> {
    let shown = folder.display().to_string();
    let opened = timeout(limit, spawn_blocking(move || judge(&folder))).await;
    opened.ok().and_then(Result::ok).unwrap_or_else(|| {
        let found = format!("{shown}: not read within {} s", limit.as_secs());
        vec![Finding::fail("site", found, "another `headwater enroll` may hold it: wait until it has ended")]
    })
}

fn judge(folder: &Path) -> Vec<Finding> {
    let site = match Site::open(folder) {
        Ok(site) => site,
        Err(error) => {
            let error = error.to_string();
            let advice = match error.contains("ermission denied") {
                true => "run the doctor as the owner of the folder (sudo -u)",
                false => "name the folder that `headwater enroll init` made (--site-dir)",
            };
            return vec![Finding::fail("site", error, advice)];
        }
    };
    let unfinished = site.unfinished().into_iter();
    let mut findings: Vec<_> = unfinished
        .map(|of| Finding::fail("site", format!("{}: {}", of.path.display(), of.reason), of.advice))
        .collect();
    let now = OffsetDateTime::now_utc();
    for own in site.in_force() {
        let Ok(expires) = OffsetDateTime::parse(&own.expires, &Rfc3339) else { continue };
        if expires > now + SOON {
            continue;
        }
        let advice = format!("{}, then copy the new files to its machine", own.member.renew_command());
        let found = format!("the certificate of {} ends {}", own.member, expires.date());
        let finding = if expires <= now { Finding::fail } else { Finding::warn };
        findings.push(finding("certificate".to_owned(), found, advice));
    }
    if findings.is_empty() {
        let members = site.in_force().count();
        findings.push(Finding::ok("site", format!("{}: {members} certificates are valid", site.name())));
    }
    findings
}
