//! Writes a copy of a trace for others, without names of files, functions and unread programs.
use super::{InspectArgs, problem};
use ptarmigan_replay::files;
use ptarmigan_term::output::Output;
use ptarmigan_term::print;
use ptarmigan_term::words::several;
use ptarmigan_term::{Context, Failure};
use ptarmigan_trace::{Kind, Note, Writer};
use std::path::Path;

/// The compression level, as that of a recording.
const LEVEL: i32 = 19;

/// Writes the copy. Its numbers of tasks and events are the trace's, but for notes that are only
/// about functions.
///
/// # Errors
/// If the trace cannot be read, or `to` is there already or cannot be written.
pub(super) fn share(args: &InspectArgs, to: &Path) -> Result<(), Failure> {
    let name = to.display();
    if to.symlink_metadata().is_ok() {
        return Err(Failure::new(format!("{name}: is there already; name a new file")));
    }
    let output = Output::new(to)?;
    let file = files::open(&args.file).map_err(|e| problem(args, &e))?;
    let (header, summary) = (file.header().clone(), *file.summary());
    let mut writer = Writer::new(Vec::new(), &header, LEVEL).context(&name)?;
    writer.set_unrecorded(summary.unrecorded);
    let mut reader = file.events().map_err(|e| problem(args, &e))?;
    let mut left_out = 0;
    while let Some(event) = reader.next() {
        let event = event.map_err(|e| problem(args, &e))?;
        let Some(event) = event.without_symbols() else {
            left_out += 1;
            continue;
        };
        if let Kind::Note(Note::Setting { name: setting, value }) = event.kind {
            let text = |text| reader.symbols().text(text);
            writer.setting(text(setting), text(value)).context(&name)?;
            continue;
        }
        writer.time(reader.time()).context(&name)?;
        writer.event(&event).context(&name)?;
    }
    let (bytes, _) = writer.finish(summary.lost).context(&name)?;
    output.write(&bytes)?;
    let callers = several(left_out, "note");
    print::note(&format!("{name}: without names of files and functions ({callers} of callers left out)"));
    Ok(())
}
