//! The folder that `headwater enroll` made: what an interrupted command left, and certificates that end soon.

use std::path::{Path, PathBuf};
use std::time::Duration;

use headwater_identity::Site;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::finding::Finding;

const SOON: time::Duration = time::Duration::days(30);

/// Checks the folder of a site. Another command may hold its lock.
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
            let advice = "name the folder that `headwater enroll init` made (--site-dir)";
            return vec![Finding::fail("site", error.to_string(), advice)];
        }
    };
    let unfinished = site.unfinished().into_iter();
    let mut findings: Vec<_> = unfinished
        .map(|of| Finding::fail("site", format!("{}: {}", of.path.display(), of.reason), of.advice))
        .collect();
    let (now, issued) = (OffsetDateTime::now_utc(), site.issued());
    for (index, own) in issued.iter().enumerate() {
        let is_newest = !issued[index + 1..].iter().any(|later| later.member == own.member);
        let Ok(expires) = OffsetDateTime::parse(&own.expires, &Rfc3339) else { continue };
        if own.revoked.is_some() || !is_newest || expires > now + SOON {
            continue;
        }
        let (group, name) = (own.member.group.as_ref(), &own.member.name);
        let group = group.map(|group| format!(" --group {group}")).unwrap_or_default();
        let advice = format!("headwater enroll renew{group} {name}, then copy the new files to its machine");
        let found = format!("the certificate of {} ends {}", own.member, expires.date());
        let finding = if expires <= now { Finding::fail } else { Finding::warn };
        findings.push(finding("certificate".to_owned(), found, advice));
    }
    if findings.is_empty() {
        let members = issued.iter().filter(|own| own.revoked.is_none()).count();
        findings.push(Finding::ok("site", format!("{}: {members} certificates are valid", site.name())));
    }
    findings
}
