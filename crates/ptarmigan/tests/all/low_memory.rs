//! The arithmetic of 2010 on the library: how many leaf tables low memory holds, and who fills it.
use ptarmigan::addr::{VirtAddr, VirtRange};
use ptarmigan::format::X86Pae;
use ptarmigan::frames::NoFrame;
use ptarmigan::machine::{Machine, On};
use ptarmigan::page::Level;
use ptarmigan::params::{AutoParams, UserPte};
use ptarmigan::quicklist::{ListsConfig, Policy, PolicyCounts};
use ptarmigan::space::{Access, AreaError, AreaFlags, FaultError, Space, SpaceMachine};
use ptarmigan::tlb::TlbConfig;
use ptarmigan_hosted::{Delivery, Host, HostConfig, HostMachine, HostTables, NoTlb};

const MIB: u64 = 1 << 20;
const PAGE: u64 = 4096;
/// Bytes that a leaf table maps.
const SPAN: u64 = 2 * MIB;
/// The user's part of the address space.
const USER: u64 = 3 << 30;
/// Leaf tables of a process with something in each.
const MOST: u64 = USER / SPAN;

/// The state when the last process had got all that it wanted, or one had got no memory.
struct End {
    /// Processes that had got all.
    processes: u64,
    counts: PolicyCounts,
    low_free: u64,
    /// High frames that were taken.
    high_taken: u64,
}

/// Writes to one page in the span of each leaf table of a process.
fn sparse<M: SpaceMachine>(on: On<'_, M>, space: &mut Space<X86Pae>) -> Result<(), NoFrame> {
    let flags = AreaFlags::READ.with(AreaFlags::WRITE);
    match space.edit(on).expect("no flush goes on").mmap(VirtRange::new(0, USER).unwrap(), flags, 0) {
        Ok(_) => {}
        Err(AreaError::NoFrame(e)) => return Err(e),
        Err(e) => panic!("{e}"),
    }
    for at in (0..USER).step_by(SPAN as usize) {
        match space.fault(on, VirtAddr(at), Access::Write) {
            Ok(_) => {}
            Err(FaultError::NoFrame(e)) => return Err(e),
            Err(e) => panic!("{e:?}"),
        }
    }
    Ok(())
}

/// Begins `most` sparse processes on a machine, or as many as get memory.
fn run(bytes: u64, low: u64, userpte: UserPte, most: u64) -> End {
    let host = Host::<X86Pae>::new(HostConfig { bytes, low, ..HostConfig::default() }).expect("a host");
    let tables = HostTables::new(&host, userpte).expect("windows");
    let end = {
        // SAFETY: 1. it was made for this host.
        let source = unsafe { tables.source(&host) };
        let lists = host.quicklists_of(ListsConfig::new(1), source).expect("lists");
        // SAFETY: 1. the window was made for this host, and reaches all of its memory.
        let machine = unsafe {
            HostMachine::with_window(&host, lists, NoTlb, TlbConfig::new(1), Delivery::AtOnce, &tables)
        };
        let machine = machine.expect("a machine");
        let slots = host.slots();
        let before = machine.policy().memory();
        let end = {
            let pin = slots[0].pin();
            let on = machine.on(&pin).expect("this machine");
            let mut spaces = Vec::new();
            while (spaces.len() as u64) < most {
                let Ok(mut space) = Space::<X86Pae>::new(on) else { break };
                match sparse(on, &mut space) {
                    Ok(()) => spaces.push(space),
                    Err(_) => {
                        space.end(on).expect("it ends");
                        break;
                    }
                }
            }
            let after = machine.policy().memory();
            let end = End {
                processes: spaces.len() as u64,
                counts: machine.policy().counts(),
                low_free: after.low_free / PAGE,
                high_taken: (before.high_free - after.high_free) / PAGE,
            };
            spaces.into_iter().for_each(|space| space.end(on).expect("it ends"));
            end
        };
        machine.drain(&slots);
        end
    };
    host.audit().expect("every frame is back");
    end
}

fn live(end: &End, level: u8) -> u64 {
    end.counts.levels[Level(level).at()].live() as u64
}

#[test]
fn one_process_that_touches_6_mib_pins_1536_leaf_tables() {
    let end = run(256 * MIB, 64 * MIB, UserPte::NoHigh, 1);
    assert_eq!((end.processes, MOST), (1, 1536));
    assert_eq!(live(&end, 0), 1536);
    assert_eq!(end.counts.high.live(), 0);
    // Its data: 6 MiB, and the frames in the CPU's list.
    assert!((1536..1536 + 64).contains(&end.high_taken), "{}", end.high_taken);
}

#[test]
fn a_process_has_three_middle_tables_and_a_root_of_32_bytes() {
    let host = Host::<X86Pae>::new(HostConfig::default()).expect("a host");
    let machine = HostMachine::new(&host, host.quicklists().expect("lists"), NoTlb).expect("a machine");
    let slots = host.slots();
    let pin = slots[0].pin();
    let on = machine.on(&pin).expect("this machine");
    let space = Space::<X86Pae>::new(on).expect("a space");
    let counts = machine.policy().counts();
    assert_eq!([0, 1, 2].map(|level| counts.levels[level].live()), [0, 3, 1]);
    assert_eq!(machine.policy().memory().page_tables, 3 * PAGE + 32);
    space.end(on).expect("it ends");
}

/// A 32nd of 768 MiB: 6,144 frames, a 32nd of 196,608, for 4 processes, a 32nd of 128.
#[test]
fn four_sparse_processes_exhaust_a_32nd_without_high_tables() {
    assert_eq!((768 * MIB / PAGE, 128 * MOST), (196_608, 196_608));
    assert_eq!(24 * MIB / PAGE, 4 * MOST);
    let nohigh = run(160 * MIB, 24 * MIB, UserPte::NoHigh, 4);
    assert_eq!(nohigh.processes, 3, "roots, middle tables and the reserve leave no room for the fourth");
    let auto = UserPte::Auto(AutoParams::default());
    for (userpte, low_tables) in [(UserPte::High, 0..1), (auto, 500..1536)] {
        let end = run(160 * MIB, 24 * MIB, userpte, 4);
        assert_eq!((end.processes, live(&end, 0)), (4, 4 * MOST), "{userpte:?}");
        let low = live(&end, 0) - end.counts.high.live() as u64;
        assert!(low_tables.contains(&low), "{userpte:?}: {low} leaf tables in low memory");
        assert!(end.low_free > 4 * MOST / 2, "{userpte:?}: {} low frames are free", end.low_free);
    }
}

#[test]
#[ignore = "takes 1.6 GiB of this host's memory"]
fn sparse_processes_exhaust_all_of_768_mib() {
    let nohigh = run(4096 * MIB, 768 * MIB, UserPte::NoHigh, 128);
    assert!((126..128).contains(&nohigh.processes), "{} of 128", nohigh.processes);
    assert!(nohigh.low_free < 2048, "{} of 196,608 frames are left", nohigh.low_free + MOST);
    let auto = run(4096 * MIB, 768 * MIB, UserPte::Auto(AutoParams::default()), 128);
    assert_eq!((auto.processes, live(&auto, 0)), (128, 196_608));
}
