//! Draws the pictures of a report that the README and the book show, by a headless browser.
//!
//! They are of the shipped recording `forkbig`, whose report has counts and recorded times only, so
//! they change with the page and not from run to run.
use clap::Args;
use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
};

/// Arguments of `pictures`.
#[derive(Args)]
pub struct PicturesArgs {
    /// The browser; without it the first of chromium, chromium-browser and google-chrome that is
    /// installed.
    #[arg(long, value_name = "COMMAND")]
    browser: Option<String>,
}

/// A picture, and the part of a document that it shows.
struct Picture {
    file: &'static str,
    source: Source,
    /// Pixels.
    width: u32,
    height: u32,
    dark: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    /// The card of `--summary`.
    Card,
    /// The page, from its top.
    Page,
}

const TRACE: &str = "traces/forkbig.ptrace";
const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];
/// No picture may be larger: a clone holds each version of it.
const BYTES: u64 = 200_000;
const PICTURES: [Picture; 3] = [
    Picture { file: "docs/report.png", source: Source::Card, width: 1200, height: 630, dark: false },
    Picture { file: "docs/report-desktop.png", source: Source::Page, width: 1080, height: 1215, dark: false },
    Picture { file: "docs/report-phone.png", source: Source::Page, width: 390, height: 1112, dark: true },
];

/// Returns a document that shows `file` in a frame of the picture's size. A browser's own window
/// cannot be as narrow as a phone.
fn frame(picture: &Picture, file: &Path) -> String {
    format!(
        "<!DOCTYPE html>\n<meta name=\"color-scheme\" content=\"light dark\">\n\
         <style>body {{ margin: 0; overflow: hidden }} iframe {{ border: 0; display: block }}</style>\n\
         <iframe width=\"{}\" height=\"{}\" src=\"file://{}\"></iframe>\n",
        picture.width,
        picture.height,
        file.display()
    )
}

fn installed(command: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|directory| directory.join(command).is_file())
}

/// Runs a command; its last line on standard error is the reason if it fails.
fn run_it(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().map_err(|e| format!("{name}: {e}"))?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    Err(format!("{name}: {}: {}", output.status, text.lines().last().unwrap_or("no message")))
}

/// Draws one picture with `browser`, in the directory `scratch` that holds the documents.
fn draw(picture: &Picture, browser: &str, scratch: &Path) -> Result<u64, String> {
    let failed = |e: std::io::Error| format!("{}: {e}", picture.file);
    let source = scratch.join(if picture.source == Source::Card { "card.svg" } else { "page.html" });
    let (around, raw) = (scratch.join("frame.html"), scratch.join("raw.png"));
    fs::write(&around, frame(picture, &source)).map_err(failed)?;
    let mut command = Command::new(browser);
    command.args(["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]);
    command.args(["--allow-file-access-from-files", "--force-device-scale-factor=1"]);
    command.arg(format!("--user-data-dir={}", scratch.join("profile").display()));
    command.arg(format!("--window-size={},{}", picture.width, picture.height));
    command.arg(format!("--screenshot={}", raw.display()));
    if picture.dark {
        command.arg("--blink-settings=preferredColorScheme=0");
    }
    run_it(command.arg(format!("file://{}", around.display())))?;
    let small = scratch.join("small.png");
    let mut command = Command::new("pngquant");
    command.args(["--force", "--strip", "--speed", "1", "--output"]).arg(&small).arg("64").arg(&raw);
    run_it(&mut command)?;
    let bytes = fs::metadata(&small).map_err(failed)?.len();
    if bytes > BYTES {
        return Err(format!("{}: {bytes} bytes, at most {BYTES} are allowed", picture.file));
    }
    fs::copy(&small, picture.file).map_err(failed)
}

fn all(args: &PicturesArgs, scratch: &Path) -> Result<(), String> {
    let found = || BROWSERS.into_iter().find(|name| installed(name)).map(str::to_owned);
    let browser = args.browser.clone().or_else(found);
    let browser = browser.ok_or_else(|| format!("no browser: install one of {}", BROWSERS.join(", ")))?;
    if !installed("pngquant") {
        return Err("missing pngquant: install the package pngquant".into());
    }
    fs::create_dir_all(scratch).map_err(|e| format!("{}: {e}", scratch.display()))?;
    let mut command = Command::new("cargo");
    command.args(["run", "--quiet", "-p", "ptarmigan-cli", "--", "report", TRACE, "-o"]);
    run_it(command.arg(scratch.join("page.html")).arg("--summary").arg(scratch.join("card.svg")))?;
    for picture in &PICTURES {
        let bytes = draw(picture, &browser, scratch)?;
        println!("{}: {} by {} pixels, {bytes} bytes", picture.file, picture.width, picture.height);
    }
    Ok(())
}

/// Runs `cargo xtask pictures`.
pub fn run(args: &PicturesArgs) -> ExitCode {
    let scratch: PathBuf = env::temp_dir().join(format!("ptarmigan-pictures-{}", std::process::id()));
    let result = all(args, &scratch);
    // A scratch directory that stays is no reason to fail.
    let _ = fs::remove_dir_all(&scratch);
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("cargo xtask pictures: {why}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
    }

    /// The first bytes of a PNG hold its size.
    #[test]
    fn committed_pictures_have_their_size_and_are_small() {
        for picture in &PICTURES {
            let bytes = fs::read(root().join(picture.file)).expect(picture.file);
            assert_eq!(&bytes[..8], b"\x89PNG\r\n\x1a\n", "{}", picture.file);
            let number = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
            assert_eq!((number(16), number(20)), (picture.width, picture.height), "{}", picture.file);
            assert!(bytes.len() as u64 <= BYTES, "{}: {} bytes", picture.file, bytes.len());
        }
    }

    /// Each PNG that a document shows is drawn by this command.
    #[test]
    fn documents_show_these_pictures() {
        let text = ["README.md", "docs/report.md"]
            .map(|file| fs::read_to_string(root().join(file)).expect(file))
            .concat();
        let shown = text.split("](").skip(1).filter_map(|link| link.split_once(')'));
        let mut shown: Vec<&str> = shown
            .filter_map(|(link, _)| link.rsplit('/').next())
            .filter(|link| link.ends_with(".png"))
            .collect();
        let mut drawn: Vec<&str> =
            PICTURES.iter().filter_map(|picture| picture.file.strip_prefix("docs/")).collect();
        shown.sort_unstable();
        drawn.sort_unstable();
        assert_eq!(shown, drawn);
    }

    #[test]
    fn a_failed_command_is_named_with_its_last_line() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo one >&2; echo two >&2; exit 3"]);
        assert_eq!(run_it(&mut command), Err("sh: exit status: 3: two".into()));
        let missing = run_it(&mut Command::new("no-such-browser")).expect_err("it is missing");
        assert!(missing.starts_with("no-such-browser: "), "{missing}");
    }
}
