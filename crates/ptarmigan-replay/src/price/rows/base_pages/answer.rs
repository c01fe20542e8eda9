//! Puts the counts of base pages into words.
use super::tables::BaseTables;
use super::{SIZES, Work};
use crate::linux::PAGE;
use crate::price::{Answer, Unit, Whole, percent};
use ptarmigan_term::words::several;
use ptarmigan_term::{Bytes, Count};

/// Answers with the work as recorded, then by size, and with the tables by size.
pub fn of(
    work: &[Work; 1 + SIZES.len()],
    tables: &[BaseTables; SIZES.len()],
    whole: &Whole<'_>,
) -> Result<Answer, String> {
    let (now, sizes) = (work[0], &work[1..]);
    if now.faults == 0 {
        return Err("no fault that maps a page is in the recording".to_owned());
    }
    let pages = |work: &Work| (work.cleared + work.copied) as f64;
    let ratio = |work: &Work| pages(work) / pages(&now).max(1.0);
    let mut answer = Answer::default();
    let at_once = Bytes(whole.all_tables().1 << PAGE);
    answer.figure("KiB of tables at once at 4K", at_once.kib() as f64, "KiB");
    for ((work, tables), (_, name)) in sizes.iter().zip(tables).zip(SIZES) {
        let mut figure = |of: &str, value, unit| answer.figure(format!("{of} at {name}"), value, unit);
        figure("faults saved", percent(now.faults - work.faults, now.faults), "%");
        figure("first faults saved on anonymous memory", percent(now.first - work.first, now.first), "%");
        figure("pages allocated for each one touched", ratio(work), "pages");
        figure("tables made", tables.made as f64, "tables");
        figure("KiB of tables at once", tables.peak as f64 / 1024.0, "KiB");
        figure("padding of areas", percent(work.mapped - now.mapped, now.mapped), "%");
    }
    let savings = |work: &Work| {
        let mut weighed = Answer::default();
        weighed.saves(Unit::Fault, (now.faults - work.faults) as i64);
        weighed.saves(Unit::Clear, now.cleared as i64 - work.cleared as i64);
        weighed.saves(Unit::Copy, now.copied as i64 - work.copied as i64);
        (weighed.ns(whole.prices).unwrap_or(0.0), weighed.savings)
    };
    let best = usize::from(savings(&sizes[1]).0 > savings(&sizes[0]).0);
    let (work, table, (_, name)) = (&sizes[best], &tables[best], SIZES[best]);
    answer.savings = savings(work).1;
    answer.counted = format!(
        "Base pages of {name} take {} of {} away ({:.0} %), and need {} in place of {}.",
        Count(now.faults - work.faults),
        several(now.faults, "fault"),
        percent(now.faults - work.faults, now.faults),
        several(table.made, "table"),
        Count(whole.all_tables().0),
    );
    answer.cost = format!(
        "{:.2} pages of 4 KiB are cleared or copied for each one now, and tables take up to {}, now {}.",
        ratio(work),
        Bytes(table.peak),
        at_once,
    );
    answer.when_not = format!(
        "64K clears or copies {:.2} pages for each one now, and leaves {}. A program that asks for areas by \
         4 KiB gets {:.1} % more addresses, and must be built for it.",
        ratio(&sizes[1]),
        several(sizes[1].faults, "fault"),
        percent(sizes[1].mapped - now.mapped, now.mapped),
    );
    answer.today =
        "AArch64 only: a kernel with CONFIG_ARM64_16K_PAGES or _64K_PAGES; on x86-64 see blocks.".to_owned();
    Ok(answer)
}
