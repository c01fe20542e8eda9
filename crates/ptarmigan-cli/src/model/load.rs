//! Models by name or by path.
use super::error::{ModelError, Problem};
use super::file::Model;
use super::host::HostName;
use crate::nearest;
use crate::print;

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
/// [`ModelError`], with the file, the field and what is allowed.
pub(crate) fn load(name: &str) -> Result<Model, ModelError> {
    if let Some((_, text)) = SHIPPED.iter().find(|(shipped, _)| *shipped == name) {
        return Model::parse(text).map_err(|problem| problem.at(name));
    }
    let text = std::fs::read_to_string(name).map_err(|error| {
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
}
