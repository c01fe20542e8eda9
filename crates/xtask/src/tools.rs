//! Looks for the tools that rows of a table need, so that rows without theirs are left out.
use crate::script::succeeds;
use serde::Deserialize;
use std::collections::BTreeMap;

/// A tool without which rows of a table are left out.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tool {
    /// The name that rows say.
    pub name: String,
    /// Script that succeeds if it is there.
    pub have: String,
    /// Packages of Debian that have it.
    #[serde(default)]
    pub debian: Option<String>,
}

/// Tools that were looked for, so that each is looked for once.
pub struct Tools<'a> {
    all: &'a [Tool],
    have: BTreeMap<&'a str, bool>,
}

impl<'a> Tools<'a> {
    /// Looks for no tool yet.
    pub fn new(all: &'a [Tool]) -> Self {
        Tools { all, have: BTreeMap::new() }
    }

    /// Returns the first of the `needs` that is not here.
    pub fn missing(&mut self, needs: &[String]) -> Option<&'a Tool> {
        let mut needed = self.all.iter().filter(|tool| needs.contains(&tool.name));
        needed.find(|tool| !*self.have.entry(&tool.name).or_insert_with(|| succeeds(&tool.have)))
    }
}

/// Returns why the `needs` of a row are wrong, if one of them is not in the table.
pub fn unknown(all: &[Tool], needs: &[String]) -> Option<String> {
    let need = needs.iter().find(|need| all.iter().all(|tool| tool.name != **need));
    need.map(|need| format!("its need {need} is not in the table"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_tool_that_is_missing_is_named() {
        let tool = |name: &str, have: &str| Tool { name: name.into(), have: have.into(), debian: None };
        let all = [tool("shell", "true"), tool("moon", "false"), tool("sun", "false")];
        let mut tools = Tools::new(&all);
        let mut missing = |needs: &[&str]| {
            let needs: Vec<String> = needs.iter().map(|&need| need.to_owned()).collect();
            (tools.missing(&needs).map(|tool| tool.name.as_str()), unknown(&all, &needs))
        };
        assert_eq!(missing(&["shell"]), (None, None));
        assert_eq!(missing(&["sun", "shell"]), (Some("sun"), None));
        let why = Some("its need star is not in the table".to_owned());
        assert_eq!(missing(&["star", "moon"]), (Some("moon"), why));
    }
}
