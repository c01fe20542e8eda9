//! The schema of a cost model.
use super::error::Problem;
use super::host::HostName;
use super::page_prices::{PagePrices, PriceFile};
use super::parameter::Parameter;
use ptarmigan::tlb::{CostModel, Costs};
use ptarmigan_term::Time;
use serde::Deserialize;
use serde_json::Value;

/// The number of the schema.
const SCHEMA: u64 = 1;
/// The highest ceiling, in pages.
const MOST_PAGES: u64 = u32::MAX as u64;

/// A cost model.
#[derive(Clone, Debug)]
pub struct Model {
    /// Its name, for reports.
    pub name: String,
    /// The host it was measured on; `None` for a rule, which does not depend on a host.
    pub host: Option<HostName>,
    /// The rule for the planner.
    pub rule: CostModel,
    /// The price of clearing a byte of the hash table, in picoseconds.
    pub wipe_byte: Option<u64>,
    /// The prices of work on pages.
    pub page_prices: Option<PagePrices>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct File {
    schema: Value,
    name: String,
    #[serde(default)]
    host: Option<HostName>,
    rule: Value,
    #[serde(default)]
    pages: Option<Value>,
    #[serde(default)]
    costs: Option<CostFile>,
    #[serde(default)]
    page_prices: Option<PriceFile>,
}

/// Costs of a machine. A cost that does not exist on the machine is left out.
#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields, expecting = "an object of costs")]
struct CostFile {
    page: Option<Parameter>,
    page_hashed: Option<Parameter>,
    step: Option<Parameter>,
    run: Option<Parameter>,
    ranged_page: Option<Parameter>,
    window: Option<Parameter>,
    full: Option<Parameter>,
    full_entry: Option<Parameter>,
    entries: Option<Parameter>,
    refill: Option<Parameter>,
    resident: Option<Parameter>,
    ask: Option<Parameter>,
    ask_cpu: Option<Parameter>,
    /// Clearing a byte of the hash table: priced, and no plan of the planner's.
    wipe_byte: Option<Parameter>,
}

impl Model {
    /// Reads the text of a model.
    ///
    /// # Errors
    /// The [`Problem`], with the field and its allowed values.
    pub fn parse(text: &str) -> Result<Self, Problem> {
        let file: File = serde_json::from_str(text).map_err(Problem::Malformed)?;
        let refuse = |field: &str, found: &Value, allowed: &str| Problem::NotAllowed {
            field: field.to_owned(),
            found: found.to_string(),
            allowed: allowed.to_owned(),
        };
        if file.schema.as_u64() != Some(SCHEMA) {
            return Err(refuse("schema", &file.schema, "1"));
        }
        if file.name.is_empty() {
            return Err(refuse("name", &Value::from(""), "a text that is not empty"));
        }
        let mut wipe_byte = None;
        let rule = match file.rule.as_str() {
            Some("costs") => {
                let costs = file.costs.as_ref().ok_or_else(|| missing("costs", "an object of costs"))?;
                wipe_byte = CostFile::price(&costs.wipe_byte, "wipe_byte")?;
                CostModel::Costs(costs.read()?)
            }
            Some("ceiling") => {
                let pages = file.pages.as_ref().ok_or_else(|| missing("pages", "a number of pages"))?;
                let pages = pages
                    .as_u64()
                    .filter(|n| (1..=MOST_PAGES).contains(n))
                    .ok_or_else(|| refuse("pages", pages, "a whole number from 1 to 4294967295"))?;
                CostModel::LinuxCeiling { pages }
            }
            Some("always-full") => CostModel::ALWAYS_FULL,
            Some("always-page") => CostModel::ALWAYS_PAGE,
            _ => return Err(refuse("rule", &file.rule, "one of costs, ceiling, always-full, always-page")),
        };
        // A cost that the rule never reads would be an option without effect.
        if file.costs.is_some() && file.rule != "costs" {
            let found = Value::from("there");
            return Err(refuse("costs", &found, "left out unless the rule is \"costs\""));
        }
        if let Some(pages) = file.pages.filter(|_| file.rule != "ceiling") {
            return Err(refuse("pages", &pages, "left out unless the rule is \"ceiling\""));
        }
        let page_prices = file.page_prices.map(PagePrices::from);
        Ok(Model { name: file.name, host: file.host, rule, wipe_byte, page_prices })
    }
}

fn missing(field: &str, allowed: &str) -> Problem {
    Problem::Missing { field: field.to_owned(), allowed: allowed.to_owned() }
}

impl CostFile {
    fn price(parameter: &Option<Parameter>, field: &str) -> Result<Option<u64>, Problem> {
        parameter.as_ref().map(|p| p.price(&format!("costs.{field}"))).transpose()
    }

    fn read(&self) -> Result<Costs, Problem> {
        let name = |field: &str| format!("costs.{field}");
        let price = Self::price;
        let count = |parameter: &Option<Parameter>, field: &str, unit: &str| {
            parameter.as_ref().map(|p| p.count(&name(field), unit)).transpose()
        };
        let page = price(&self.page, "page")?;
        let page = page.ok_or_else(|| missing("costs.page", "the price of forgetting one page"))?;
        let page_hashed = price(&self.page_hashed, "page_hashed")?.unwrap_or(page);
        if page_hashed < page {
            let found = Time::from_nanos(page_hashed as f64 / 1000.0);
            return Err(Problem::NotAllowed {
                field: name("page_hashed.value"),
                found: format!("{found:.4}"),
                allowed: "at least costs.page".to_owned(),
            });
        }
        let full = price(&self.full, "full")?;
        let full_entry = price(&self.full_entry, "full_entry")?;
        let entries = count(&self.entries, "entries", "entries")?;
        match (full_entry, entries) {
            (Some(_), None) => return Err(missing("costs.entries", "a number, as full_entry is a price")),
            (None, Some(_)) => return Err(missing("costs.full_entry", "the price of each of costs.entries")),
            (None, None) if full.is_none() => {
                return Err(missing("costs.full", "the price of forgetting everything"));
            }
            _ => {}
        }
        let refill = price(&self.refill, "refill")?;
        let resident = count(&self.resident, "resident", "pages")?;
        if resident.is_some() && refill.is_none() {
            return Err(missing("costs.refill", "the price of each of costs.resident"));
        }
        Ok(Costs {
            page_hashed,
            step: price(&self.step, "step")?.unwrap_or(0),
            run: price(&self.run, "run")?.unwrap_or(0),
            ranged_page: price(&self.ranged_page, "ranged_page")?.unwrap_or(page),
            window: price(&self.window, "window")?.unwrap_or(0),
            full_entry: full_entry.unwrap_or(0),
            entries: entries.unwrap_or(0),
            refill: refill.unwrap_or(0),
            resident: resident.unwrap_or(0),
            ask: price(&self.ask, "ask")?.unwrap_or(0),
            ask_cpu: price(&self.ask_cpu, "ask_cpu")?.unwrap_or(0),
            ..Costs::new(page, full.unwrap_or(0))
        })
    }
}
