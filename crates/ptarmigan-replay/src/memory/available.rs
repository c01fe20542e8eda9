//! The memory that the host has left.
use std::path::Path;

/// Returns how many bytes this process can still allocate before the host swaps, or `None` if the
/// host does not say.
///
/// The result is the minimum of the memory left by the host and by the process's control groups.
pub fn available() -> Option<u64> {
    let host = meminfo(&std::fs::read_to_string("/proc/meminfo").ok()?)?;
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    Some(groups.lines().filter_map(group).fold(host, u64::min))
}

/// Reads `MemAvailable`, in bytes.
fn meminfo(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Returns the memory left by the group on one line of `/proc/self/cgroup`, and by the groups
/// around it.
fn group(line: &str) -> Option<u64> {
    let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
    let (root, limit, used) = match controllers {
        "" => ("/sys/fs/cgroup", "memory.max", "memory.current"),
        c if c.split(',').any(|c| c == "memory") => {
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes")
        }
        _ => return None,
    };
    // In a container the path may be the host's. A path that does not exist sets no limit.
    let path = Path::new(path.trim_start_matches('/'));
    path.ancestors().filter_map(|group| left(&Path::new(root).join(group), limit, used)).min()
}

/// Returns the memory that a group leaves. Cached files count as free.
fn left(group: &Path, limit: &str, used: &str) -> Option<u64> {
    let read = |name: &str| std::fs::read_to_string(group.join(name)).ok();
    let number = |name: &str| read(name)?.trim().parse::<u64>().ok();
    let limit = number(limit)?;
    let stat = read("memory.stat").unwrap_or_default();
    let cached = stat.lines().find_map(|line| line.strip_prefix("inactive_file ")?.parse::<u64>().ok());
    Some(limit.saturating_sub(number(used)?.saturating_sub(cached.unwrap_or(0))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_available_memory_is_read_in_bytes() {
        let text = "MemTotal:       24684096 kB\nMemFree: 1 kB\nMemAvailable:   23564548 kB\n";
        assert_eq!(meminfo(text), Some(23_564_548 * 1024));
        assert_eq!(meminfo("MemTotal: 1 kB\n"), None);
        assert_eq!(meminfo("MemAvailable: much\n"), None);
    }

    #[test]
    fn the_tightest_group_counts_without_the_files_that_it_caches() {
        let dir = std::env::temp_dir().join(format!("ptarmigan-group-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        let write = |name: &str, text: &str| std::fs::write(dir.join(name), text).expect("a file");
        write("memory.max", "1000\n");
        write("memory.current", "700\n");
        assert_eq!(left(&dir, "memory.max", "memory.current"), Some(300));
        write("memory.stat", "anon 1\ninactive_file 500\n");
        assert_eq!(left(&dir, "memory.max", "memory.current"), Some(800));
        write("memory.max", "max\n");
        assert_eq!(left(&dir, "memory.max", "memory.current"), None, "no limit");
        std::fs::remove_dir_all(&dir).expect("our directory");
    }
}
