//! Slots that are mappings of the host.
use crate::highmem::machine::{FRAMES, HIGH, Tlbs, host, machine, pins, pool};
use ptarmigan::addr::Pfn;
use ptarmigan::highmem::pool::PoolConfig;
use ptarmigan::window::WindowGuard;
use ptarmigan_hosted::{HighMemory, RealSlots};

#[test]
fn what_is_written_through_one_slot_is_read_through_the_next() {
    let host = host(1);
    let tlbs = Tlbs::new();
    let machine = machine(&host, &tlbs);
    let memory = HighMemory::new(Pfn(HIGH), FRAMES - HIGH).unwrap();
    let pool = pool(&host, &machine, PoolConfig::new(1, 4), RealSlots::new(memory, 4).unwrap()).unwrap();
    let cpus = host.slots();
    let pins = pins(&cpus);
    for round in 0..3u32 {
        for n in 0..32 {
            let page = pool.try_map(&pins[0], Pfn(HIGH + n)).unwrap();
            // SAFETY: the slot shows the frame, which no other code uses, while the guard lives.
            let word = unsafe { &mut *page.base().cast::<u32>() };
            assert_eq!(*word, if round == 0 { 0 } else { round << 16 | n });
            *word = (round + 1) << 16 | n;
        }
    }
    assert!(pool.counts().total.stale >= 3 * 32 - 8);
}
