//! Reads names of C++ functions as compilers write them (Itanium C++ ABI, 5.1 *External Names*).

/// Returns the path of a function whose symbol is a plain mangled name: namespaces, classes and the
/// function, without its parameters. Other symbols (templates, operators, names of C and Rust) stay
/// as they are.
pub(super) fn plain(symbol: &str) -> String {
    symbol.strip_prefix("_Z").and_then(path).unwrap_or_else(|| symbol.to_owned())
}

/// Reads an encoding behind `_Z` up to the parameters.
fn path(encoding: &str) -> Option<String> {
    let Some(nested) = encoding.strip_prefix('N') else {
        // A function with internal linkage has an `L` first.
        let (name, _) = source_name(encoding.strip_prefix('L').unwrap_or(encoding))?;
        return Some(name.to_owned());
    };
    // Qualifiers of a member function: restrict, volatile, const, references.
    let mut rest = nested.trim_start_matches(['r', 'V', 'K', 'R', 'O']);
    let mut path: Vec<String> = Vec::new();
    loop {
        if let Some(_parameters) = rest.strip_prefix('E') {
            return (!path.is_empty()).then(|| path.join("::"));
        } else if let Some(after) = rest.strip_prefix("St") {
            path.push("std".to_owned());
            rest = after;
        } else if let Some(after) = ["C1", "C2"].iter().find_map(|kind| rest.strip_prefix(kind)) {
            path.push(path.last()?.clone());
            rest = after;
        } else if let Some(after) = ["D0", "D1", "D2"].iter().find_map(|kind| rest.strip_prefix(kind)) {
            path.push(format!("~{}", path.last()?));
            rest = after;
        } else {
            let (name, after) = source_name(rest.strip_prefix('L').unwrap_or(rest))?;
            path.push(name.to_owned());
            rest = after;
        }
    }
}

/// Reads an identifier behind its length.
fn source_name(text: &str) -> Option<(&str, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let length: usize = text.get(..digits)?.parse().ok()?;
    let (name, rest) = text.get(digits..)?.split_at_checked(length)?;
    match name {
        "" => None,
        _ if name.starts_with("_GLOBAL__N") => Some(("(anonymous namespace)", rest)),
        _ => Some((name, rest)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_names_are_paths_and_others_stay() {
        for (symbol, path) in [
            ("_ZN12_GLOBAL__N_17Machine10table_freeEm", "(anonymous namespace)::Machine::table_free"),
            ("_Z5unmapRN6kernel5SpaceE", "unmap"),
            ("_ZL5unmapv", "unmap"),
            ("_ZNK6kernel5Space6lookupEm", "kernel::Space::lookup"),
            ("_ZN6kernel5SpaceC2Ev", "kernel::Space::Space"),
            ("_ZN6kernel5SpaceD1Ev", "kernel::Space::~Space"),
            ("_ZNSt6vectorE", "std::vector"),
            // A template, an operator.
            ("_ZN6kernel4flatIiE3getEv", "_ZN6kernel4flatIiE3getEv"),
            ("_ZN6kernel5SpaceixEm", "_ZN6kernel5SpaceixEm"),
        ] {
            assert_eq!(plain(symbol), path);
        }
        for same in
            ["unmap", "kernel::unmap", "_Z", "_ZN", "_ZNE", "_Z0", "_Z9", "_Z99999999999999999999x", "_ZN1"]
        {
            assert_eq!(plain(same), same);
        }
        assert_eq!(plain("_Z3äé"), "_Z3äé", "cut inside of a character");
    }
}
