//! Runs sparse processes on the library, on a machine of a 32nd of the size, beside the prediction
//! of the model.
use super::load::{Fate, SparseLoad};
use super::model::{FRAME, LowMemory, Records};
use super::report::{Part, Row, row};
use super::table::{Grid, size};
use ptarmigan::cpu::NodeId;
use ptarmigan::format::X86Pae;
use ptarmigan::frames::{AllocFlags, End, Request, ZoneClass};
use ptarmigan::machine::Machine;
use ptarmigan::params::{AutoParams, UserPte};
use ptarmigan::quicklist::{ListsConfig, Policy};
use ptarmigan::tlb::TlbConfig;
use ptarmigan_hosted::{Delivery, Host, HostConfig, HostTables};
use ptarmigan_replay::{EitherMachine, ReplayHost, WalkingMmu};
use ptarmigan_term::Bytes;
use ptarmigan_term::bar;
use ptarmigan_term::text::{Text, TextTable};
use ptarmigan_term::{Context, Failure};
use std::fmt::{Result as Written, Write as _};

/// How much smaller the machine is.
const SCALE: u64 = 32;
/// Groups of processes.
const GROUPS: u64 = 16;
/// Processes of a group: how often a frame is mapped.
const SHARING: u64 = 8;
/// Data takes one part of so many of high memory.
const DATA: u64 = 4;
/// The least low and high memory that a machine has.
const LEAST: u64 = 64 * FRAME;

/// A machine, its load, and the results.
struct SimCase {
    ram: u64,
    one_in: u32,
    load: SparseLoad,
    /// The process that dies under `nohigh` by the model.
    predicted: Option<u64>,
    nohigh: Fate,
    high: Fate,
    auto: Fate,
}

/// Runs all cases that fit.
///
/// # Errors
/// If a machine cannot be set up, or `auto` dies or makes other tables where `high` does not die.
pub(super) fn part(grid: &Grid) -> Result<Part, Failure> {
    let low = LowMemory {
        bytes: grid.low.bytes / SCALE / FRAME * FRAME,
        kernel: grid.low.kernel / SCALE,
        spaces: GROUPS * SHARING,
        mapped: None,
    };
    let bar = bar::bar((grid.rams.len() * grid.one_in.len()) as u64, "processes");
    let mut cases = Vec::new();
    let mut left_out = 0;
    for ram in &grid.rams {
        for one_in in &grid.one_in {
            match case(&low, *ram, *one_in)? {
                Some(case) => cases.push(case),
                None => left_out += 1,
            }
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let mut text = Text::default();
    // Writing to a text cannot fail.
    let _ = write(&mut text, &low, &cases, left_out);
    Ok(Part { text, rows: cases.iter().flat_map(SimCase::rows).collect() })
}

/// Runs one case. `None` if it does not fit the machine, wherever its tables are.
fn case(low: &LowMemory, ram: u64, one_in: u32) -> Result<Option<SimCase>, Failure> {
    let scaled = ram / SCALE / FRAME * FRAME;
    let high = low.high(scaled);
    let load = SparseLoad {
        groups: GROUPS,
        sharing: SHARING,
        frames: high / DATA / FRAME / GROUPS,
        one_in: u64::from(one_in),
    };
    // Files take up to a sixteenth of high memory.
    let taken = load.mapped() + load.tables() * FRAME;
    let fits = low.bytes >= LEAST && high >= LEAST && load.fits() && taken <= high - high / 8;
    if !fits || low.room(scaled, Records::Linux) <= 0.0 {
        return Ok(None);
    }
    let run = |userpte| run(low, scaled, &load, userpte);
    let (nohigh, high) = (run(UserPte::NoHigh)?, run(UserPte::High)?);
    let auto = run(UserPte::Auto(AutoParams::default()))?;
    if high.died.is_none() && (auto.died.is_some() || auto.tables != high.tables) {
        return Err(Failure::new(format!(
            "memory {}, one entry of {one_in}: auto made {} tables and died at {:?}, high made {}",
            size(ram),
            auto.tables,
            auto.died,
            high.tables
        )));
    }
    let predicted = load.dies_at(low, scaled, Records::Linux);
    Ok(Some(SimCase { ram, one_in, load, predicted, nohigh, high, auto }))
}

/// Runs a load on a machine with `ram` bytes.
fn run(low: &LowMemory, ram: u64, load: &SparseLoad, userpte: UserPte) -> Result<Fate, Failure> {
    let host = HostConfig { bytes: ram, low: low.bytes, ..HostConfig::default() };
    let host = Host::<X86Pae>::new(host).context("the machine cannot be set up")?;
    // Page records and the kernel's own memory take low memory before anything runs.
    let taken = low.kernel + Records::Linux.bytes(ram, low.bytes);
    let request = Request {
        node: NodeId(0),
        order: 0,
        zero: false,
        class: ZoneClass::Low,
        end: End::High,
        flags: AllocFlags::NORMAL,
    };
    let take = |_| host.frames().take(request);
    let held: Result<Vec<_>, _> = (0..taken / FRAME).map(take).collect();
    let held = held.context("page records and the kernel's memory")?;
    let tables = HostTables::new(&host, userpte).context("windows on tables")?;
    let fate = {
        // SAFETY: 1. they were made for this host.
        let source = unsafe { tables.source(&host) };
        let lists = host.quicklists_of(ListsConfig::new(1), source).context("lists")?;
        // SAFETY: 1. the window was made for this host and reaches all of its memory, from which
        // the lists draw.
        let machine = unsafe {
            ReplayHost::with_window(
                &host,
                &lists,
                WalkingMmu::NONE,
                TlbConfig::new(1),
                Delivery::AtOnce,
                &tables,
            )
        };
        let inner = machine.context("machine")?;
        let machine = EitherMachine::low(&inner);
        let slots = host.slots();
        let slot = slots.first().ok_or_else(|| Failure::new("the CPU of the machine is in use"))?;
        let fate = {
            let pin = slot.pin();
            let on = machine.on(&pin).context("machine")?;
            load.run(on, || machine.policy().counts().high.live() as u64)?
        };
        inner.drain(&slots);
        fate
    };
    held.into_iter().for_each(|frame| host.frames().give(frame.dirty()));
    host.audit().context("after the processes")?;
    Ok(fate)
}

impl SimCase {
    fn rows(&self) -> Vec<Row> {
        let case = format!("processes/{}/1-in-{}", size(self.ram), self.one_in);
        let all = self.load.processes() + 1;
        let mut rows = vec![row(case.clone(), "tables", self.load.tables() as f64, "tables")];
        let fates = [
            ("model-nohigh", self.predicted),
            ("nohigh", self.nohigh.died),
            ("high", self.high.died),
            ("auto", self.auto.died),
        ];
        for (name, died) in fates {
            // How many got all that they wanted.
            rows.push(row(case.clone(), name, (died.unwrap_or(all) - 1) as f64, "processes"));
        }
        rows.push(row(case.clone(), "auto-high-tables", self.auto.high as f64, "tables"));
        rows.push(row(case, "nohigh-low-free", self.nohigh.low_free as f64, "frames"));
        rows
    }
}

fn write(text: &mut Text, low: &LowMemory, cases: &[SimCase], left_out: u32) -> Written {
    let processes = GROUPS * SHARING;
    writeln!(text, "{processes} sparse processes on the library: who gets no memory (counts)")?;
    writeln!(
        text,
        "machines of 1/{SCALE} of RAM, {} low, records of 32 bytes a page taken from it;",
        Bytes(low.bytes)
    )?;
    writeln!(text, "data in 1/{DATA} of high memory, each frame mapped {SHARING} times\n")?;
    let mut table = TextTable::new(
        &["RAM", "1/N", "tables", "model: nohigh", "nohigh", "high", "auto", "auto, high"],
        &[-6, 5, 8, 13, 9, 9, 9, 11],
    );
    let fate = |died: Option<u64>| died.map_or("lasts".to_owned(), |who| format!("dies {who}"));
    for case in cases {
        let SimCase { ram, one_in, load, predicted, nohigh, high, auto } = case;
        let share = 100.0 * auto.high as f64 / (auto.tables as f64).max(1.0);
        table.row(&[
            &size(*ram),
            &format_args!("1/{one_in}"),
            &load.tables(),
            &fate(*predicted),
            &fate(nohigh.died),
            &fate(high.died),
            &fate(auto.died),
            &format_args!("{share:.1} %"),
        ]);
    }
    text.table(table);
    if left_out > 0 {
        writeln!(text, "{left_out} cases are left out: they fit no memory, or not 3 GiB of addresses")?;
    }
    writeln!(text, "dies N: process N got no memory. auto, high: its tables in high memory")?;
    let left = || cases.iter().filter(|case| case.nohigh.died.is_some()).map(|case| case.nohigh.low_free);
    if let (Some(least), Some(most)) = (left().min(), left().max()) {
        writeln!(
            text,
            "The library dies before the model: {least} to {most} frames are left then, its reserve"
        )?;
        writeln!(text, "among them, and pages are at hand in lists.")?;
    }
    Ok(())
}
