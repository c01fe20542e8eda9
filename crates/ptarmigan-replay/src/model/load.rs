//! Models by name or by path.
use super::error::{ModelError, Problem};
use super::file::Model;
use super::host::HostName;
use ptarmigan_term::nearest;
use ptarmigan_term::print;
use std::fs::File;
use std::io::{self, Read};

/// The models that come with the command.
const SHIPPED: [(&str, &str); 4] = [
    ("linux-33", include_str!("../../costs/linux-33.json")),
    ("power3-2001", include_str!("../../costs/power3-2001.json")),
    ("always-full", include_str!("../../costs/always-full.json")),
    ("always-page", include_str!("../../costs/always-page.json")),
];

/// Loads the shipped model `name`, or the model in the file of that path. Warns about a file that
/// was measured on another host.
///
/// # Errors
/// [`ModelError`], with the file, the field and its allowed values.
pub fn load(name: &str) -> Result<Model, ModelError> {
    if let Some((_, text)) = SHIPPED.iter().find(|(shipped, _)| *shipped == name) {
        return Model::parse(text).map_err(|problem| problem.at(name));
    }
    let text = read(name).map_err(|error| {
        let shipped = SHIPPED.map(|(shipped, _)| shipped);
        let hint = nearest::hint(name, &shipped);
        Problem::Unreadable { error, shipped: shipped.join(", ") + &hint }.at(name)
    })?;
    let model = Model::parse(&text).map_err(|problem| problem.at(name))?;
    let here = HostName::here();
    if let Some(host) = model.host.as_ref().filter(|host| **host != here) {
        print::error(&format!(
            "warning: cost model {} ({name}) is of another host, {host}; this one is {here}",
            model.name
        ));
    }
    Ok(model)
}

/// The longest file that is read as a model: one has less than 10 KiB.
const LONGEST: u64 = 1 << 20;

/// Reads a regular file of a model's size. Others, such as a device, may have no end.
fn read(name: &str) -> io::Result<String> {
    let refused = |why: String| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    // Before it is opened, which waits for the other end of a pipe.
    if !std::fs::metadata(name)?.is_file() {
        return refused("not a regular file".to_owned());
    }
    let file = File::open(name)?;
    let bytes = file.metadata()?.len();
    if bytes > LONGEST {
        return refused(format!("{bytes} bytes, and a model has at most {LONGEST}"));
    }
    let mut text = String::new();
    // A file that reports 0 bytes is not on a disk (a pipe, `/proc`), and reading may wait.
    file.take(bytes).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ptarmigan::tlb::CostModel;

    #[test]
    fn shipped_models_are_what_their_names_say() {
        for (name, _) in SHIPPED {
            assert_eq!(load(name).unwrap().name, name);
        }
        assert_eq!(load("linux-33").unwrap().rule, CostModel::LINUX);
        assert_eq!(load("always-full").unwrap().rule, CostModel::ALWAYS_FULL);
        assert_eq!(load("always-page").unwrap().rule, CostModel::ALWAYS_PAGE);
        let CostModel::Costs(costs) = load("power3-2001").unwrap().rule else { panic!("a rule by costs") };
        assert_eq!((costs.page, costs.page_hashed, costs.step), (110_000, 998_500, 56_000));
        assert_eq!((costs.full_entry, costs.entries), (8_393, 262_144));
    }

    #[test]
    fn irregular_and_too_large_files_are_refused_as_models() {
        let said = |name: &str| load(name).map(|_| ()).unwrap_err().to_string();
        assert!(said("/dev/zero").contains("/dev/zero: not a regular file"), "{}", said("/dev/zero"));
        let dir = std::env::temp_dir();
        assert!(said(dir.to_str().unwrap()).contains("not a regular file"));
        let large = dir.join(format!("ptarmigan-model-{}", std::process::id()));
        File::create(&large).unwrap().set_len(LONGEST + 1).unwrap();
        let why = said(large.to_str().unwrap());
        std::fs::remove_file(&large).unwrap();
        assert!(why.contains("1048577 bytes, and a model has at most 1048576"), "{why}");
    }
}
