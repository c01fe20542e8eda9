//! Figures of documents: tables of them (`figures/*.toml`), a list of their commands
//! (`lists/figures.list`), run, compared and written down; and prices of proposals
//! (`figures/price`), which `cargo xtask record-set` records.
//!
//! * `cargo xtask figures` runs the commands of all counts, prints the changes, and writes the
//!   list, the tables, the tables of pages between their markers and the lines of other documents.
//! * `--pages` runs no command: it writes pages from the tables and the list.
//! * `--times` runs those of times, too, several times each. For a quiet machine.
//! * `--check` writes no file, and fails if a count or a document differs.
mod list;
mod price;
mod table;
mod value;

use crate::repository;
use clap::Args;
use list::{Figure, Kind, List};
use price::PriceMatrix;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use table::Tables;
use value::{Output, fill, is_near};

/// Runs of a command whose times are written down.
const RUNS: usize = 3;
/// The highest load at which times are measured.
const MOST_LOAD: f64 = 1.0;
/// Share by which counts of instructions may differ.
const NEAR: f64 = 0.02;
/// Share by which counts of cache misses may differ: two runs of one image were 3 % apart.
const NEAR_MISSES: f64 = 0.04;
/// Seconds after which a script is ended. Scripts boot images.
const PATIENCE: &str = "1800";

#[derive(Args)]
pub struct FiguresArgs {
    /// Change nothing; fail if a count or a document differs from what the list says.
    #[arg(long, conflicts_with = "times")]
    check: bool,
    /// Run commands that time things, too, three times each. Refused if the load is above 1.
    #[arg(long)]
    times: bool,
    /// Run only commands that take a few seconds.
    #[arg(long)]
    quick: bool,
    /// Run no command: only write, or check, the tables of pages.
    #[arg(long, conflicts_with_all = ["times", "quick", "only"])]
    pages: bool,
    /// Run only commands that contain this text.
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// Directory of built programs, instead of building them with optimisations.
    #[arg(long, value_name = "DIR")]
    programs: Option<PathBuf>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn list_path() -> PathBuf {
    root().join("crates/xtask/lists/figures.list")
}

pub fn run(args: &FiguresArgs) -> ExitCode {
    match figures(args) {
        Ok(problems) if problems.is_empty() => ExitCode::SUCCESS,
        Ok(problems) => {
            problems.iter().for_each(|problem| eprintln!("{problem}"));
            eprintln!("{} figures differ; `cargo xtask figures` writes them anew", problems.len());
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("figures: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the differences of a check, and the figures that could not be run.
fn figures(args: &FiguresArgs) -> Result<Vec<String>, String> {
    let path = list_path();
    let text = repository::read(&path)?;
    let mut list = List::parse(&text).map_err(|e| format!("{}: {e}", path.display()))?;
    if args.times {
        is_quiet(&load())?;
    }
    let mut problems = Vec::new();
    let mut programs = Programs { directory: args.programs.clone(), outputs: HashMap::new() };
    let mut documents = Documents::default();
    let mut tables = Tables::read(&root())?;
    let quick = list.quick.clone();
    // Figures that are made of tables come after those that the tables have.
    let pass = |figure: &Figure| figure.source().map_or(0, |_| 1 + u8::from(figure.data().is_none()));
    let mut figures: Vec<&mut Figure> = list.figures.iter_mut().collect();
    figures.sort_by_key(|figure| pass(figure));
    for figure in figures {
        let wanted = !args.pages
            && figure.run.contains(&args.only)
            && (!args.quick || quick.contains(&figure.run))
            && match figure.kind {
                Kind::Count | Kind::Near => true,
                Kind::Time => args.times,
                Kind::Said => false,
            };
        let kept = Kept { tables: &mut tables, documents: &mut documents };
        if let Err(problem) = bring_up_to_date(figure, wanted, args.check, &mut programs, kept) {
            problems.push(format!("[{}] {}: {problem}", figure.group, figure.name));
        }
    }
    if args.times {
        list.times = format!("{}, medians of {RUNS} runs (least – most)", host());
    }
    for document in list.documents() {
        tables.add(document.to_owned(), list.table(document))?;
    }
    let prices = PriceMatrix::read(&root())?;
    tables.add("price".to_owned(), prices.table()?)?;
    let mut unused = tables.choices();
    for page in pages()? {
        for name in documents.markers(&page)? {
            unused.remove(&name);
            let text = match &*name {
                "times" => Ok(format!("\nTimes: {}.\n", list.times)),
                "price-answers" => prices.answers(),
                _ => tables.page(&name),
            };
            let done = text.and_then(|text| documents.between(&page, &name, &text, args.check));
            problems.extend(done.err());
        }
    }
    problems.extend(unused.into_iter().map(|name| format!("no page has the table {name}")));
    if !args.check {
        documents.write()?;
        tables.write(&root())?;
        std::fs::write(&path, list.text()).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    Ok(problems)
}

/// Directories of pages that have tables of figures.
const PAGES: [&str; 2] = ["docs", "book/src"];

/// Returns the pages that may have tables, in order. A link to a page is none.
fn pages() -> Result<Vec<PathBuf>, String> {
    let mut pages = Vec::new();
    for directory in PAGES {
        let entries = std::fs::read_dir(root().join(directory)).map_err(|e| format!("{directory}: {e}"))?;
        for entry in entries {
            let entry = entry.map_err(|e| format!("{directory}: {e}"))?;
            let page = Path::new(directory).join(entry.file_name());
            if entry.file_type().is_ok_and(|kind| kind.is_file()) && repository::is_kind(&page, "md") {
                pages.push(page);
            }
        }
    }
    pages.sort();
    Ok(pages)
}

/// The places in which figures are kept.
struct Kept<'a> {
    tables: &'a mut Tables,
    documents: &'a mut Documents,
}

/// Runs a figure's command, and compares its output, or writes it down.
fn bring_up_to_date(
    figure: &mut Figure,
    wanted: bool,
    check: bool,
    programs: &mut Programs,
    kept: Kept<'_>,
) -> Result<(), String> {
    let Kept { tables, documents } = kept;
    let data = figure.data();
    let before = match data {
        Some(_) => tables.get(&figure.name, &figure.template)?,
        None => figure.here.clone(),
    };
    if wanted {
        let runs = if figure.kind == Kind::Time { RUNS } else { 1 };
        let now = match figure.source() {
            Some(file) => fill(&figure.template, &[Output::Json(table::as_json(tables.text(file)?)?)])?,
            None => fill(&figure.template, programs.outputs(&figure.run, runs)?)?,
        };
        println!("[{}] {}: {now}", figure.group, figure.name);
        let near = if figure.run.contains("--caches") { NEAR_MISSES } else { NEAR };
        let is_near = check && figure.kind == Kind::Near && is_near(&before, &now, near);
        if now != before && !is_near {
            if check {
                return Err(format!("`{}` prints {now}, not {before}", figure.run));
            }
            println!("    was {before}");
            if let Some(file) = data {
                tables.set(file, &figure.name, &now)?;
            } else {
                figure.here = now;
            }
        }
    }
    match figure.file() {
        // A new figure: the document has to have the command's output.
        Some(file) if before.is_empty() && !check => {
            documents.replace(file, &figure.here, &figure.here, check).inspect_err(|_| figure.here.clear())
        }
        Some(file) => documents.replace(file, &before, &figure.here, check),
        None => Ok(()),
    }
}

/// The command `ptarmigan` of a build with the feature `formats`.
const FORMATS: &str = "ptarmigan-formats";

/// Commands that are run, once for all figures of each.
struct Programs {
    directory: Option<PathBuf>,
    outputs: HashMap<String, Vec<Output>>,
}

impl Programs {
    fn outputs(&mut self, command: &str, runs: usize) -> Result<&[Output], String> {
        while self.outputs.get(command).map_or(0, Vec::len) < runs {
            let output = self.output(command)?;
            self.outputs.entry(command.to_owned()).or_default().push(output);
        }
        self.outputs.get(command).and_then(|all| all.get(..runs)).ok_or_else(|| "nothing was run".to_owned())
    }

    fn output(&mut self, command: &str) -> Result<Output, String> {
        let words: Vec<&str> = command.split(' ').collect();
        let (program, arguments) = words.split_first().ok_or("no command")?;
        let mut run = if program.contains('/') {
            let mut run = Command::new("timeout");
            run.args(["--kill-after=10", PATIENCE]).arg(root().join(program));
            run
        } else {
            Command::new(self.program(program)?)
        };
        let out = run
            .args(arguments)
            .current_dir(root())
            .env("CLICOLOR", "0")
            .output()
            .map_err(|e| format!("`{command}`: {}: {e}", run.get_program().display()))?;
        if !out.status.success() {
            let error = String::from_utf8_lossy(&out.stderr);
            return Err(format!("`{command}`: {}: {}", out.status, error.trim_end()));
        }
        Ok(Output::new(String::from_utf8_lossy(&out.stdout).into_owned()))
    }

    /// Returns the path of a program: one of this workspace, which is built once, or another one.
    fn program(&mut self, name: &str) -> Result<PathBuf, String> {
        let build: &[&str] = match name {
            "ptarmigan" => &["--package", "ptarmigan-cli", "--bin", "ptarmigan"],
            "ptarmigan-papers" => &["--package", "ptarmigan-papers"],
            // With the machines that other builds lack.
            FORMATS => &["--package", "ptarmigan-cli", "--bin", "ptarmigan", "--features", "formats"],
            "table-lines" => &["--package", "ptarmigan", "--example", "table-lines"],
            "page_buffers" => &["--package", "ptarmigan-pool", "--example", "page_buffers"],
            "holt-formats" => {
                &["--package", "ptarmigan-bench", "--example", "holt-formats", "--features", "formats"]
            }
            _ => return Ok(PathBuf::from(name)),
        };
        let directory = match &self.directory {
            Some(directory) => {
                directory.canonicalize().map_err(|e| format!("{}: {e}", directory.display()))?
            }
            None => {
                let mut cargo = Command::new("cargo");
                cargo.args(["build", "--profile", "dist", "--quiet"]).args(build).current_dir(root());
                let status = cargo.status().map_err(|e| format!("cargo: {e}"))?;
                if !status.success() {
                    return Err(format!("{name} is not built: {status}"));
                }
                let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
                root().join(target).join("dist")
            }
        };
        match name {
            FORMATS => {}
            "ptarmigan" | "ptarmigan-papers" => return Ok(directory.join(name)),
            _ => return Ok(directory.join("examples").join(name)),
        }
        // A build without the feature takes its name: it is copied beside it. Released programs
        // have the feature.
        let built = directory.join("ptarmigan");
        if self.directory.is_some() {
            return Ok(built);
        }
        let copy = directory.join(name);
        std::fs::copy(&built, &copy).map_err(|e| format!("{}: {e}", copy.display()))?;
        Ok(copy)
    }
}

/// Documents that have figures in them.
#[derive(Default)]
struct Documents(HashMap<PathBuf, String>);

impl Documents {
    fn text(&mut self, file: &Path) -> Result<&mut String, String> {
        if !self.0.contains_key(file) {
            let text =
                std::fs::read_to_string(root().join(file)).map_err(|e| format!("{}: {e}", file.display()))?;
            self.0.insert(file.to_owned(), text);
        }
        self.0.get_mut(file).ok_or_else(|| format!("{}: not read", file.display()))
    }

    /// Replaces `before`, which must be there once, by `now`.
    fn replace(&mut self, file: &Path, before: &str, now: &str, check: bool) -> Result<(), String> {
        let text = self.text(file)?;
        let found = if before.is_empty() { 0 } else { text.matches(before).count() };
        if found != 1 {
            return Err(format!("{} has {found} times: {before}", file.display()));
        }
        if !check && before != now {
            *text = text.replacen(before, now, 1);
        }
        Ok(())
    }

    /// Returns the names of the tables that a page has.
    fn markers(&mut self, page: &Path) -> Result<Vec<String>, String> {
        let parts = self.text(page)?.split("<!-- figures: ").skip(1);
        Ok(parts.filter_map(|part| Some(part.split_once(" -->\n")?.0.to_owned())).collect())
    }

    /// Replaces the text between the markers of `name`.
    fn between(&mut self, file: &Path, name: &str, now: &str, check: bool) -> Result<(), String> {
        let text = self.text(file)?;
        let [start, end] = [format!("<!-- figures: {name} -->\n"), format!("<!-- end: {name} -->\n")];
        let range = text.find(&start).map(|at| at + start.len()).and_then(|from| {
            let to = from + text.get(from..)?.find(&end)?;
            Some(from..to)
        });
        let Some(range) = range else {
            return Err(format!("{}: no markers `{}` and `{}`", file.display(), start.trim(), end.trim()));
        };
        if text.get(range.clone()) != Some(now) {
            if check {
                return Err(format!("{}: the table of {name} is not that of the list", file.display()));
            }
            text.replace_range(range, now);
        }
        Ok(())
    }

    fn write(&self) -> Result<(), String> {
        self.0.iter().try_for_each(|(file, text)| {
            std::fs::write(root().join(file), text).map_err(|e| format!("{}: {e}", file.display()))
        })
    }
}

/// Returns the day, the processor and the kernel of this host.
fn host() -> String {
    let said = |program: &str, arguments: &[&str]| {
        let out = Command::new(program).args(arguments).output().ok()?;
        Some(String::from_utf8_lossy(&out.stdout).trim().to_owned())
    };
    let day = said("date", &["+%Y-%m-%d"]).unwrap_or_default();
    let kernel = said("uname", &["-r"]).unwrap_or_default();
    let kernel = kernel.split('-').next().unwrap_or_default();
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cpus = info.lines().filter(|line| line.starts_with("processor")).count();
    let load = load();
    let model = model.map_or("an unknown processor", |(_, model)| model);
    format!("{day}, {model}, {cpus} CPUs, Linux {kernel}, load {load}")
}

/// Returns the load of the last minute, as Linux prints it.
fn load() -> String {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load.split(' ').next().unwrap_or_default().to_owned()
}

/// Refuses a machine on which other programs would be measured too.
fn is_quiet(load: &str) -> Result<(), String> {
    match load.parse::<f64>() {
        Ok(load) if load <= MOST_LOAD => Ok(()),
        Ok(load) => Err(format!(
            "the load is {load}: times are measured at {MOST_LOAD} at most; end other programs and wait a minute"
        )),
        Err(_) => Err("/proc/loadavg tells no load, without which times mean nothing".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_one_and_its_documents_agree_with_it() {
        let args = FiguresArgs {
            check: true,
            times: false,
            quick: false,
            pages: true,
            only: String::new(),
            programs: None,
        };
        assert_eq!(figures(&args).unwrap(), Vec::<String>::new());
        let list = List::parse(&std::fs::read_to_string(list_path()).unwrap()).unwrap();
        assert_eq!(list.documents(), ["2001", "2004", "2007", "2010"]);
        let quick = |command: &String| list.figures.iter().any(|figure| figure.run == *command);
        assert!(list.quick.iter().all(quick), "{:?}", list.quick);
        assert_eq!(list.text(), std::fs::read_to_string(list_path()).unwrap(), "the list as it is written");
    }

    #[test]
    fn times_of_a_busy_machine_are_refused() {
        assert!(is_quiet("1.00").is_ok());
        assert!(is_quiet("1.01").unwrap_err().contains("the load is 1.01"));
        assert!(is_quiet("").is_err());
    }

    #[test]
    fn a_line_that_a_document_does_not_have_is_noticed() {
        let mut documents = Documents::default();
        let file = Path::new("docs/figures.md");
        assert!(documents.markers(file).unwrap().contains(&"flushes-of-2001".to_owned()));
        let refused = documents.replace(file, "no line of it", "x", true).unwrap_err();
        assert!(refused.contains("has 0 times"), "{refused}");
        assert!(documents.between(file, "2099", "", true).unwrap_err().contains("no markers"));
        assert!(
            documents
                .between(file, "flushes-of-2001", "", true)
                .unwrap_err()
                .contains("not that of the list")
        );
    }
}
