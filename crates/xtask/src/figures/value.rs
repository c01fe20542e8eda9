//! Values of a command's output, and texts made of them.
//!
//! An expression is postfix: `kept free kept + / 100 *` is 100 kept / (kept + free). Its operands
//! are numbers, and of a JSON document paths: `rows(case=range,policy=v5).levels.*.misses`.
//! Brackets choose the one element of an array whose fields have these values; `*` adds up all
//! fields, or elements; the sum of no elements is 0. Of other output an operand in quotes is the
//! number that follows that text, `"faults: "`; `"| v5 |"@2` is the second number behind it in that
//! line.
use ptarmigan_term::Mean;
use serde_json::Value;

/// The output of a command.
pub enum Output {
    Json(Value),
    Text(String),
}

impl Output {
    /// Reads the output of a command.
    pub fn new(text: String) -> Self {
        match serde_json::from_str(&text) {
            Ok(value @ Value::Object(_)) => Output::Json(value),
            _ => Output::Text(text),
        }
    }

    fn operand(&self, operand: &str) -> Result<f64, String> {
        if let Ok(number) = operand.parse() {
            return Ok(number);
        }
        let quoted = operand.strip_prefix('"').and_then(|rest| rest.rsplit_once('"'));
        match (self, quoted) {
            (Output::Json(value), None) => path(value, operand),
            (Output::Text(text), Some((before, column))) => {
                let column = match column.strip_prefix('@') {
                    None if column.is_empty() => 1,
                    Some(column) => column.parse().map_err(|_| format!("{operand}: @ and a number"))?,
                    None => return Err(format!("{operand}: @ and a number follow a text")),
                };
                let after = text.match_indices(before).map(|(at, _)| &text[at + before.len()..]);
                let mut found = after.filter_map(|rest| match column {
                    1 => number(rest),
                    _ => numbers(rest.lines().next()?).0.get(column - 1_usize).copied(),
                });
                found.next().ok_or_else(|| format!("no number follows {operand}"))
            }
            (Output::Json(_), Some(_)) => Err(format!("{operand}: the output is JSON, give a path")),
            (Output::Text(_), None) => {
                Err(format!("{operand}: the output is no JSON, give a text in quotes"))
            }
        }
    }

    /// Evaluates an expression.
    ///
    /// # Errors
    /// With the operand that there is not.
    pub fn evaluate(&self, expression: &str) -> Result<f64, String> {
        let mut stack: Vec<f64> = Vec::new();
        for token in tokens(expression) {
            if let "+" | "-" | "*" | "/" | "min" = token {
                let (Some(b), Some(a)) = (stack.pop(), stack.pop()) else {
                    return Err(format!("{expression}: {token} has too few operands"));
                };
                stack.push(match token {
                    "+" => a + b,
                    "-" => a - b,
                    "*" => a * b,
                    "min" => a.min(b),
                    _ => a / b,
                });
            } else {
                stack.push(self.operand(token)?);
            }
        }
        match stack[..] {
            [value] if f64::is_finite(value) => Ok(value),
            _ => Err(format!("{expression}: {stack:?} is not one number")),
        }
    }
}

/// Words, and texts in quotes or brackets with the spaces that are in them.
fn tokens(mut expression: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    loop {
        expression = expression.trim_start();
        let end = match expression.strip_prefix('"').and_then(|rest| rest.find('"')) {
            Some(quote) => {
                let behind = &expression[quote + 2..];
                quote + 2 + behind.find(' ').unwrap_or(behind.len())
            }
            None => {
                let mut depth = 0;
                let blank = expression.find(|c: char| {
                    depth += i32::from(c == '(') - i32::from(c == ')');
                    c == ' ' && depth == 0
                });
                blank.unwrap_or(expression.len())
            }
        };
        if end == 0 {
            return tokens;
        }
        let (token, rest) = expression.split_at(end);
        tokens.push(token);
        expression = rest;
    }
}

/// The number at the beginning of a text, commas left out.
pub fn number(text: &str) -> Option<f64> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != ',' && c != '.').unwrap_or(text.len());
    text[..end].trim_end_matches([',', '.']).replace(',', "").parse().ok()
}

fn path(root: &Value, path: &str) -> Result<f64, String> {
    let mut at = vec![root];
    // Dots in brackets belong to values.
    let mut depth = 0;
    let steps = path.split(|c: char| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        c == '.' && depth == 0
    });
    for step in steps {
        let (name, filter) = match step.split_once('(') {
            Some((name, filter)) => (name, Some(filter.trim_end_matches(')'))),
            None => (step, None),
        };
        let missing = || format!("{path}: there is no {step}");
        at = if name == "*" {
            let all = at.into_iter().flat_map(|value| match value {
                Value::Object(fields) => fields.values().collect::<Vec<_>>(),
                Value::Array(elements) => elements.iter().collect(),
                _ => Vec::new(),
            });
            all.collect()
        } else {
            at.into_iter().map(|value| value.get(name).ok_or_else(missing)).collect::<Result<_, _>>()?
        };
        if let Some(filter) = filter {
            let has = |element: &&Value| {
                filter.split(',').all(|pair| {
                    pair.split_once('=').is_some_and(|(key, wanted)| match element.get(key) {
                        Some(Value::String(text)) => text == wanted,
                        Some(other) => {
                            serde_json::from_str::<Value>(wanted).is_ok_and(|wanted| wanted == *other)
                        }
                        None => false,
                    })
                })
            };
            let all: Vec<&Value> =
                at.into_iter().flat_map(|value| value.as_array().into_iter().flatten()).filter(has).collect();
            if all.len() != 1 {
                return Err(format!("{path}: {} elements are {filter}, not one", all.len()));
            }
            at = all;
        }
    }
    let numbers: Option<Vec<f64>> = at.into_iter().map(Value::as_f64).collect();
    // A sum may have no elements.
    let numbers = numbers.filter(|numbers| path.contains('*') || !numbers.is_empty());
    Ok(numbers.ok_or_else(|| format!("{path}: no number"))?.iter().sum())
}

/// Splits a text into its numbers and the texts between them.
fn numbers(mut text: &str) -> (Vec<f64>, Vec<&str>) {
    let (mut found, mut between) = (Vec::new(), Vec::new());
    while let Some(at) = text.find(|c: char| c.is_ascii_digit()) {
        let (before, behind) = text.split_at(at);
        let end = behind.find(|c: char| !c.is_ascii_digit() && c != ',' && c != '.').unwrap_or(behind.len());
        let end = behind[..end].trim_end_matches([',', '.']).len();
        found.extend(number(&behind[..end]));
        between.push(before);
        text = &behind[end..];
    }
    between.push(text);
    (found, between)
}

/// Whether two texts differ in numbers alone, and each of those by no more than `share` of it.
pub fn is_near(a: &str, b: &str, share: f64) -> bool {
    let ((these, between), (those, others)) = (numbers(a), numbers(b));
    let near = |(a, b): (&f64, &f64)| (a - b).abs() <= share * a.max(*b);
    between == others && these.len() == those.len() && these.iter().zip(&those).all(near)
}

/// Fills a template from the outputs of one run, or of several: then each value is the median, with
/// the least and the most in brackets.
///
/// # Errors
/// With the expression that has no value.
pub fn fill(template: &str, outputs: &[Output]) -> Result<String, String> {
    let mut text = String::new();
    let mut rest = template;
    while let Some((before, behind)) = rest.split_once('{') {
        let (inside, after) =
            behind.split_once('}').ok_or_else(|| format!("{template}: a bracket stays open"))?;
        let (expression, digits) = match inside.rsplit_once(" :") {
            Some((expression, "plain")) => (expression, None),
            Some((expression, digits)) => {
                (expression, Some(digits.parse().map_err(|_| format!("{inside}: digits are a number"))?))
            }
            None => (inside, Some(0)),
        };
        // Programs print whole numbers without commas.
        let formatted =
            |value: f64| digits.map_or(format!("{value:.0}"), |digits| format!("{:.digits$}", Mean(value)));
        let values = outputs.iter().map(|output| output.evaluate(expression));
        let mut values = values.collect::<Result<Vec<f64>, _>>()?;
        values.sort_by(f64::total_cmp);
        let (Some(least), Some(most)) = (values.first(), values.last()) else {
            return Err(format!("{template}: nothing was run"));
        };
        text += before;
        text += &formatted(values[values.len() / 2]);
        if values.len() > 1 {
            text += &format!(" ({} – {})", formatted(*least), formatted(*most));
        }
        rest = after;
    }
    Ok(text + rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json() -> Output {
        let text = r#"{"rows": [{"case": "a.b", "n": 3, "by": "idle work", "v": 8},
                       {"case": "a.b", "n": 1, "v": 1079752.0}, {"case": "a.b", "n": 2, "v": 7}],
                       "levels": {"pte": {"misses": 3}, "pmd": {"misses": 4}}}"#;
        Output::new(text.to_owned())
    }

    #[test]
    fn values_are_chosen_added_and_formatted() {
        let json = [json()];
        assert_eq!(fill("{rows(case=a.b,n=1).v 1000 / :1} µs", &json).unwrap(), "1,079.8 µs");
        assert_eq!(fill("{levels.*.misses} and {rows(n=2).v 2 *}", &json).unwrap(), "7 and 14");
        assert_eq!(fill("{rows(by=idle work).v 2 /}, {7 5 min}", &json).unwrap(), "4, 5");
        assert_eq!(fill("{1 4 - :1} {0 1000000 +} {0 0.04 - :1}", &json).unwrap(), "-3.0 1,000,000 0.0");
        assert_eq!(fill("{0 1000000 + :plain}", &json).unwrap(), "1000000");
        let text = [Output::new("tables 37, faults: 2,340.\n".to_owned())];
        assert_eq!(fill("{\"faults: \"} faults, {\"tables \"}", &text).unwrap(), "2,340 faults, 37");
        let table = [Output::new("| a | 7 | 1.5 x |\n| ab | 8 | 9 |\n".to_owned())];
        assert_eq!(fill("{\"| a |\"@2 :1} {\"| ab |\"@2 1 +}", &table).unwrap(), "1.5 10");
        assert!(fill("{\"| a |\"@3}", &table).is_err() && fill("{\"| a |\"2}", &table).is_err());
    }

    #[test]
    fn texts_are_near_if_numbers_alone_differ_and_little() {
        assert!(is_near("| `a-64` | 1,000 | 50.0, 2 |", "| `a-64` | 1,019 | 49.1, 2 |", 0.02));
        assert!(!is_near("| `a-64` | 1,000 |", "| `a-64` | 1,021 |", 0.02));
        assert!(!is_near("| `a-64` | 1,000 |", "| `a-65` | 1,000 |", 0.01));
        assert!(!is_near("| `a` | 1,000 |", "| `b` | 1,000 |", 0.02));
        assert!(!is_near("| `a` | 0 |", "| `a` | 1 |", 0.02));
    }

    #[test]
    fn a_sum_of_nothing_is_zero() {
        let json =
            [Output::new(r#"{"rows": [{"cleared": []}, {"cleared": [{"n": 2}, {"n": 3}]}]}"#.to_owned())];
        assert_eq!(fill("{rows.*.cleared.*.n}", &json).unwrap(), "5");
        let json = [Output::new(r#"{"cleared": []}"#.to_owned())];
        assert_eq!(fill("{cleared.*.n}", &json).unwrap(), "0");
    }

    #[test]
    fn several_runs_have_a_median_and_a_range() {
        let runs = [5.0, 1.0, 3.0].map(|n| Output::new(format!("{{\"v\": {n}}}")));
        assert_eq!(fill("{v :1} ns", &runs).unwrap(), "3.0 (1.0 – 5.0) ns");
    }

    #[test]
    fn values_that_are_not_there_are_named() {
        for (template, why) in [
            ("{rows(case=a.b).v}", "3 elements"),
            ("{rows(n=4).v}", "0 elements"),
            ("{level.pte}", "there is no level"),
            ("{rows}", "no number"),
            ("{1 +}", "too few"),
            ("{1 2}", "not one number"),
            ("{1 0 /}", "not one number"),
            ("{v", "stays open"),
        ] {
            let refused = fill(template, &[json()]).unwrap_err();
            assert!(refused.contains(why), "{template}: {refused}");
        }
    }
}
