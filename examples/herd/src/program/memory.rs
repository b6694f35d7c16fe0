//! Whether the machine has the memory for the partitions.
//!
//! Linux gives memory when it is first written, so an allocation that is too large succeeds. The logs
//! are written at the start, and the kernel would kill the process. The limit of a container is not seen.

/// Fails if `wanted` bytes are more than the machine has now. Always succeeds on systems that do not say
/// what they have.
pub(super) fn check(wanted: u64) -> Result<(), String> {
    match std::fs::read_to_string("/proc/meminfo") {
        Ok(text) => compare(wanted, &text),
        Err(_) => Ok(()),
    }
}

/// As [`check`], with the contents of `/proc/meminfo`.
fn compare(wanted: u64, meminfo: &str) -> Result<(), String> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    let Some(available) = kib.map(|kib| kib.saturating_mul(1024)) else { return Ok(()) };
    if wanted <= available {
        return Ok(());
    }
    let [wanted, available] = [wanted, available].map(|bytes| bytes >> 20);
    Err(format!(
        "the partitions need {wanted} MiB, and the machine has {available} MiB to give; lower --log-mib \
         or --partitions"
    ))
}

#[cfg(test)]
mod tests {
    use super::{check, compare};

    const MEMINFO: &str =
        "MemTotal: 9000 kB\nMemFree: 10 kB\nMemAvailable:    4096 kB\nSwap: 1 kB\n";

    #[test]
    fn what_is_more_than_the_machine_has_is_refused() {
        assert_eq!(compare(4096 << 10, MEMINFO), Ok(()));
        let error = compare((4096 << 10) + 1, MEMINFO).expect_err("it is a byte too much");
        assert!(error.contains("the machine has 4 MiB"), "{error}");
        check(u64::MAX).expect_err("no machine has that much");
        assert_eq!(check(1), Ok(()));
    }

    #[test]
    fn a_system_that_does_not_say_refuses_nothing() {
        for text in ["", "MemAvailable:", "MemAvailable: many kB", "MemAvailable: 1 MB"] {
            assert_eq!(compare(u64::MAX, text), Ok(()), "{text}");
        }
    }
}
