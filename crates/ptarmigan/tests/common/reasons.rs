//! Reads a list of exceptions with their reasons: `because REASON`, which goes on in lines of four
//! spaces, then lines of names.
use std::collections::BTreeMap;

/// Returns the names of `list`, each with its reason.
pub fn reasons(list: &str) -> BTreeMap<String, String> {
    let (mut found, mut reason) = (BTreeMap::new(), String::new());
    for line in list.lines().filter(|line| !line.starts_with('#')) {
        if let Some(begin) = line.strip_prefix("because ") {
            begin.clone_into(&mut reason);
        } else if let Some(more) = line.strip_prefix("    ") {
            reason.push_str(more);
        } else {
            for name in line.split_whitespace() {
                assert!(reason.len() > 20, "{name} has no reason");
                assert!(found.insert(name.to_owned(), reason.clone()).is_none(), "{name} stands twice");
            }
        }
    }
    found
}
