//! Memory of the machine: the check that a training fits, and the limit on decoded views in memory.

use std::fs::read_to_string;

use headwater_spec::Spec;

use crate::recipe::Recipe;

/// Most bytes of decoded views in memory, on a machine of any size.
const MOST_VIEW_BYTES: u64 = 3 << 29;

/// Most bytes of decoded views that a command keeps in memory: an eighth of the machine's memory, but at most 1.5 GiB, so that a network of several
/// cameras with large views trains beside them.
pub fn view_bytes() -> u64 {
    of_machine("MemTotal:").map_or(MOST_VIEW_BYTES, |all| MOST_VIEW_BYTES.min(all / 8))
}

/// Refuses a training for which this machine has too little free memory. If the free memory is unknown, nothing is refused.
///
/// # Errors
/// A sentence with the estimate, the memory that is free, and what to change.
pub fn check(spec: &Spec, recipe: &Recipe) -> Result<(), String> {
    match of_machine("MemAvailable:") {
        Some(free) => fits(spec.training_bytes(recipe.batch, recipe.workers), free, recipe.batch),
        None => Ok(()),
    }
}

fn fits(needed: u64, free: u64, batch: usize) -> Result<(), String> {
    if needed <= free {
        return Ok(());
    }
    let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    Err(format!(
        "memory: training this network in batches of {batch} takes about {:.1} GiB, this machine has {:.1} GiB free: give the widest layers \
         fewer filters or outputs, or set `batch` lower",
        gib(needed),
        gib(free)
    ))
}

/// The bytes of the line `line` of `/proc/meminfo`, at most the limit of the control group; `None` if neither can be read. The memory that the
/// group uses is not subtracted, since it includes cached files, which the system drops when memory is needed.
fn of_machine(line: &str) -> Option<u64> {
    let machine = read_to_string("/proc/meminfo").ok().and_then(|text| bytes_of(&text, line));
    let group = read_to_string("/sys/fs/cgroup/memory.max").ok();
    let group = group.and_then(|text| text.trim().parse::<u64>().ok());
    machine.into_iter().chain(group).min()
}

/// A line of `/proc/meminfo`, in bytes.
fn bytes_of(meminfo: &str, name: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_training_beyond_the_memory_is_refused_with_the_estimate() {
        assert_eq!(fits(5 << 30, 5 << 30, 128), Ok(()));
        let refused = fits(6 << 30, 5 << 30, 128).unwrap_err();
        assert!(refused.contains("about 6.0 GiB") && refused.contains("5.0 GiB free"), "{refused}");
    }

    #[test]
    fn a_line_of_the_memory_is_read() {
        let meminfo = "MemTotal: 9 kB\nMemAvailable:    2048 kB\nBuffers: 1 kB\n";
        assert_eq!(bytes_of(meminfo, "MemAvailable:"), Some(2 << 20));
        assert_eq!(bytes_of("MemTotal: 9 kB\n", "MemAvailable:"), None);
        assert!((1 << 20..=MOST_VIEW_BYTES).contains(&view_bytes()), "{}", view_bytes());
    }
}
