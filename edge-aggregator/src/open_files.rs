//! Check of the process's limit on open files against the need of its groups.

/// Files that a process opens beside its groups: log, runtime, listeners, connections to the admin port, files that are read, journals that are
/// compacted.
const OTHERS: u64 = 128;

/// Files of a group: the connection to the broker and the journal.
const PER_GROUP: u64 = 2;

/// Refuses groups that need more files than this process may open. Nothing is refused if the system names no limit.
///
/// # Errors
/// A sentence with the need, the limit and what to do.
pub(crate) fn check(groups: usize, cloud_requests: usize) -> Result<(), String> {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    soft_limit(&limits).map_or(Ok(()), |limit| fits(groups, cloud_requests, limit))
}

fn fits(groups: usize, cloud_requests: usize, limit: u64) -> Result<(), String> {
    let needed = OTHERS + groups as u64 * PER_GROUP + cloud_requests as u64;
    if needed <= limit {
        return Ok(());
    }
    Err(format!(
        "open files: {groups} groups and {cloud_requests} requests to the cloud need {needed}, this process may open {limit}: raise the limit \
         (systemd: LimitNOFILE={needed}; shell: ulimit -n {needed}), or lead fewer groups in one process"
    ))
}

/// The soft limit of open files in the text of `/proc/self/limits`; `None` for no limit.
fn soft_limit(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_groups_than_files_are_refused_with_the_need() {
        assert_eq!(fits(48, 32, 256), Ok(()));
        let refused = fits(1000, 64, 256).unwrap_err();
        assert!(refused.contains("need 2192, this process may open 256"), "{refused}");
    }

    #[test]
    fn the_limit_of_this_process_is_read() {
        let text = "Limit                     Soft Limit           Hard Limit           Units\n\
                    Max open files            1024                 524288               files\n";
        assert_eq!(soft_limit(text), Some(1024));
        assert_eq!(
            soft_limit("Max open files            unlimited            unlimited            files"),
            None
        );
        assert!(check(1, 1).is_ok());
    }
}
