//! Traces in the format of Casemate, written by these tests from its manual: the defects of its
//! test programs, each beside a twin that differs in the fixed step only.
use std::io::Write as _;
use std::process::{Command, Stdio};

const ROOT: u64 = 0x1_0000;
const LOCK: u64 = 0x9_0000;
/// The last level of the first tree, and a table that is free.
const LEAVES: u64 = ROOT + 0x3000;
const SPARE: u64 = ROOT + 0x4000;
const ROOT_2: u64 = 0x2_0000;
const LOCK_2: u64 = 0x9_0008;
/// Flags of a page of stage 2 and of stage 1 that may be read and written.
const STAGE_2: u64 = 0x4c3;
const STAGE_1: u64 = 0x403;

/// A trace.
#[derive(Clone, Default)]
struct Log {
    lines: Vec<String>,
}

impl Log {
    fn add(&mut self, thread: u64, kind: &str, fields: &str) -> &mut Self {
        let id = self.lines.len();
        // A line of the log is a line of a file that might have made it.
        let source = format!("(src \"hyp.c:{}\")", id + 1);
        self.lines.push(format!("({kind} (id {id}) (tid {thread}) {fields} {source})"));
        self
    }

    fn init(&mut self, at: u64) -> &mut Self {
        self.add(0, "mem-init", &format!("(address {at:#x}) (size 0x1000)"))
    }

    fn hint(&mut self, kind: &str, at: u64, value: u64) -> &mut Self {
        self.add(0, "hint", &format!("(kind {kind}) (location {at:#x}) (value {value:#x})"))
    }

    fn store_by(&mut self, thread: u64, order: &str, at: u64, value: u64) -> &mut Self {
        let fields = format!("(mem-order {order}) (address {at:#x}) (value {value:#x})");
        self.add(thread, "mem-write", &fields)
    }

    fn store(&mut self, at: u64, value: u64) -> &mut Self {
        self.store_by(0, "release", at, value)
    }

    fn load(&mut self, register: &str, value: u64) -> &mut Self {
        self.add(0, "sysreg-write", &format!("(sysreg {register}) (value {value:#x})"));
        self.add(0, "barrier", "isb")
    }

    fn lock(&mut self, lock: u64) -> &mut Self {
        self.add(0, "lock", &format!("(address {lock:#x})"))
    }

    fn unlock(&mut self, lock: u64) -> &mut Self {
        self.add(0, "unlock", &format!("(address {lock:#x})"))
    }

    fn dsb(&mut self, kind: &str) -> &mut Self {
        self.add(0, "barrier", &format!("dsb (kind {kind})"))
    }

    fn tlbi(&mut self, kind: &str) -> &mut Self {
        self.add(0, "tlbi", kind)
    }

    /// A tree of four tables at `root` that maps page 0 to 0x80000, under a lock.
    fn tree(&mut self, root: u64, lock: u64, flags: u64) -> &mut Self {
        (0..4).for_each(|n| _ = self.init(root + n * 0x1000));
        self.hint("set_root_lock", root, lock);
        (1..4).for_each(|n| _ = self.hint("set_owner_root", root + n * 0x1000, root));
        self.store(root + 0x3000, 0x8_0000 | flags);
        (0..3).rev().for_each(|n| _ = self.store(root + n * 0x1000, root + (n + 1) * 0x1000 + 3));
        self.dsb("ish")
    }

    /// The first tree, as stage 2 of VMID 0, and its lock taken.
    fn guest(&mut self) -> &mut Self {
        self.tree(ROOT, LOCK, STAGE_2).load("vttbr_el2", ROOT).lock(LOCK)
    }

    /// Invalidates page 0 of stage 2, and all that combines it with stage 1.
    fn clean(&mut self) -> &mut Self {
        self.dsb("ishst").tlbi("ipas2e1is (value 0x0)").dsb("ish").tlbi("vmalle1is").dsb("ish")
    }

    fn text(&self) -> String {
        self.lines.join("\n") + "\n"
    }

    /// Replays; returns the exit status and the kinds of findings and rules that were broken.
    fn replay(&self, arguments: &[&str]) -> (i32, Vec<String>) {
        let (status, text) = replay(&self.text(), &[arguments, &["--json"]].concat());
        let kinds = text.lines().filter_map(|line| {
            let object: serde_json::Value = serde_json::from_str(line).unwrap();
            ["kind", "rule"].into_iter().find_map(|key| match object["type"].as_str()? {
                "finding" if key == "kind" => object[key].as_str().map(str::to_owned),
                "rule" if key == "rule" => object[key].as_str().map(str::to_owned),
                _ => None,
            })
        });
        (status, kinds.collect())
    }

    #[track_caller]
    fn gives(&self, kinds: &[&str]) {
        for arguments in [&["--no-seed"][..], &["--seed", "1"], &["--seed", "7"]] {
            let (status, found) = self.replay(arguments);
            assert_eq!(found, kinds, "{}", replay(&self.text(), arguments).1);
            assert_eq!(status, i32::from(!kinds.is_empty()));
        }
    }
}

fn replay(log: &str, arguments: &[&str]) -> (i32, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_ptsan"))
        .args(["replay", "-"])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that ends before it has read everything is part of some tests.
    let _ = child.stdin.take().unwrap().write_all(log.as_bytes());
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
    assert!(!text.contains("panicked"), "{text}");
    (output.status.code().unwrap(), text)
}

/// Builds a log from the steps that all twins share and those of each.
fn log(steps: impl FnOnce(&mut Log)) -> Log {
    let mut log = Log::default();
    steps(&mut log);
    log
}

// Defects of the hardware's rules.

#[test]
fn a_valid_page_of_stage_2_is_replaced_by_another() {
    let defect = |fixed: bool| {
        log(|l| {
            l.guest();
            if fixed {
                l.store(LEAVES, 0).clean();
            }
            l.store(LEAVES, 0x8_1000 | STAGE_2).unlock(LOCK);
        })
    };
    defect(false).gives(&["break-before-make"]);
    defect(true).gives(&[]);
}

#[test]
fn a_valid_page_of_stage_1_is_replaced_by_another() {
    let defect = |fixed: bool| {
        log(|l| {
            l.tree(ROOT, LOCK, STAGE_1).load("ttbr0_el2", ROOT).lock(LOCK);
            if fixed {
                l.store(LEAVES, 0).dsb("ishst").tlbi("vae2is (value 0x0)").dsb("ish");
            }
            l.store(LEAVES, 0x8_1000 | STAGE_1).unlock(LOCK);
        })
    };
    defect(false).gives(&["break-before-make"]);
    defect(true).gives(&[]);
}

#[test]
fn a_break_without_an_invalidation() {
    let defect = |fixed: bool| {
        log(|l| {
            l.guest().store(LEAVES, 0);
            if fixed {
                l.clean();
            } else {
                l.dsb("ish").dsb("ish");
            }
            l.store(LEAVES, 0x8_1000 | STAGE_2).unlock(LOCK);
        })
    };
    defect(false).gives(&["break-before-make"]);
    defect(true).gives(&[]);
}

#[test]
fn a_break_of_stage_2_without_stage_1_after_it() {
    let defect = |fixed: bool| {
        log(|l| {
            l.guest().store(LEAVES, 0).dsb("ishst").tlbi("ipas2e1is (value 0x0)").dsb("ish");
            if fixed {
                l.tlbi("vmalle1is").dsb("ish");
            }
            l.store(LEAVES, 0x8_1000 | STAGE_2).unlock(LOCK);
        })
    };
    defect(false).gives(&["break-before-make"]);
    defect(true).gives(&[]);
}

#[test]
fn a_break_with_the_number_of_another_guest() {
    let defect = |number: u64| {
        log(|l| {
            l.tree(ROOT_2, LOCK_2, STAGE_2).guest().store(LEAVES, 0).dsb("ish");
            l.load("vttbr_el2", if number == 0 { ROOT } else { ROOT_2 | number << 48 });
            l.clean().load("vttbr_el2", ROOT);
            l.store(LEAVES, 0x8_1000 | STAGE_2).unlock(LOCK);
        })
    };
    defect(1).gives(&["break-before-make"]);
    defect(0).gives(&[]);
}

#[test]
fn a_table_is_released_before_it_is_clean() {
    let defect = |fixed: bool| {
        log(|l| {
            l.guest().store(ROOT + 0x2000, 0);
            if fixed {
                l.clean();
            }
            l.hint("release_table", LEAVES, 0).unlock(LOCK);
        })
    };
    defect(false).gives(&["free-before-flush"]);
    defect(true).gives(&[]);
}

#[test]
fn a_table_is_used_in_another_tree_before_it_is_clean() {
    let defect = |fixed: bool| {
        log(|l| {
            l.tree(ROOT_2, LOCK_2, STAGE_2).guest().store(ROOT + 0x2000, 0);
            if fixed {
                l.clean();
            }
            l.unlock(LOCK).lock(LOCK_2).store(ROOT_2 + 0x2008, LEAVES | 3).unlock(LOCK_2);
            l.load("vttbr_el2", ROOT_2 | 1 << 48);
        })
    };
    defect(false).gives(&["free-before-flush"]);
    defect(true).gives(&[]);
}

// Rules of numbers and locks, which the hardware does not have.

#[test]
fn two_guests_with_one_number() {
    let defect = |number: u64| {
        log(|l| {
            l.tree(ROOT, LOCK, STAGE_2).tree(ROOT_2, LOCK_2, STAGE_2);
            l.load("vttbr_el2", ROOT | 5 << 48).load("vttbr_el2", ROOT_2 | number << 48);
        })
    };
    defect(6).gives(&[]);
    let (status, found) = defect(5).replay(&["--no-seed"]);
    assert_eq!((status, &found[0][..]), (1, "wrong-number"), "{found:?}");
}

#[test]
fn two_roots_of_the_hypervisor_with_its_only_number() {
    let defect = |fixed: bool| {
        log(|l| {
            l.tree(ROOT, LOCK, STAGE_1).tree(ROOT_2, LOCK_2, STAGE_1).load("ttbr0_el2", ROOT);
            if fixed {
                l.load("ttbr0_el2", 0).tlbi("alle2is").dsb("ish");
                (0..4).for_each(|n| _ = l.hint("release_table", ROOT + n * 0x1000, 0));
            }
            l.load("ttbr0_el2", ROOT_2);
        })
    };
    defect(true).gives(&[]);
    let (status, found) = defect(false).replay(&["--no-seed"]);
    assert_eq!((status, &found[0][..]), (1, "wrong-number"), "{found:?}");
}

#[test]
fn a_guest_that_is_switched_to_with_another_number() {
    let defect = |number: u64| {
        log(|l| {
            l.tree(ROOT, LOCK, STAGE_2).load("vttbr_el2", ROOT | 1 << 48);
            l.load("vttbr_el2", ROOT | number << 48);
        })
    };
    defect(2).gives(&["wrong-number"]);
    defect(1).gives(&[]);
}

#[test]
fn an_asid_where_the_hypervisor_has_none() {
    let defect = |number: u64| {
        log(|l| {
            l.tree(ROOT, LOCK, STAGE_1).load("ttbr0_el2", ROOT | number << 48);
        })
    };
    defect(1).gives(&["reserved-asid"]);
    defect(0).gives(&[]);
}

#[test]
fn a_tree_without_a_lock() {
    let defect = |fixed: bool| {
        log(|l| {
            l.init(ROOT);
            if fixed {
                l.hint("set_root_lock", ROOT, LOCK);
            }
            l.load("vttbr_el2", ROOT).lock(LOCK).store(ROOT, 0).unlock(LOCK);
        })
    };
    defect(false).gives(&["unlocked-write"]);
    defect(true).gives(&[]);
}

#[test]
fn a_table_that_belongs_to_no_tree() {
    let defect = |fixed: bool| {
        log(|l| {
            l.guest().init(SPARE);
            if fixed {
                l.hint("set_owner_root", SPARE, ROOT);
            }
            l.store(ROOT + 0x2008, SPARE | 3).store(SPARE, 0x8_2000 | STAGE_2).unlock(LOCK);
        })
    };
    defect(false).gives(&["no-owner"]);
    defect(true).gives(&[]);
}

#[test]
fn a_store_without_the_lock() {
    let defect = |fixed: bool| {
        log(|l| {
            l.tree(ROOT, LOCK, STAGE_2).load("vttbr_el2", ROOT);
            if fixed {
                l.lock(LOCK);
            }
            l.store(LEAVES + 8, 0x8_2000 | STAGE_2);
        })
    };
    defect(false).gives(&["unlocked-write"]);
    defect(true).gives(&[]);
    assert_eq!(defect(false).replay(&["--racy"]), (0, Vec::new()));
}

#[test]
fn two_threads_that_store_to_one_entry() {
    let defect = |fixed: bool| {
        log(|l| {
            l.tree(ROOT, LOCK, STAGE_2).load("vttbr_el2", ROOT);
            for thread in [1, 2] {
                if fixed {
                    l.add(thread, "lock", &format!("(address {LOCK:#x})"));
                }
                l.store_by(thread, "release", LEAVES + 8, 0x8_2000 | STAGE_2);
                if fixed {
                    l.add(thread, "unlock", &format!("(address {LOCK:#x})"));
                }
            }
        })
    };
    defect(false).gives(&["unlocked-write"]);
    assert!(replay(&defect(false).text(), &[]).1.contains("2  unlocked-write"));
    defect(true).gives(&[]);
}

#[test]
fn a_second_plain_store_under_one_lock() {
    let defect = |order: &str| {
        log(|l| {
            l.guest().store_by(0, "plain", LEAVES + 8, 0x8_2000 | STAGE_2);
            l.store_by(0, order, LEAVES + 16, 0x8_3000 | STAGE_2).unlock(LOCK);
        })
    };
    defect("plain").gives(&["plain-store"]);
    defect("release").gives(&[]);
}

#[test]
fn an_entry_of_one_thread_that_another_stores_to() {
    let defect = |thread: u64| {
        log(|l| {
            l.tree(ROOT, LOCK, STAGE_2).load("vttbr_el2", ROOT);
            l.hint("set_pte_thread_owner", LEAVES + 8, 3);
            l.store_by(thread, "release", LEAVES + 8, 0x8_2000 | STAGE_2);
        })
    };
    defect(2).gives(&["thread-owner"]);
    defect(3).gives(&[]);
}

#[test]
fn locks_are_taken_once_and_released_by_their_holder() {
    let twice = log(|l| {
        l.lock(LOCK).add(1, "lock", &format!("(address {LOCK:#x})"));
    });
    twice.gives(&["lock-held"]);
    let other = log(|l| {
        l.lock(LOCK).add(1, "unlock", &format!("(address {LOCK:#x})"));
    });
    other.gives(&["lock-not-held"]);
}

// Steps of the format.

#[test]
fn each_invalidation_and_barrier_follows_the_architecture() {
    let after = |steps: &dyn Fn(&mut Log)| {
        let log = log(|l| {
            l.guest().store(ROOT + 0x2000, 0);
            steps(l);
            l.hint("release_table", LEAVES, 0).unlock(LOCK);
        });
        log.replay(&["--no-seed"]).0
    };
    let flush = |kind: &'static str| {
        move |l: &mut Log| _ = l.dsb("ishst").tlbi(kind).dsb("ish").tlbi("vmalle1is").dsb("ish")
    };
    for (kind, covers) in [
        ("ipas2e1is (value 0x0)", true),
        ("ipas2e1is (addr 0x0) (level 0x2)", true),
        ("ipas2e1is (value 0x300000000200)", false),
        ("ipas2le1is (value 0x0)", false),
        ("ripas2e1is (value 0x0)", true),
        ("ripas2e1is (value 0x300)", false),
        ("vmalls12e1is", true),
        ("alle1is", true),
        ("alle2is", false),
        ("vae2is (value 0x0)", false),
        ("vmalle1is", false),
    ] {
        assert_eq!(after(&flush(kind)), i32::from(!covers), "{kind}");
    }
    let tlbi = "vmalls12e1is";
    assert_eq!(after(&|l| _ = l.tlbi(tlbi).dsb("ish")), 1, "no barrier before it");
    assert_eq!(after(&|l| _ = l.dsb("ishst").tlbi(tlbi)), 1, "no barrier after it");
    assert_eq!(after(&|l| _ = l.dsb("ish").tlbi(tlbi).dsb("ishst")), 1, "stores alone are waited for");
    assert_eq!(after(&|l| _ = l.dsb("ish").tlbi(tlbi).dsb("nsh")), 1, "other CPUs are not waited for");
    assert_eq!(after(&|l| _ = l.dsb("ish").tlbi("vmalls12e1").dsb("nsh")), 0, "one CPU alone");
    assert_eq!(after(&|l| _ = l.dsb("sy").tlbi(tlbi).dsb("sy")), 0);
}

#[test]
fn an_invalidation_of_one_cpu_leaves_the_others() {
    let defect = |kind: &str| {
        log(|l| {
            l.tree(ROOT, LOCK, STAGE_2).load("vttbr_el2", ROOT);
            l.add(1, "sysreg-write", &format!("(sysreg vttbr_el2) (value {ROOT:#x})"));
            l.lock(LOCK).store(ROOT + 0x2000, 0).dsb("ish").tlbi(kind).dsb("ish");
            l.hint("release_table", LEAVES, 0).unlock(LOCK);
        })
    };
    defect("vmalls12e1").gives(&["free-before-flush"]);
    defect("vmalls12e1is").gives(&[]);
}

#[test]
fn changes_under_a_lock_are_flushed_before_its_release() {
    let defect = |clean: &dyn Fn(&mut Log)| {
        let log = log(|l| {
            l.guest().store(LEAVES, 0);
            clean(l);
            l.unlock(LOCK);
        });
        assert_eq!(log.replay(&["--no-seed"]), (0, Vec::new()), "Casemate lets a lock go before");
        log.replay(&["--no-seed", "--flush-before-unlock"]).1
    };
    assert_eq!(defect(&|_| ()), ["flush-missing"]);
    // CPUs also cache combined translations.
    assert_eq!(defect(&|l| _ = l.dsb("ishst").tlbi("ipas2e1is (value 0x0)").dsb("ish")), ["flush-missing"]);
    assert_eq!(defect(&|l| _ = l.clean()), [""; 0]);
}

#[test]
fn a_used_table_is_cleared_by_stores_and_others_are_handed_out() {
    let cleared = log(|l| {
        l.guest().add(0, "mem-set", &format!("(address {LEAVES:#x}) (size 0x1000) (value 0x0)"));
        l.clean().store(LEAVES, 0x8_1000 | STAGE_2);
    });
    cleared.gives(&[]);
    let again = log(|l| {
        l.guest().init(LEAVES).store(LEAVES, 0x8_1000 | STAGE_2);
    });
    again.gives(&["break-before-make"]);
    let freed = log(|l| {
        l.guest().store(ROOT + 0x2000, 0).clean();
        l.add(0, "mem-free", &format!("(address {LEAVES:#x}) (size 0x1000)")).init(LEAVES);
        l.hint("set_owner_root", LEAVES, ROOT).store(ROOT + 0x2000, LEAVES | 3).unlock(LOCK);
    });
    freed.gives(&[]);
}

#[test]
fn the_control_register_gives_the_format() {
    // 40 bits from level 1: two tables are the root.
    let log = log(|l| {
        l.load("vtcr_el2", 0x58);
        l.add(0, "mem-init", "(address 0x10000) (size 0x2000)").init(0x1_2000);
        l.hint("set_root_lock", 0x1_0000, LOCK);
        l.hint("set_owner_root", 0x1_1000, 0x1_0000).hint("set_owner_root", 0x1_2000, 0x1_0000);
        l.load("vttbr_el2", 0x1_0000).lock(LOCK);
        // The last entry of the root is in its second page.
        l.store(0x1_1ff8, 0x1_2003).store(0x1_2000, 0x4000_0000 | 0x4c1);
        l.store(0x1_2000, 0x8000_0000 | 0x4c1).unlock(LOCK);
    });
    log.gives(&["break-before-make"]);
    let (_, text) = replay(&log.text(), &[]);
    assert!(text.contains("0xffc0000000"), "{text}");
}

#[test]
fn reports_name_lines_and_sources() {
    let bad = log(|l| {
        l.guest().store(LEAVES, 0x8_1000 | STAGE_2);
    });
    let last = bad.lines.len();
    let (status, text) = replay(&(bad.text() + "! BBM valid->valid\n"), &["--no-seed"]);
    assert_eq!(status, 1, "{text}");
    for part in [
        "trace of Casemate, AArch64 4K stage 2, 1 CPU",
        "Casemate said: BBM valid->valid",
        &format!("hyp.c:{last}"),
        &format!("line {last}"),
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let plain = log(|l| {
        l.guest();
        (1..3).for_each(|n| _ = l.store_by(0, "plain", LEAVES + n * 8, 0x8_2000 | STAGE_2));
    });
    let last = plain.lines.len();
    let short = replay(&plain.text(), &["--format", "short"]).1;
    assert!(short.contains(&format!("standard input:{last}: plain-store: ")), "{short}");
    let github = replay(&plain.text(), &["--format", "github"]).1;
    assert!(github.contains(&format!("::error file=hyp.c,line={last},title=ptsan plain-store")), "{github}");
    let text = replay(&plain.text(), &[]).1;
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn a_log_that_lies_or_is_cut_says_where() {
    let good = log(|l| _ = l.guest().unlock(LOCK));
    let cut = good.text().trim_end().trim_end_matches(')').to_owned();
    let (status, text) = replay(&cut, &[]);
    let last = good.lines.len();
    assert!(status == 2 && text.contains(&format!("line {last}: the log ends in the middle")), "{text}");
    let (status, text) = replay(&(good.text() + "(mem-wrote (id 1) (tid 0))\n"), &[]);
    assert!(status == 2 && text.contains(&format!("line {}: expected one of mem-write", last + 1)), "{text}");
    for (step, part) in [
        ("(mem-write 1 0 plain 3 0)", "0x8 bytes at 0x3"),
        ("(mem-init 1 0 0 ffffffffffffffff)", "at most 64 MiB"),
        ("(mem-read 1 0 13000 7)", "a load of 0x7 from 0x13000, which holds 0x804c3"),
        ("(msr 1 0 vttbr_el2 10800)", "a root at 0x10800"),
        ("(msr 1 0 vtcr_el2 90)(msr 1 0 vtcr_el2 58)", "the format of VTTBR_EL2 changes"),
    ] {
        let (status, text) = replay(&(step.to_owned() + "\n" + &good.text() + step), &["--racy"]);
        let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(status == 2 && flat.contains(part), "{step}: {text}");
    }
    // Hardware may have set the access flag.
    assert_eq!(replay(&(good.text() + "(mem-read 1 0 13000 800c3)"), &[]).0, 0);
    let (status, text) = replay("(msr 1 0 vtcr_el2 4018)(msr 1 0 vttbr_el2 1000)", &[]);
    assert!(status == 2 && text.contains("line 1: expected a granule of 4 KiB"), "{text}");
}

#[test]
fn the_format_is_told_by_the_first_bytes_or_by_an_option() {
    let good = log(|l| _ = l.guest().unlock(LOCK)).text();
    assert_eq!(replay(&format!("\n  {good}"), &[]).0, 0);
    assert_eq!(replay(&good, &["--from", "casemate"]).0, 0);
    let (status, text) = replay(&good, &["--from", "ptsan"]);
    assert!(status == 2 && text.contains("header"), "{text}");
    let (status, text) = replay("hello", &["--from", "casemate"]);
    assert!(status == 2 && text.contains("line 1: expected '('"), "{text}");
    for option in ["--racy", "--flush-before-unlock"] {
        let (status, text) = replay("hello", &[option]);
        assert!(status == 2 && text.contains(&format!("{option} is for logs of Casemate")), "{text}");
    }
}
