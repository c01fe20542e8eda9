//! scratch
use ptsan::{Access, Adversary, Arch, Config, Content, Flush, Sanitizer};
use std::time::Instant;
fn rss() -> u64 {
    let s = std::fs::read_to_string("/proc/self/statm").unwrap();
    s.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}
fn put(ram: &mut [u8], at: u64, raw: u64) {
    ram[at as usize..][..8].copy_from_slice(&raw.to_le_bytes())
}
fn main() {
    for (told, adversary) in [(true, false), (false, false)] {
        for tables in std::env::args().nth(1).map_or(vec![64u64, 4096, 32768], |a| vec![a.parse().unwrap()]) {
            let pd = tables.div_ceil(512);
            let mut ram = vec![0u8; ((tables + pd + 4) * 4096) as usize];
            let adv = adversary.then(|| Adversary::new(1));
            let mut san = Sanitizer::new(Config { cpus: 4, adversary: adv, ..Config::new(Arch::x86_64()) });
            let (root, pdpt) = (0x1000u64, 0x2000u64);
            let pds = 0x3000u64;
            let pts = pds + pd * 4096;
            san.table_allocated(&ram, root, 4096, Some(3), Content::Zero);
            san.table_allocated(&ram, pdpt, 4096, Some(2), Content::Zero);
            put(&mut ram, root, pdpt | 7);
            if told {
                san.entry_written(&ram, root);
            }
            for cpu in 0..4 {
                san.switch(&ram, cpu, root, 1);
            }
            for i in 0..pd {
                san.table_allocated(&ram, pds + i * 4096, 4096, Some(1), Content::Zero);
                put(&mut ram, pdpt + i * 8, (pds + i * 4096) | 7);
                if told {
                    san.entry_written(&ram, pdpt + i * 8);
                }
            }
            for i in 0..tables {
                san.table_allocated(&ram, pts + i * 4096, 4096, Some(0), Content::Zero);
                put(&mut ram, pds + i * 8, (pts + i * 4096) | 7);
                if told {
                    san.entry_written(&ram, pds + i * 8);
                }
            }
            let before = rss();
            let mut x = 1u64;
            let ops = 200_000;
            let mut best = f64::INFINITY;
            for _ in 0..3 {
                let start = Instant::now();
                for _ in 0..ops {
                    x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    let t = (x >> 33) % tables;
                    let p = (x >> 20) % 512;
                    let va = t << 21 | p << 12;
                    let e = pts + t * 4096 + p * 8;
                    put(&mut ram, e, 0x1_0000_0000 | 7);
                    if told {
                        san.entry_written(&ram, e);
                    }
                    let c = (x >> 50) as usize % 4;
                    assert!(san.translate(&ram, c, va, Access::READ).is_ok());
                    assert!(san.translate(&ram, (c + 1) % 4, va, Access::WRITE).is_ok());
                    put(&mut ram, e, 0);
                    if told {
                        san.entry_written(&ram, e);
                    }
                    for cpu in 0..4 {
                        san.flush(&ram, cpu, Flush::page(1, va));
                    }
                    if told {
                        san.flushes_done(&ram);
                    }
                }
                best = best.min(start.elapsed().as_nanos() as f64 / ops as f64);
            }
            println!(
                "told {told} adversary {adversary} tables {tables}: {best:.0} ns, rss +{} MiB",
                (rss() - before) >> 20
            );
            san.assert_clean();
        }
    }
}
