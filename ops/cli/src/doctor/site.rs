//! Findings about the folder that `headwater enroll` made: remains of an interrupted command, and certificates that end soon.

use std::path::{Path, PathBuf};
use std::time::Duration;

use headwater_identity::Site;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use headwater_settings::{Finding, expiry};

/// Checks the folder of a site. If another command holds the lock of the folder longer than `limit`, the only finding says so.
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
    for own in site.in_force() {
        let Ok(expires) = OffsetDateTime::parse(&own.expires, &Rfc3339) else { continue };
        let advice = format!("{}, then copy the new files to its machine", own.member.renew_command());
        findings.extend(expiry(&format!("certificate of {}", own.member), expires.into(), &advice));
    }
    if findings.is_empty() {
        let valid = crate::counted(site.in_force().count(), "valid certificate");
        findings.push(Finding::ok("site", format!("{}: {valid}", site.name())));
    }
    findings
}
