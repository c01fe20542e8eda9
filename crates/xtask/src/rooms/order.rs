//! Reads the order of modules of a crate, and finds uses of modules that come after their user.
use super::circles::Crate;
use crate::repository;
use std::path::{Path, PathBuf};

/// The order of the modules of a crate.
#[derive(Debug)]
pub struct Order {
    /// The directory of its root.
    pub directory: PathBuf,
    /// Its modules. Each may use only modules before it.
    pub modules: Vec<String>,
}

impl Order {
    /// Reads the orders of the list at `path`.
    ///
    /// # Errors
    ///
    /// A text that names the line, if the file cannot be read or a module comes before a crate.
    pub fn read(path: &Path) -> Result<Vec<Self>, String> {
        let text = repository::read(path)?;
        Self::parse(&text).map_err(|err| format!("{}:{err}", path.display()))
    }

    fn parse(text: &str) -> Result<Vec<Self>, String> {
        let mut orders: Vec<Self> = Vec::new();
        for (at, line) in text.lines().enumerate() {
            let words: Vec<&str> = line.split_whitespace().collect();
            match (words.as_slice(), orders.last_mut()) {
                ([], _) => {}
                ([first, ..], _) if first.starts_with('#') => {}
                (["crate", directory], _) => {
                    orders.push(Self { directory: directory.into(), modules: Vec::new() })
                }
                ([module], Some(order)) => order.modules.push((*module).to_owned()),
                _ => return Err(format!("{}: neither `crate DIRECTORY` nor a module of it: {line}", at + 1)),
            }
        }
        Ok(orders)
    }

    /// Returns the uses of modules that come after their user, and those without a place.
    pub fn failures(&self, of: &Crate) -> Vec<String> {
        let place = |module: &str| self.modules.iter().position(|known| known == module);
        let mut failures = Vec::new();
        for (from, targets) in of.arrows() {
            for (to, line) in targets {
                let wrong = match (place(&from[0]), place(&to[0])) {
                    (Some(here), Some(there)) if there > here => {
                        format!("which comes after `{}` in rooms.list; move the common part", from[0])
                    }
                    (Some(_), Some(_)) => continue,
                    (None, _) => format!("but `{}` has no place in rooms.list", from[0]),
                    (_, None) => "which has no place in rooms.list".to_owned(),
                };
                failures.push(format!("{}, {wrong}", of.place(&from, &to, line)));
            }
        }
        failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_crates_with_their_modules() {
        let orders = Order::parse("# x\n\ncrate a/src\nlow\nhigh\ncrate b/src\n").unwrap();
        assert_eq!(orders[0].modules, ["low", "high"]);
        assert_eq!(orders[1].directory, PathBuf::from("b/src"));
        for text in ["low", "crate a/src\nlow high", "crate"] {
            assert!(Order::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_use_of_a_later_module_fails_and_of_an_earlier_one_does_not() {
        let orders = Order::parse("crate a/src\nlow\nhigh").unwrap();
        let failures = |file: &str, text: &str| {
            let mut made = Crate::default();
            for (file, text) in [("low.rs", ""), ("high.rs", ""), ("new.rs", ""), (file, text)] {
                made.add(Path::new("a/src"), &Path::new("a/src").join(file), false, text);
            }
            orders[0].failures(&made)
        };
        assert_eq!(failures("high.rs", "use crate::low::Low;"), [""; 0]);
        let up = "a/src/low.rs:2: uses `high`, which comes after `low` in rooms.list; move the common part";
        assert_eq!(failures("low.rs", "//! Low.\nuse crate::high::High;"), [up]);
        assert!(failures("new.rs", "use crate::low::Low;")[0].contains("`new` has no place"));
        assert!(failures("low.rs", "use crate::new::New;")[0].contains("which has no place"));
    }
}
