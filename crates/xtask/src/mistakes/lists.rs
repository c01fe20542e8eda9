//! Reads all lists of mistakes, and the files that the mistakes are made in.
use super::list::{Edit, Mistake, parse};
use super::tests_of::Sources;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The lists, in `models`.
pub const LISTS: [&str; 4] = ["mutations", "invariants", "owners", "museum"];

/// A mistake with the changes that make it.
pub struct Made {
    pub mistake: Mistake,
    pub edits: Vec<Edit>,
}

/// All mistakes, and the files that they are made in.
pub struct Lists {
    pub mistakes: Vec<Made>,
    pub sources: BTreeMap<String, String>,
}

/// Reads all lists below the root of the workspace.
///
/// # Errors
///
/// One line for each mistake that is stale.
pub fn lists(root: &Path) -> Result<Lists, String> {
    let read = |name: &str| {
        fs::read_to_string(root.join(name))
            .map_err(|e| format!("{name}: {e}; run it in the root of the repository"))
    };
    let mut lists = Lists { mistakes: Vec::new(), sources: BTreeMap::new() };
    let (mut stale, mut tests) = (Vec::new(), Sources::new(root));
    for name in LISTS {
        let name = format!("models/{name}");
        for mistake in parse(&name, &read(&name)?)? {
            if !lists.sources.contains_key(&mistake.file) {
                let text = read(&mistake.file).map_err(|_| {
                    format!("{}: there is no file {}; correct its line file:", mistake.place, mistake.file)
                });
                match text {
                    Ok(text) => _ = lists.sources.insert(mistake.file.clone(), text),
                    Err(why) => {
                        stale.push(why);
                        continue;
                    }
                }
            }
            let edits = mistake.edits(&lists.sources[&mistake.file]);
            match edits.and_then(|edits| tests.check(&mistake).map(|()| edits)) {
                Ok(edits) => lists.mistakes.push(Made { mistake, edits }),
                Err(why) => stale.push(why),
            }
        }
    }
    if stale.is_empty() { Ok(lists) } else { Err(format!("stale:\n{}", stale.join("\n"))) }
}
