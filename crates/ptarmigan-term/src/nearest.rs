//! Suggestions for a name that is not known.

/// Returns `; did you mean …?` with the nearest of `known`, or an empty string if no name is near.
pub fn hint<S: AsRef<str>>(name: &str, known: &[S]) -> String {
    match nearest(name, known).as_slice() {
        [] => String::new(),
        near => format!("; did you mean {}?", near.join(" or ")),
    }
}

/// Returns at most three of `known`, the nearest first. A name is near if it contains `name`, or
/// if few edits turn one into the other.
pub fn nearest<'a, S: AsRef<str>>(name: &str, known: &'a [S]) -> Vec<&'a str> {
    let allowed = name.chars().count().div_ceil(3).max(1);
    let mut near: Vec<(usize, &str)> = known
        .iter()
        .map(AsRef::as_ref)
        .filter_map(|other| {
            let edits = strsim::damerau_levenshtein(&name.to_lowercase(), &other.to_lowercase());
            let within = name.len() > 1 && other.contains(name);
            (edits <= allowed || within).then_some((edits, other))
        })
        .collect();
    near.sort_unstable();
    near.truncate(3);
    near.into_iter().map(|(_, other)| other).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_comes_first_and_distant_ones_do_not_come() {
        let known = ["compile", "configure", "rustc", "fixture"];
        assert_eq!(nearest("compil", &known), ["compile"]);
        assert_eq!(nearest("ruts", &known), ["rustc"]);
        assert_eq!(hint("compile.ptrac", &["compile.ptrace"]), "; did you mean compile.ptrace?");
        assert_eq!(hint("firefox", &known), "");
        assert_eq!(hint("", &known), "");
    }
}
