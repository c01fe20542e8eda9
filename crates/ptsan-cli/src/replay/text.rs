//! The report for people, within 80 columns.
use super::report::{Found, Report};
use crate::wrap;

impl Report {
    /// Returns the report as text within 80 columns.
    pub(super) fn text(&self) -> String {
        let mut t = String::new();
        wrap::line(&mut t, 0, &format!("{}; {} records, {} bytes", self.machine, self.records, self.bytes));
        let counts: Vec<_> =
            self.counts.iter().filter(|(_, n)| **n > 0).map(|(what, n)| format!("{what}: {n}")).collect();
        if !counts.is_empty() {
            wrap::line(&mut t, 0, &format!("{}, tables left: {}", counts.join(", "), self.tables_left));
        }
        match self.seed {
            Some(seed) => wrap::line(&mut t, 0, &format!("CPUs also walk at random, with seed {seed:#x}")),
            None => wrap::line(&mut t, 0, "CPUs walk only where the log has an access"),
        }
        if let Some(damage) = &self.damage {
            wrap::line(&mut t, 0, &format!("log: {damage}; what comes before was replayed"));
        }
        if self.lies > 0 {
            self.say_lies(&mut t);
        }
        t.push('\n');
        match self.total {
            0 => wrap::line(&mut t, 0, "no findings"),
            1 => wrap::line(&mut t, 0, "1 finding"),
            many => wrap::line(&mut t, 0, &format!("{many} findings")),
        }
        for (kind, count) in &self.by_kind {
            wrap::line(&mut t, 2, &format!("{count:>8}  {kind}"));
        }
        self.findings.iter().for_each(|found| say_finding(&mut t, found));
        let shown: u64 = self.findings.iter().map(|f| f.count).sum();
        if shown < self.total {
            t.push('\n');
            wrap::line(
                &mut t,
                0,
                &format!("{} more are counted above and not kept (--keep)", self.total - shown),
            );
        }
        t
    }

    fn say_lies(&self, t: &mut String) {
        t.push('\n');
        let records = if self.lies == 1 { "1 record".to_owned() } else { format!("{} records", self.lies) };
        wrap::line(t, 0, &format!("the log is wrong: {records} cannot be, and were left out"));
        for lie in &self.first_lies {
            wrap::line(t, 2, &format!("record {}, {}: {}", lie.record, lie.kind, lie.what));
            wrap::line(t, 4, &format!("instead: {}", lie.instead));
            lie.functions.iter().for_each(|name| wrap::line(t, 4, &format!("in {name}")));
        }
    }
}

fn say_finding(t: &mut String, found: &Found) {
    t.push('\n');
    wrap::line(t, 0, &format!("{}: {}", found.kind, found.text));
    let mut place = format!("at record {}", found.record);
    let mut add = |what: &str, number: Option<String>| {
        if let Some(number) = number {
            place.push_str(&format!(", {what} {number}"));
        }
    };
    add("table", found.table.map(|n| format!("{n:#x}")));
    add("level", found.level.map(|n| n.to_string()));
    add("address", found.address.map(|n| format!("{n:#x}")));
    add("CPU", found.cpu.map(|n| n.to_string()));
    add("space", found.space.map(|n| n.to_string()));
    if found.count > 1 {
        place.push_str(&format!(" ({} times)", found.count));
    }
    wrap::line(t, 2, &place);
    if !found.note.is_empty() {
        wrap::line(t, 2, &found.note);
    }
    for step in &found.history {
        let record = step.record.map_or_else(|| "before".to_owned(), |n| format!("record {n}"));
        wrap::line(t, 4, &format!("{record}: {}", step.what));
        // The function that did it, and the one that the image has for it.
        let names: Vec<_> = match &step.functions[..] {
            [first, .., last] => vec![first.clone(), last.clone()],
            few => few.to_vec(),
        };
        say_code(t, 6, step.pc, &names);
    }
    wrap::line(t, 2, &format!("found at: {}", found.what));
    say_code(t, 4, found.pc, &found.functions);
}

/// Says which code it was.
fn say_code(t: &mut String, indent: usize, pc: Option<u64>, functions: &[String]) {
    match (pc, functions) {
        (Some(pc), []) => wrap::line(t, indent, &format!("by the instruction at {pc:#x}")),
        (Some(pc), [first, callers @ ..]) => {
            wrap::line(t, indent, &format!("in {first}, at {pc:#x}"));
            callers.iter().for_each(|name| wrap::line(t, indent, &format!("inlined into {name}")));
        }
        (None, _) => {}
    }
}
