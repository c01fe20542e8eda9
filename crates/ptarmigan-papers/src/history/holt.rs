//! Holt's program: a child reads pages far apart, or pages in one table.
//!
//! At a stride of a table's pages every read fault needs its own PTE table, so the time is mostly
//! that of allocating one. The library serves the faults on a hosted machine, with each of its
//! policies. Beside it, the host's kernel runs the same program, where a fault also costs an
//! exception. One pair of clock readings times exactly the 32 faults of a child.
use std::time::Instant;

use ptarmigan::addr::{VirtAddr, VirtRange};
use ptarmigan::format::{Attr, Format, X86_64};
use ptarmigan::machine::Machine;
use ptarmigan::page::Level;
use ptarmigan::quicklist::Policy;
use ptarmigan::space::{Access, AreaFlags, Done, Space};
use ptarmigan_hosted::{CpuSlot, Host, HostError};
use ptarmigan_linux::Rules;

use super::host;
use ptarmigan_bench::affinity::AffinityGuard;
use ptarmigan_bench::machine::host as one_cpu;
use ptarmigan_bench::report::{BenchReport, Samples};
use ptarmigan_bench::rounds::RoundLine;
use ptarmigan_bench::stats::median;
use ptarmigan_bench::table::contender::CasePages;
use ptarmigan_cli::bench::historic::historic;
use ptarmigan_replay::{EitherMachine, MachineName, PerFormat, ReplayHost, WalkingMmu};
use ptarmigan_term::{Failure, Time};

/// Children per round.
pub const FORKS: u32 = 128;
/// Pages that a child reads.
pub const PAGES: u32 = 32;

const KERNEL: &str = "host-kernel";
/// The row that ratios are computed against where the host's kernel has other tables.
const PLAIN: &str = "ptarmigan-plain";

#[derive(Clone, Copy)]
struct Spacing {
    name: &'static str,
    /// Each page has a leaf table of its own, instead of all in one.
    apart: bool,
    /// PTE tables of a child.
    tables: u32,
}

const CASES: [Spacing; 2] = [
    Spacing { name: "stride", apart: true, tables: PAGES },
    Spacing { name: "same-table", apart: false, tables: 1 },
];

impl Spacing {
    fn pages(self, at: CasePages) -> impl Iterator<Item = VirtAddr> {
        let stride = if self.apart { at.table } else { at.bytes };
        (0..PAGES as usize).map(move |i| VirtAddr((at.virt + i * stride) as u64))
    }
}

/// Nanoseconds per fault of the children of one round.
struct ChildTimes {
    median: f64,
    min: f64,
}

/// A parent whose children can be measured.
trait Parent {
    fn name(&self) -> &'static str;
    fn round(&mut self, case: Spacing) -> Result<ChildTimes, String>;
    fn finish(self: Box<Self>) -> Result<(), String>;
}

/// A parent in the library: a space with the area, not read yet.
struct LibraryParent<'h, F: Format> {
    name: &'static str,
    machine: ReplayHost<'h, F>,
    at: CasePages,
    slots: Vec<CpuSlot>,
    space: Space<F>,
}

impl<'h, F: Format> LibraryParent<'h, F> {
    fn new(name: &'static str, host: &'h Host<F>, policy: &'h dyn Policy) -> Result<Self, String> {
        let machine = ReplayHost::new(host, policy, WalkingMmu::NONE).map_err(|e| e.to_string())?;
        let slots = host.slots();
        let at = CasePages::of::<F>();
        let space = {
            let machine = EitherMachine::low(&machine);
            let pin = slots.first().ok_or("the machine has no CPU")?.pin();
            let on = machine.on(&pin).map_err(|e| e.to_string())?;
            let mut space = Space::new(on).map_err(|e| e.to_string())?;
            let area = VirtRange::new(at.virt as u64, (at.virt + PAGES as usize * at.table) as u64)
                .map_err(|e| e.to_string())?;
            let mut edit = space.edit(on).map_err(|e| e.to_string())?;
            edit.mmap(area, AreaFlags::READ, 0).map_err(|e| e.to_string())?;
            space
        };
        Ok(LibraryParent { name, machine, at, slots, space })
    }

    /// Forks one child. Returns its nanoseconds per fault.
    fn child(&mut self, case: Spacing) -> Result<f64, String> {
        let pin = self.slots[0].pin();
        let machine = EitherMachine::low(&self.machine);
        let on = machine.on(&pin).map_err(|e| e.to_string())?;
        let mut child = self.space.edit(on).map_err(|e| e.to_string())?.fork().map_err(|e| e.to_string())?;
        let mut mapped = 0;
        let start = Instant::now();
        for at in case.pages(self.at) {
            mapped += u32::from(child.fault(on, at, Access::Read) == Ok(Done::Zero));
        }
        let ns = start.elapsed().as_nanos() as f64 / f64::from(PAGES);
        let zero = self.machine.host().zero_frame();
        let shown = case.pages(self.at).all(|at| {
            child.tree().query(on, at).is_some_and(|(pfn, attr)| {
                pfn == zero && attr.has(Attr::READ | Attr::USER) && !attr.has(Attr::WRITE)
            })
        });
        let tables = child.tree().count(Level::PTE);
        child.end(on).map_err(|e| e.to_string())?;
        if mapped != PAGES || !shown || tables != case.tables {
            return Err(format!("{}: {mapped} faults served, {tables} PTE tables made", self.name));
        }
        Ok(ns)
    }
}

impl<F: Format> Parent for LibraryParent<'_, F> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn round(&mut self, case: Spacing) -> Result<ChildTimes, String> {
        let samples: Vec<f64> = (0..FORKS).map(|_| self.child(case)).collect::<Result<_, _>>()?;
        let min = samples.iter().copied().fold(f64::INFINITY, f64::min);
        Ok(ChildTimes { median: median(samples.iter().copied()), min })
    }

    fn finish(self: Box<Self>) -> Result<(), String> {
        let LibraryParent { name, machine, slots, space, .. } = *self;
        if let Some(slot) = slots.first() {
            let pin = slot.pin();
            let machine = EitherMachine::low(&machine);
            let on = machine.on(&pin).map_err(|e| e.to_string())?;
            space.end(on).map_err(|e| e.to_string())?;
        }
        machine.drain(&slots);
        let live = machine.policy().counts().live();
        if live != 0 {
            return Err(format!("{name}: {live} table(s) leaked"));
        }
        machine.host().audit().map_err(|e| format!("{name}: {e}"))
    }
}

/// The kernel of this machine.
struct HostKernel;

impl Parent for HostKernel {
    fn name(&self) -> &'static str {
        KERNEL
    }

    fn round(&mut self, case: Spacing) -> Result<ChildTimes, String> {
        host::holt(FORKS, PAGES, if case.apart { 512 } else { 1 })
            .map(|h| ChildTimes { median: h.median_ns, min: h.min_ns })
    }

    fn finish(self: Box<Self>) -> Result<(), String> {
        Ok(())
    }
}

/// Runs both cases on the tables of a machine, round by round, parent by parent. The value of a
/// round is the median of its children. x86-64 is compared with the host's kernel and has each
/// policy, others have quicklists and none.
///
/// # Errors
///
/// If the build lacks the format, a machine or a child of the host cannot be set up, or a check
/// fails: of the faults, of the number of tables, of the memory at the end.
pub fn run(rounds: u32, arch: MachineName) -> Result<BenchReport, Failure> {
    if arch == MachineName::X86_64 {
        return x86_64(rounds).map_err(Failure::new);
    }
    arch.in_its_format(Holt { rounds })
}

/// The benchmark in any format.
struct Holt {
    rounds: u32,
}

impl PerFormat for Holt {
    type Done = BenchReport;

    fn run<F: Format>(self) -> Result<BenchReport, Failure> {
        let measured = || {
            let (quick, plain) = (one_cpu::<F>().map_err(fail)?, one_cpu::<F>().map_err(fail)?);
            let (lists, none) = (quick.quicklists().map_err(fail)?, plain.plain().map_err(fail)?);
            let field: Vec<Box<dyn Parent + '_>> = vec![
                Box::new(LibraryParent::new("ptarmigan", &quick, &lists)?),
                Box::new(LibraryParent::new(PLAIN, &plain, &none)?),
            ];
            measure(self.rounds, field, PLAIN)
        };
        measured().map_err(Failure::new)
    }
}

fn fail(e: HostError) -> String {
    e.to_string()
}

fn x86_64(rounds: u32) -> Result<BenchReport, String> {
    let (quick, plain) = (one_cpu::<X86_64>().map_err(fail)?, one_cpu::<X86_64>().map_err(fail)?);
    let (v5, v2008) = (one_cpu().map_err(fail)?, one_cpu().map_err(fail)?);
    let (lists, none) = (quick.quicklists().map_err(fail)?, plain.plain().map_err(fail)?);
    let lists_v5 = historic(&v5, Rules::V5, 2).map_err(fail)?;
    let lists_v2008 = historic(&v2008, Rules::V2008, 2).map_err(fail)?;
    let field: Vec<Box<dyn Parent + '_>> = vec![
        Box::new(LibraryParent::new("ptarmigan", &quick, &lists)?),
        Box::new(LibraryParent::new(PLAIN, &plain, &none)?),
        Box::new(LibraryParent::new("ptarmigan-v5", &v5, &lists_v5)?),
        Box::new(LibraryParent::new("ptarmigan-v2008", &v2008, &lists_v2008)?),
        Box::new(HostKernel),
    ];
    measure(rounds, field, KERNEL)
}

/// Measures the parents in turn. The rows are compared with those of `reference`.
fn measure(
    rounds: u32,
    mut field: Vec<Box<dyn Parent + '_>>,
    reference: &'static str,
) -> Result<BenchReport, String> {
    let _here = AffinityGuard::here().map_err(|e| format!("cannot stay on one CPU: {e}"))?;
    let mut samples = Samples::default();
    let mut fastest = Samples::default();
    let progress = RoundLine::new(rounds);
    for round in 1..=rounds {
        for case in CASES {
            for parent in &mut field {
                progress.say(round, &format!("{} {}", case.name, parent.name()));
                let ChildTimes { median, min } = parent.round(case)?;
                samples.add(case.name, parent.name(), "", median);
                fastest.add(case.name, parent.name(), "", min);
            }
        }
    }
    drop(progress);
    let names: Vec<&str> = field.iter().map(|p| p.name()).collect();
    for parent in field {
        parent.finish()?;
    }
    let mut rows = samples.rows("ns/fault");
    for (row, fastest) in rows.iter_mut().zip(fastest.rows("ns/fault")) {
        // The fastest child, not the fastest round.
        row.min = fastest.min;
    }
    let mut report = BenchReport { bench: "holt", arch: None, rows, reference, notes: Vec::new() };
    for name in names {
        if let (Some(far), Some(near)) = (report.value("stride", name), report.value("same-table", name)) {
            // Of the faults in one table, one needs a table as well.
            let table = (far - near) * f64::from(PAGES) / f64::from(PAGES - 1);
            report.notes.push(format!("{name}: {:.3} of a fault are its table", Time::from_nanos(table)));
        }
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_contender_has_both_cases() {
        let report = x86_64(1).expect("a round runs");
        for case in ["stride", "same-table"] {
            for who in ["ptarmigan", "ptarmigan-plain", "ptarmigan-v5", "ptarmigan-v2008", KERNEL] {
                assert!(report.value(case, who).is_some_and(|ns| ns > 0.0), "{case} {who}");
            }
        }
    }
}
