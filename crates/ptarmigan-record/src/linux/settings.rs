//! Reads the settings of this machine that decide which pages and tables its kernel makes.
//!
//! The kernel's command line and the environment name devices, users and places, which a trace must
//! not have. Only words of the lists below are taken out of them.
use super::sources::cpus;
use super::system::proc::PAGE_SHIFT;
use ptarmigan_trace::{MAX_TEXT, Settings};
use std::fs;
use std::path::Path;

/// The folder of the settings of huge pages.
const HUGE: &str = "/sys/kernel/mm/transparent_hugepage";
/// Its files that are settings, beside one for each size of blocks.
const FILES: [&str; 5] =
    ["enabled", "defrag", "shmem_enabled", "khugepaged/defrag", "khugepaged/max_ptes_none"];
/// The range that a fault on a file maps. Only root may read it, where debugfs is mounted.
const FAULT_AROUND: &str = "/sys/kernel/debug/fault_around_bytes";

/// Words of the kernel's command line that stand alone.
const BOOT_WORDS: [&str; 5] = ["nopti", "no5lvl", "nopcid", "noinvpcid", "norandmaps"];
/// Beginnings of words of the kernel's command line with a value.
const BOOT_VALUES: [&str; 8] = [
    "pti=",
    "mitigations=",
    "hugepages=",
    "hugepagesz=",
    "default_hugepagesz=",
    "transparent_hugepage=",
    "thp_anon=",
    "numa_balancing=",
];
/// Beginnings of the GNU C library's tunables that are about memory.
const TUNABLES: [&str; 3] = ["glibc.malloc.", "glibc.pthread.", "glibc.rtld."];

/// Reads the settings, as far as they can be read. `tunables` are those of the recorded command.
pub(crate) fn read(tunables: Option<&str>) -> Settings {
    let mut settings = Settings::default();
    // A setting that no trace may have is left out.
    let mut add = |name: &str, value: &str| {
        let _ = settings.add(name, value);
    };
    add("kernel", &file(Path::new("/proc/sys/kernel/osrelease")));
    add("cpus online", &cpus("online").len().to_string());
    add("page bytes", &(1_u64 << PAGE_SHIFT).to_string());
    huge_pages(Path::new(HUGE), &mut add);
    add("fault_around_bytes", &file(Path::new(FAULT_AROUND)));
    add("boot", &joined(boot(&file(Path::new("/proc/cmdline")))));
    add("glibc tunables", &joined(of_memory(tunables.unwrap_or_default())));
    settings
}

/// Adds the files of huge pages.
fn huge_pages(folder: &Path, add: &mut dyn FnMut(&str, &str)) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let sizes = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut sizes: Vec<(u64, String)> = sizes
        .filter_map(|name| {
            let size = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
            Some((size, format!("{name}/enabled")))
        })
        .collect();
    sizes.sort_unstable();
    for name in FILES.into_iter().chain(sizes.iter().map(|(_, name)| &**name)) {
        add(name, chosen(&file(&folder.join(name))));
    }
}

/// Returns the contents of a file without the line's end; empty if it cannot be read.
fn file(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

/// Returns the chosen one of several words, or the whole text.
fn chosen(text: &str) -> &str {
    text.split(['[', ']']).nth(1).unwrap_or(text)
}

/// Returns the words of a command line of the kernel that decide about page tables. Words behind
/// `--` are for the first process.
fn boot(line: &str) -> impl Iterator<Item = &str> {
    line.split_ascii_whitespace()
        .take_while(|word| *word != "--")
        .filter(|word| BOOT_WORDS.contains(word) || BOOT_VALUES.iter().any(|start| word.starts_with(start)))
}

/// Returns the tunables that are about memory.
fn of_memory(tunables: &str) -> impl Iterator<Item = &str> {
    tunables.split(':').filter(|word| TUNABLES.iter().any(|start| word.starts_with(start)))
}

/// Joins words by blanks, as many of them as a setting holds. A word with a slash is left out.
fn joined<'a>(words: impl Iterator<Item = &'a str>) -> String {
    let mut text = String::new();
    for word in words.filter(|word| !word.contains('/')) {
        if text.len() + 1 + word.len() > MAX_TEXT {
            break;
        }
        text += if text.is_empty() { "" } else { " " };
        text += word;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_words_about_page_tables_leave_the_command_line() {
        let line = "root=/dev/sda1 nopti quiet hugepagesz=1G hugepages=2 user=eve thp_anon=64K:always \
                    nopti2 pti=off host=lab -- mitigations=off";
        let words = joined(boot(line));
        assert_eq!(words, "nopti hugepagesz=1G hugepages=2 thp_anon=64K:always pti=off");
    }

    #[test]
    fn only_tunables_about_memory_leave_the_environment() {
        let tunables = "glibc.malloc.hugetlb=1:glibc.cpu.name=x:HOME=/root:glibc.pthread.stack_hugetlb=0";
        assert_eq!(joined(of_memory(tunables)), "glibc.malloc.hugetlb=1 glibc.pthread.stack_hugetlb=0");
        assert_eq!(joined(of_memory("")), "");
    }

    #[test]
    fn words_that_do_not_fit_are_left_out() {
        let long = "x".repeat(300);
        assert_eq!(joined([&*long, &*long].into_iter()), long);
        assert_eq!(joined(["a/b", "c"].into_iter()), "c");
    }

    #[test]
    fn the_chosen_word_of_each_size_is_a_setting() {
        let folder = std::env::temp_dir().join(format!("ptarmigan-settings-{}", std::process::id()));
        for (name, text) in [
            ("enabled", "always [madvise] never\n"),
            ("khugepaged/max_ptes_none", "511\n"),
            ("hugepages-64kB/enabled", "[always] inherit madvise never\n"),
            ("hugepages-1024kB/enabled", "always [inherit] madvise never\n"),
            ("hugepages-x/enabled", "[always]\n"),
        ] {
            let path = folder.join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a temporary folder");
            fs::write(path, text).expect("a temporary file");
        }
        let mut settings = Settings::default();
        huge_pages(&folder, &mut |name, value| {
            // A file that is not there has no value.
            let _ = settings.add(name, value);
        });
        fs::remove_dir_all(&folder).expect("our folder");
        let found: Vec<_> = settings.iter().collect();
        let expected = [
            ("enabled", "madvise"),
            ("khugepaged/max_ptes_none", "511"),
            ("hugepages-64kB/enabled", "always"),
            ("hugepages-1024kB/enabled", "inherit"),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn this_machine_has_settings() {
        let settings = read(Some("glibc.malloc.arena_max=1"));
        assert!(settings.get("kernel").is_some() && settings.get("cpus online").is_some());
        assert_eq!(settings.get("page bytes"), Some("4096"));
        assert_eq!(settings.get("glibc tunables"), Some("glibc.malloc.arena_max=1"));
    }
}
