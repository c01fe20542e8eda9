//! Reads the steps of a trace from its expressions, as Casemate's manual writes them ("Trace
//! format").
use super::register::{Register, Stage};
use super::text::{Expression, Item, TextError};
use super::tlbi::{self, Operand, Tlbi};

/// The most threads. Each is a CPU.
pub(super) const MOST_THREADS: u64 = 4096;

/// A barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fence {
    /// `DSB` for the whole system or the inner shareable domain.
    Full,
    /// `DSB ISHST`.
    Stores,
    /// `DSB NSH`.
    Own,
    /// `ISB`.
    Instructions,
}

/// A hint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hint {
    RootLock,
    OwnerRoot,
    Release,
    ThreadOwner,
}

/// A step of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Write { release: bool, at: u64, value: u64 },
    Read { at: u64, value: u64 },
    Init { at: u64, size: u64 },
    Free { at: u64, size: u64 },
    Set { at: u64, size: u64, byte: u8 },
    Fence(Fence),
    Tlbi(Tlbi),
    Sysreg { register: Register, value: u64 },
    Hint { hint: Hint, at: u64, value: u64 },
    Lock { at: u64 },
    Unlock { at: u64 },
}

/// A step, where it stands, and the code that did it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Parsed {
    pub(super) line: u64,
    pub(super) thread: u16,
    pub(super) step: Step,
    pub(super) source: Option<String>,
}

/// The fields of a record that are still to be read.
struct Fields {
    line: u64,
    items: std::vec::IntoIter<Item>,
}

impl Fields {
    fn error(&self, what: impl Into<String>) -> TextError {
        TextError::new(self.line, what)
    }

    /// Takes the next field, which stands alone or behind one of the keys.
    fn take(&mut self, keys: &[&str]) -> Result<Item, TextError> {
        let wanted = keys.join(" or ");
        let Some(item) = self.items.next() else {
            return Err(self.error(format!("expected the field {wanted}, found the end of the record")));
        };
        match &item.key {
            Some(key) if !keys.iter().any(|k| k.eq_ignore_ascii_case(key)) => {
                Err(self.error(format!("expected the field {wanted}, found {key}")))
            }
            _ if item.quoted => Err(self.error(format!("expected the field {wanted}, found a text"))),
            _ => Ok(item),
        }
    }

    fn decimal(&mut self, keys: &[&str]) -> Result<u64, TextError> {
        let item = self.take(keys)?;
        let parsed = match item.value.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16),
            None => item.value.parse(),
        };
        parsed.map_err(|_| {
            self.error(format!(
                "expected a number below 2^64 for {}, found {}",
                keys.join(" or "),
                item.value
            ))
        })
    }

    /// Addresses and values are hexadecimal, with `0x` or without.
    fn hex(&mut self, keys: &[&str]) -> Result<u64, TextError> {
        let item = self.take(keys)?;
        let digits = item.value.strip_prefix("0x").unwrap_or(&item.value);
        u64::from_str_radix(digits, 16).map_err(|_| {
            self.error(format!(
                "expected a hexadecimal number below 2^64 for {}, found {}",
                keys.join(" or "),
                item.value
            ))
        })
    }

    /// Takes a word of a list, in letters of any case.
    fn word<T: Copy>(&mut self, keys: &[&str], words: &[(&str, T)]) -> Result<T, TextError> {
        let item = self.take(keys)?;
        let found = words.iter().find(|(word, _)| word.eq_ignore_ascii_case(&item.value));
        found.map(|(_, meaning)| *meaning).ok_or_else(|| {
            let all: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            self.error(format!("expected one of {}, found {}", all.join(", "), item.value))
        })
    }

    fn end(&mut self) -> Result<(), TextError> {
        match self.items.next() {
            None => Ok(()),
            Some(item) => {
                let found = item.key.unwrap_or(item.value);
                Err(self.error(format!("expected the end of the record, found {found}")))
            }
        }
    }
}

const KINDS: &str =
    "mem-write, mem-read, mem-init, mem-set, mem-free, barrier, tlbi, sysreg-write, hint, lock, unlock";

/// Reads the step of an expression.
pub(super) fn parse(expression: Expression) -> Result<Parsed, TextError> {
    let Expression { line, mut items } = expression;
    let error = |what: String| TextError::new(line, what);
    // The source stands last, or behind the thread.
    let is_source = |item: &Item| match &item.key {
        Some(key) => key.eq_ignore_ascii_case("src"),
        None => item.quoted,
    };
    let source = items.iter().position(is_source).map(|at| items.remove(at));
    let mut fields = Fields { line, items: items.into_iter() };
    let name = match fields.items.next() {
        Some(Item { key: None, value, quoted: false }) => value.to_ascii_lowercase(),
        _ => return Err(error(format!("expected the name of a record: {KINDS}"))),
    };
    fields.decimal(&["id"])?;
    let thread = fields.decimal(&["tid", "thread"])?;
    let thread = u16::try_from(thread).ok().filter(|_| thread < MOST_THREADS).ok_or_else(|| {
        error(format!("expected a thread below {MOST_THREADS}, as each is a CPU; found {thread}"))
    })?;
    let step = step(&name, &mut fields)?;
    fields.end()?;
    Ok(Parsed { line, thread, step, source: source.map(|item| item.value) })
}

fn step(name: &str, fields: &mut Fields) -> Result<Step, TextError> {
    let address = |fields: &mut Fields| fields.hex(&["address"]);
    let size = |fields: &mut Fields| fields.hex(&["size"]);
    Ok(match name {
        "mem-write" => {
            let release = fields.word(&["mem-order"], &[("plain", false), ("release", true)])?;
            Step::Write { release, at: address(fields)?, value: fields.hex(&["value"])? }
        }
        "mem-read" => Step::Read { at: address(fields)?, value: fields.hex(&["value"])? },
        "mem-init" => Step::Init { at: address(fields)?, size: size(fields)? },
        "mem-free" => Step::Free { at: address(fields)?, size: size(fields)? },
        "mem-set" => {
            let (at, size) = (address(fields)?, size(fields)?);
            let value = fields.hex(&["value"])?;
            let byte = u8::try_from(value)
                .map_err(|_| fields.error(format!("expected a byte for value, found {value:#x}")))?;
            Step::Set { at, size, byte }
        }
        "barrier" => Step::Fence(fence(fields)?),
        "tlbi" => Step::Tlbi(invalidation(fields)?),
        "sysreg-write" | "msr" => {
            let registers = [
                ("vttbr_el2", Register::Root(Stage::Two)),
                ("ttbr0_el2", Register::Root(Stage::One)),
                ("ttbr_el2", Register::Root(Stage::One)),
                ("vtcr_el2", Register::Control(Stage::Two)),
                ("tcr_el2", Register::Control(Stage::One)),
                ("hcr_el2", Register::Other),
                ("sctlr_el2", Register::Other),
                ("mair_el2", Register::Other),
            ];
            let register = fields.word(&["sysreg"], &registers)?;
            Step::Sysreg { register, value: fields.hex(&["value"])? }
        }
        "hint" => {
            let hints = [
                ("set_root_lock", Hint::RootLock),
                ("set_owner_root", Hint::OwnerRoot),
                ("release_table", Hint::Release),
                ("set_pte_thread_owner", Hint::ThreadOwner),
            ];
            let hint = fields.word(&["kind"], &hints)?;
            Step::Hint { hint, at: fields.hex(&["location"])?, value: fields.hex(&["value"])? }
        }
        "lock" | "trylock" => Step::Lock { at: address(fields)? },
        "unlock" => Step::Unlock { at: address(fields)? },
        other => return Err(fields.error(format!("expected one of {KINDS}, found {other}"))),
    })
}

fn fence(fields: &mut Fields) -> Result<Fence, TextError> {
    if fields.word(&["kind"], &[("dsb", false), ("isb", true)])? {
        return Ok(Fence::Instructions);
    }
    let kinds = [("ish", Fence::Full), ("sy", Fence::Full), ("ishst", Fence::Stores), ("nsh", Fence::Own)];
    fields.word(&["kind"], &kinds)
}

fn invalidation(fields: &mut Fields) -> Result<Tlbi, TextError> {
    let name = fields.take(&["kind"])?.value.to_ascii_lowercase();
    let Some(takes_operand) = tlbi::takes_operand(&name) else {
        return Err(fields.error(format!(
            "expected an invalidation of EL1, EL2 or stage 2, such as vae2is, ipas2e1is or vmalls12e1is; \
             found {name}"
        )));
    };
    let operand = if takes_operand {
        let by_page = fields.items.as_slice().first().is_some_and(|item| item.key.as_deref() == Some("addr"));
        let value = fields.hex(&["value", "addr"])?;
        if by_page || !fields.items.as_slice().is_empty() {
            fields.hex(&["level"])?;
            Some(Operand::Page(value))
        } else {
            Some(Operand::Register(value))
        }
    } else {
        None
    };
    tlbi::tlbi(&name, operand)
        .ok_or_else(|| fields.error(format!("expected the register that {name} takes, as (value …)")))
}

#[cfg(test)]
mod tests {
    use super::super::text::Expressions;
    use super::*;

    fn all(text: &str) -> Result<Vec<Parsed>, TextError> {
        let mut expressions = Expressions::new(text.as_bytes());
        let mut steps = Vec::new();
        while let Some(expression) = expressions.next()? {
            steps.push(parse(expression)?);
        }
        Ok(steps)
    }

    fn one(text: &str) -> Parsed {
        all(text).unwrap().remove(0)
    }

    #[test]
    fn fields_have_names_or_stand_in_their_order() {
        let named =
            "(mem-write (id 7) (tid 2) (mem-order release) (address 0x4000) (value 0x9) (src \"a.c:3\"))";
        let bare = "(mem-write 7 2 \"a.c:3\" RELEASE 4000 9)";
        let step = Step::Write { release: true, at: 0x4000, value: 9 };
        let expected = Parsed { line: 1, thread: 2, step, source: Some("a.c:3".to_owned()) };
        assert_eq!((one(named), one(bare)), (expected.clone(), expected));
    }

    #[test]
    fn the_grammar_and_the_example_differ_and_both_are_read() {
        let a = one("(sysreg-write (id 0) (thread 1) (sysreg vttbr_el2) (value 0x1000000000000))");
        let b = one("(msr 0 1 VTTBR_EL2 0x1000000000000)");
        assert_eq!((a.thread, a.step), (b.thread, b.step));
        let root = one("(msr 0 1 TTBR_EL2 5000)");
        assert_eq!(root.step, Step::Sysreg { register: Register::Root(Stage::One), value: 0x5000 });
        let barrier = one("(barrier\n  (id 9)\n  (tid 0)\n  dsb (kind ish)\n  (src 12))");
        assert_eq!((barrier.step, barrier.source), (Step::Fence(Fence::Full), Some("12".to_owned())));
        assert_eq!(one("(barrier 4 1 \"src\" DSB ISHST)").step, Step::Fence(Fence::Stores));
        let page = one("(tlbi (id 0) (tid 0) ipas2e1is (addr 0x12) (level 0x3))");
        let register = one("(tlbi (id 0) (tid 0) ipas2e1is (value 0x300000000012))");
        assert_eq!(page.step, register.step);
        assert_eq!(
            one("(hint 5 1 \"src\" SET_PTE_THREAD_OWNER 40 3)").step,
            Step::Hint { hint: Hint::ThreadOwner, at: 0x40, value: 3 }
        );
    }

    #[test]
    fn an_error_says_the_line_and_what_was_expected() {
        for (text, line, part) in [
            ("(lock 0 0 10)\n\n(mem-wrote 1 0 plain 0 0)", 3, "expected one of mem-write, mem-read"),
            ("(lock 0 0 10)\nhello", 2, "expected '(' and the name of a record, found 'hello'"),
            ("(lock (id 0) (tid 0)\n (size 3))", 1, "expected the field address, found size"),
            ("(lock (id 0) (tid 0) (address zz))", 1, "expected a hexadecimal number"),
            ("(lock (id 0) (tid x) (address 1))", 1, "expected a number below 2^64 for tid or thread"),
            ("(lock 0 5000 1)", 1, "expected a thread below 4096"),
            ("(lock 0 0)", 1, "expected the field address, found the end of the record"),
            ("(lock 0 0 1 2)", 1, "expected the end of the record, found 2"),
            ("(lock 0 0 1", 1, "a ')' is missing"),
            ("(lock 0 0 (address 1", 1, "a ')' is missing"),
            ("(lock 0 0 (address (1)))", 1, "expected the value of a field, found '('"),
            ("(lock 0 0 \"a", 1, "the log ends in a text"),
            ("(mem-set 0 0 0 8 100)", 1, "expected a byte for value"),
            ("(barrier 0 0 dsb osh)", 1, "expected one of ish, sy, ishst, nsh, found osh"),
            ("(tlbi 0 0 vae3is 0)", 1, "expected an invalidation of EL1"),
            ("(tlbi 0 0 vae2is)", 1, "expected the field value or addr"),
            ("(tlbi 0 0 rvae2is 0 3)", 1, "expected the register that rvae2is takes"),
            ("()", 1, "expected the name of a record"),
        ] {
            let error = all(text).unwrap_err();
            assert!(error.line == line && error.what.contains(part), "{text}: {error}");
        }
        let long = format!("(lock 0 0 {})", "1".repeat(5000));
        assert!(all(&long).unwrap_err().what.contains("more than 4096 bytes"));
    }

    #[test]
    fn verdicts_of_casemate_are_no_records() {
        let mut expressions = Expressions::new(&b"! first\n(lock 0 0 1)\n! BBM valid->valid\n"[..]);
        while expressions.next().unwrap().is_some() {}
        assert_eq!(expressions.verdicts, ["first", "BBM valid->valid"]);
        assert_eq!(expressions.bytes(), 40);
    }
}
