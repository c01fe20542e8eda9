//! Reads the results that a suite's program prints at its end (`linux/programs/suites/suite.h`).

/// A case, as its program has run it.
#[derive(Debug, PartialEq)]
pub struct SuiteCase {
    /// The number of its marks.
    pub index: usize,
    pub name: String,
    /// The thing that a value is for.
    pub unit: String,
    /// Pairs of marks in a round.
    pub spans: u64,
    /// Operations in a round.
    pub operations: u64,
    /// Table pages at the most, as the kernel says.
    pub tables: Option<u64>,
    /// Instructions of each round.
    pub counts: Vec<u64>,
}

/// All that a program has printed about its cases.
#[derive(Debug, Default, PartialEq)]
pub struct Output {
    pub cases: Vec<SuiteCase>,
    /// Names of cases that could not run, with the reasons.
    pub left: Vec<String>,
}

fn case(line: &str) -> Option<SuiteCase> {
    let mut words = line.split_whitespace();
    let index = words.next()?.parse().ok()?;
    let (name, unit) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut number =
        |name: &str| -> Option<i64> { (words.next()? == name).then(|| words.next()?.parse().ok())? };
    let (spans, operations, tables) = (number("spans")?, number("operations")?, number("tables")?);
    if words.next()? != "counts" {
        return None;
    }
    let counts = words.map(|word| word.parse().ok()).collect::<Option<Vec<u64>>>()?;
    let positive = |number: i64| u64::try_from(number).ok().filter(|number| *number > 0);
    let (spans, operations) = (positive(spans)?, positive(operations)?);
    let tables = u64::try_from(tables).ok();
    (!counts.is_empty()).then_some(SuiteCase { index, name, unit, spans, operations, tables, counts })
}

/// Reads the lines about cases.
///
/// # Errors
///
/// A line that is malformed, fewer cases than the program says, or the program's own failure.
pub fn parse(text: &str) -> Result<Output, String> {
    let (mut output, mut said) = (Output::default(), None);
    for line in text.lines().map(str::trim) {
        let Some((word, rest)) = line.split_once(' ') else { continue };
        match word {
            "FAIL" => return Err(format!("the program failed: {rest}")),
            "CASES" => said = rest.parse::<usize>().ok(),
            "CASE" => output.cases.push(case(rest).ok_or_else(|| format!("malformed: {line}"))?),
            "LEFT" => output.left.push(rest.to_owned()),
            _ => {}
        }
    }
    match said {
        Some(number) if number == output.cases.len() + output.left.len() => Ok(output),
        Some(number) => Err(format!("{} of {number} cases", output.cases.len() + output.left.len())),
        None => Err("no results".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "CASE 3 fork operation spans 2 operations 4 tables 7 counts 10 12 11";

    #[test]
    fn cases_are_read_and_incomplete_output_is_refused() {
        let text = format!("boot\r\nCASES 2\r\n{LINE}\r\nLEFT shell /bin/sh is not there\r\n");
        let output = parse(&text).expect("two cases");
        assert_eq!(output.left, ["shell /bin/sh is not there"]);
        let case = &output.cases[0];
        assert_eq!((case.index, case.spans, case.operations, case.tables), (3, 2, 4, Some(7)));
        assert_eq!((&*case.name, &*case.unit, &case.counts[..]), ("fork", "operation", &[10, 12, 11][..]));
        for wrong in [
            format!("CASES 2\n{LINE}\n"),
            format!("{LINE}\n"),
            format!("CASES 1\n{}\n", LINE.replace("counts 10 12 11", "counts")),
            format!("CASES 1\n{}\n", LINE.replace("12", "x")),
            format!("CASES 1\n{}\n", LINE.replace("operations 4", "operations 0")),
            format!("CASES 1\nFAIL mmap: Cannot allocate memory\n{LINE}\n"),
        ] {
            assert!(parse(&wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_case_without_tables_has_none() {
        let text = format!("CASES 1\n{}\n", LINE.replace("tables 7", "tables -1"));
        assert_eq!(parse(&text).expect("a case").cases[0].tables, None);
    }
}
