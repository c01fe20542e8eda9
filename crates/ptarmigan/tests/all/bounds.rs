//! Levels, nodes, orders and CPUs that there are not: calls refuse them, and no page is handed out
//! twice or used out of bounds. Parts that are made for fewer CPUs than the machine has are
//! refused.
use crate::common;
use common::{At, assert_zero, small};
use ptarmigan::cpu::NodeId;
use ptarmigan::format::{Format, X86_64, X86Pae};
use ptarmigan::frames::{AllocFlags, DataError, DataFrames, End, NoFrame, Request, ZoneClass};
use ptarmigan::machine::Machine;
use ptarmigan::page::{Layout, Level, MAX_LEVELS};
use ptarmigan::quicklist::{ListsConfig, ListsError, NodeCounts, Policy, Quicklists};
use ptarmigan::table::KernelMap;
use ptarmigan::window::DirectMap;
use ptarmigan_hosted::{Host, HostError, HostMachine, NoTlb};
use ptarmigan_linux::Rules;

type Lists<'h> = Quicklists<'h, DirectMap, &'h KernelMap<X86_64, DirectMap>>;

const NORMAL: AllocFlags = AllocFlags::NORMAL;
/// Levels that trees of four levels do not have.
const NONE: [Level; 5] = [Level(4), Level(5), Level(8), Level(200), Level(255)];

/// Lists of these sizes, whatever number of CPUs `host` has.
fn lists(host: &Host<X86_64>, config: ListsConfig) -> Result<Lists<'_>, ListsError> {
    let mut boot = host.boot(Lists::bytes(&host.frames().size(), &config)).expect("it is there");
    Quicklists::new(&mut boot, config, host.source())
}

fn request(node: u8, order: u8) -> Request {
    let (class, end) = (ZoneClass::Low, End::Low);
    Request { node: NodeId(node), order, zero: false, class, end, flags: NORMAL }
}

#[track_caller]
fn refuses_levels_that_there_are_not<P: Policy>(host: &Host<X86_64>, policy: &P) {
    let slot = host.slot(0).unwrap();
    let pin = slot.pin();
    let here = policy.at(&pin);
    // Without cached pages, and with some.
    for _ in 0..2 {
        let free = host.frames().counts().free;
        for level in NONE {
            let error = here.alloc(level, NORMAL).expect_err("trees have no such level");
            assert_eq!(error.order(), 0);
        }
        assert_eq!(host.frames().counts().free, free, "nothing was taken or given back for it");
        let pages = X86_64::LAYOUT.each_level().map(|level| here.alloc(level, NORMAL).unwrap());
        pages.collect::<Vec<_>>().into_iter().for_each(|page| here.free_unlinked(page));
    }
    here.drain();
    host.audit().unwrap();
}

#[test]
fn every_policy_refuses_levels_that_trees_do_not_have() {
    let host = Host::<X86_64>::new(small(1, 1, 16)).unwrap();
    refuses_levels_that_there_are_not(&host, &host.quicklists().unwrap());
    refuses_levels_that_there_are_not(&host, &host.plain().unwrap());
    refuses_levels_that_there_are_not(&host, &common::historic(&host, Rules::V5, 3).unwrap());
}

#[test]
fn magazines_and_sources_have_no_pages_of_absent_levels() {
    let host = Host::<X86_64>::new(small(1, 1, 16)).unwrap();
    let lists = host.quicklists().unwrap();
    let slot = &host.slots()[0];
    let pin = slot.pin();
    let here = lists.at(&pin);
    let page = here.alloc(Level::PTE, NORMAL).unwrap();
    here.free_unlinked(page);
    for level in NONE {
        assert!(here.at_hand(level).is_none());
        assert!(lists.source().make(NodeId(0), level, NORMAL).is_err());
        assert!(lists.source().make_group(NodeId(0), level, NORMAL).is_none());
    }
    assert!(here.at_hand(Level::PTE).is_some_and(|page| page.level() == Level::PTE), "it is still there");
}

#[test]
fn a_layout_takes_levels_that_there_are_not_for_frames() {
    for layout in [X86_64::LAYOUT, X86Pae::LAYOUT, Layout { levels: 1, table_shift: [12; MAX_LEVELS] }] {
        for level in [Level(5), Level(255)] {
            assert_eq!((layout.order(level), layout.table_bytes(level)), (0, 4096));
            assert!(!layout.is_small(level));
        }
    }
}

#[test]
fn nodes_that_there_are_not_keep_nothing_and_give_nothing_back() {
    let host = Host::<X86_64>::new(small(2, 2, 16)).unwrap();
    let lists = host.quicklists().unwrap();
    let slots = host.slots();
    let pin = slots[0].pin();
    let here = lists.at(&pin);
    // Something rests in the depots of the nodes that there are.
    let pages: Vec<_> = (0..200).map(|_| here.alloc(Level::PTE, NORMAL).unwrap()).collect();
    pages.into_iter().for_each(|page| here.free_unlinked(page));
    let kept: u32 = (0..2).map(|node| lists.in_depots(NodeId(node))).sum();
    assert!(kept > 0);
    for node in [2, 9, 255].map(NodeId) {
        assert_eq!(lists.node_counts(node), NodeCounts::default());
        assert_eq!((lists.budget(node), lists.in_depots(node), lists.unneeded(node)), (0, 0, 0));
        assert_eq!(
            (here.reclaim(node, 1), here.reclaim(node, u32::MAX), here.give_back_piece(node, &mut [0])),
            (0, 0, 0)
        );
    }
    assert_eq!((0..2).map(|node| lists.in_depots(NodeId(node))).sum::<u32>(), kept);
}

#[test]
fn frames_of_absent_nodes_come_from_others_and_huge_blocks_fail() {
    let host = Host::<X86_64>::new(small(2, 2, 16)).unwrap();
    let slots = host.slots();
    let free = host.frames().counts().free;
    for node in [2, 254, 255] {
        let frame = host.frames().take(request(node, 0)).expect("another node has one");
        host.frames().give(frame.dirty());
    }
    for order in [11, 31, 32, 63, 64, 255] {
        let error = host.frames().take(request(255, order)).err().expect("it is larger than any block");
        assert_eq!((error.order(), error.node()), (order, NodeId(255)));
        let error = host.data().take_block(host.frames(), &slots[0].pin(), order, NORMAL);
        let Err(DataError::NoFrame(error)) = error else { panic!("{error:?}") };
        let frames =
            1u64.checked_shl(order.into()).map_or(format!("2^{order} frames"), |n| format!("{n} frame(s)"));
        assert!(error.to_string().starts_with(&format!("no memory for {frames} near node 0 (")), "{error}");
    }
    assert_eq!(host.frames().counts().free, free);
    assert_eq!(
        NoFrame::new(3, NodeId(1), 7).to_string(),
        "no memory for 8 frame(s) near node 1 (7 free there, the reserve included)"
    );
}

#[test]
fn lists_of_absurd_sizes_are_refused_or_cut_to_the_machine() {
    let host = Host::<X86_64>::new(small(2, 2, 16)).unwrap();
    let lists = |config| lists(&host, config);
    let all = lists(ListsConfig { cpus_per_node: 2, ..ListsConfig::new(2) }).unwrap();
    for cpus_per_node in [3, usize::MAX / 2, usize::MAX] {
        let config = ListsConfig { cpus_per_node, ..ListsConfig::new(2) };
        let bytes = |config| Lists::bytes(&host.frames().size(), &config);
        assert_eq!(bytes(config), bytes(ListsConfig { cpus_per_node: 2, ..config }));
        assert_eq!(lists(config).unwrap().magazine(), all.magazine());
    }
    let bytes = |cpus| Lists::bytes(&host.frames().size(), &ListsConfig::new(cpus));
    for cpus in [1 << 16, usize::MAX / 2, usize::MAX] {
        assert_eq!(bytes(cpus), bytes(65535), "`new` refuses more");
        let mut boot = host.boot(4096).unwrap();
        let error = Quicklists::new(&mut boot, ListsConfig::new(cpus), host.source()).err();
        assert!(matches!(error, Some(ListsError::Range { what: "CPUs", .. })), "{error:?}");
    }
}

#[test]
fn data_frames_for_fewer_cpus_refuse_the_others() {
    let host = Host::<X86_64>::new(small(2, 1, 16)).unwrap();
    let slots = host.slots();
    let (pin, other) = (slots[0].pin(), slots[1].pin());
    let mut boot = host.boot(DataFrames::bytes(1, 1)).unwrap();
    let data = DataFrames::new(&mut boot, host.frames(), 1).unwrap();
    for order in [0, 3] {
        let Err(DataError::WrongMachine(error)) = data.take_block(host.frames(), &other, order, NORMAL)
        else {
            panic!("a list that there is not was used");
        };
        assert!(error.to_string().ends_with("was made for fewer CPUs; make it for all"), "{error}");
    }
    let frame = data.take(host.frames(), &pin, NORMAL).expect("this CPU has a list");
    let refused = data.release(host.frames(), &other, frame).expect_err("as above");
    assert_eq!(data.drain(host.frames(), &other), 0);
    assert!(data.release(host.frames(), &pin, refused.value).unwrap());
    data.drain(host.frames(), &pin);
    host.audit().unwrap();
}

#[test]
fn a_machine_refuses_a_policy_that_was_made_for_fewer_cpus() {
    let host = Host::<X86_64>::new(small(2, 1, 16)).unwrap();
    let few = || lists(&host, ListsConfig::new(1)).unwrap();
    assert_eq!(few().cpus(), 1);
    let Err(HostError::OutOfRange(why)) = HostMachine::new(&host, few(), NoTlb) else { panic!("accepted") };
    assert_eq!(why, "a policy for 1 CPUs, the host has 2");
    for cpus in [2, 3] {
        let policy = lists(&host, ListsConfig::new(cpus)).unwrap();
        let m = HostMachine::new(&host, policy, NoTlb).expect("each CPU of the host has lists");
        let slots = host.slots();
        let pin = slots[1].pin();
        let on = m.on(&pin).unwrap();
        let page = on.alloc(Level::PTE, NORMAL).unwrap();
        assert_zero(&host, page.addr());
        // SAFETY: 1. taken just now.
        unsafe { on.free_unlinked(page) };
        m.drain(&slots);
    }
}
