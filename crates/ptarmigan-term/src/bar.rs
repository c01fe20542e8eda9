//! Progress bars on standard error, shown only on a terminal.
use indicatif::{MultiProgress, ProgressStyle};
use std::io::IsTerminal;
use std::sync::LazyLock;

pub use indicatif::ProgressBar;

/// All bars: those of threads that work side by side stand one below the other.
static BARS: LazyLock<MultiProgress> = LazyLock::new(MultiProgress::new);

/// Returns a bar for `len` steps.
pub fn bar(len: u64, what: &str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = BARS.add(ProgressBar::new(len).with_message(what.to_owned()));
    styled(bar, "{msg} {wide_bar} {percent}% {eta}")
}

/// Returns a spinner for work of unknown length.
#[cfg_attr(not(all(target_os = "linux", target_arch = "x86_64")), allow(dead_code))]
pub fn spinner() -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = styled(ProgressBar::new_spinner(), "{spinner} {msg}");
    bar.enable_steady_tick(std::time::Duration::from_millis(200));
    bar
}

fn styled(bar: ProgressBar, template: &str) -> ProgressBar {
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
