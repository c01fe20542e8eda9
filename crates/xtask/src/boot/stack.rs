//! Sums, in a linked riscv64 or aarch64 image, the stack frames of the library's calls.
//!
//! A call's own stack is the deepest chain of calls from it through functions of the rooms `space`
//! and `table`. Inlined functions count. Calls into other rooms do not: the gather's flush, the
//! policy, the allocator, the kernel's `Mmu`. The kernel prints the whole stack, as measured.
use super::objdump::{AsmLine, callee, disassembly, line, readable};
use regex_lite::Regex;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

/// Bytes of the own stack of `mmap`, `munmap` and `mprotect`, whose deepest chain splits a large
/// page.
const OWN: u64 = 1280;
/// As [`OWN`], of a format that needs break-before-make.
const OWN_BREAKING: u64 = 1536;
/// As [`OWN_BREAKING`], of `mprotect`, which notes the entries that it has broken.
const MPROTECT_BREAKING: u64 = 2624;
/// Bytes of the frame of any one function.
const ONE: u64 = 4096;
/// Bytes of a name that are shown.
const SHOWN: usize = 150;

/// Prints the own stack of `mmap`, `munmap` and `mprotect` in an image, and the largest frame.
///
/// # Errors
///
/// If a bound is exceeded, or the image cannot be read.
pub fn check(image: &Path) -> Result<(), String> {
    let (lines, fits) = Frames::of(&disassembly(image)?).report()?;
    lines.iter().for_each(|line| println!("{line}"));
    if fits { Ok(()) } else { Err("the stack exceeds its bounds".into()) }
}

/// The functions of an image, by name.
#[derive(Default)]
struct Frames {
    /// Bytes of its frame.
    frame: BTreeMap<String, u64>,
    /// Functions that it calls.
    calls: HashMap<String, Vec<String>>,
}

/// Chains of calls.
#[derive(Default)]
struct Chains {
    own: HashMap<String, u64>,
    next: HashMap<String, String>,
}

/// Returns the number of decimal digits, or of hexadecimal digits behind `0x`.
fn number(text: &str) -> u64 {
    let digits = text.trim().trim_start_matches(['#', '-']);
    let hex = digits.strip_prefix("0x").map(|digits| u64::from_str_radix(digits, 16));
    hex.unwrap_or_else(|| digits.parse()).unwrap_or(0)
}

fn of_library(name: &str) -> Option<&str> {
    let name = name.strip_prefix('<').or_else(|| name.strip_prefix("_$LT$")).unwrap_or(name);
    let name = name.strip_prefix("ptarmigan")?;
    name.strip_prefix("::").or_else(|| name.strip_prefix(".."))
}

fn is_own(name: &str) -> bool {
    let rest = of_library(name).and_then(|rest| rest.strip_prefix("space").or(rest.strip_prefix("table")));
    rest.is_some_and(|rest| rest.starts_with("::") || rest.starts_with(".."))
}

fn shown(name: &str) -> String {
    readable(name).chars().take(SHOWN).collect()
}

impl Frames {
    fn of(text: &str) -> Self {
        let mut all = Frames::default();
        let mut at = String::new();
        // Registers that hold the size of a large frame.
        let mut upper: HashMap<&str, i64> = HashMap::new();
        for each in text.lines() {
            let (name, operands) = match line(each) {
                Some(AsmLine::Function(name)) => {
                    name.clone_into(&mut at);
                    all.frame.insert(at.clone(), 0);
                    upper.clear();
                    continue;
                }
                Some(AsmLine::Instruction(name, operands)) => (name, operands),
                None => continue,
            };
            let parts: Vec<&str> = operands.split(", ").collect();
            let bytes = match (name, &parts[..]) {
                // On aarch64 `sub sp, sp, #N`, perhaps `lsl #12`, and stores that move the stack
                // pointer first.
                ("sub", ["sp", "sp", size, shift @ ..]) if size.starts_with('#') => {
                    number(size) * if shift == ["lsl #12"] { 4096 } else { 1 }
                }
                (_, [.., size]) if operands.contains("[sp, #-") && size.ends_with("]!") => {
                    number(size.trim_end_matches("]!"))
                }
                // On riscv64 `addi sp, sp, -N`, and for large frames `lui`, `addi`,
                // `sub sp, sp, register`.
                ("addi", ["sp", "sp", size]) if size.starts_with('-') => number(size),
                ("lui", [register, pages]) => {
                    upper.insert(register, number(pages) as i64 * 4096);
                    0
                }
                ("addi" | "addiw", [to, from, size]) if to == from => {
                    let more = number(size) as i64;
                    if let Some(upper) = upper.get_mut(to) {
                        *upper += if size.starts_with('-') { -more } else { more };
                    }
                    0
                }
                ("sub", ["sp", "sp", register]) => {
                    upper.get(register).map_or(0, |&bytes| u64::try_from(bytes).unwrap_or(0))
                }
                _ => {
                    if let Some(target) = callee(name, operands) {
                        all.calls.entry(at.clone()).or_default().push(target.to_owned());
                    }
                    0
                }
            };
            *all.frame.entry(at.clone()).or_default() += bytes;
        }
        all
    }

    /// Returns the own stack below and with a function, and notes where the chain goes on.
    fn own(&self, name: &str, chains: &mut Chains) -> u64 {
        if let Some(&known) = chains.own.get(name) {
            return known;
        }
        let frame = self.frame.get(name).copied().unwrap_or(0);
        // A call of itself adds nothing.
        chains.own.insert(name.to_owned(), frame);
        let mut best = 0;
        for callee in self.calls.get(name).into_iter().flatten() {
            if !self.frame.contains_key(callee) || !is_own(callee) || callee == name {
                continue;
            }
            let depth = self.own(callee, chains);
            if depth > best {
                best = depth;
                chains.next.insert(name.to_owned(), callee.clone());
            }
        }
        chains.own.insert(name.to_owned(), frame + best);
        frame + best
    }

    /// Returns the lines of a report, and whether all bounds are kept.
    fn report(&self) -> Result<(Vec<String>, bool), String> {
        let (mut lines, mut fits) = (Vec::new(), true);
        let pattern = |text: &str| Regex::new(text).map_err(|e| format!("{text}: {e}"));
        let breaking = pattern("::change_breaking(::h|$)")?;
        let breaks = self.frame.keys().any(|name| breaking.is_match(name));
        let (own, mprotect) = if breaks { (OWN_BREAKING, MPROTECT_BREAKING) } else { (OWN, OWN) };
        let mut chains = Chains::default();
        for (call, functions, bound) in [
            ("mmap", "SpaceMut.*::map_area(::h|$)", own),
            ("munmap", "SpaceMut.*::munmap(::h|$)", own),
            ("mprotect", "SpaceMut.*::(mprotect|protect_areas)(::h|$)", mprotect),
        ] {
            let functions = pattern(functions)?;
            let instances = self.frame.keys().filter(|name| functions.is_match(name));
            let Some(deepest) = instances.max_by_key(|name| self.own(name, &mut chains)) else {
                lines.push(format!("the image has no {call}"));
                fits = false;
                continue;
            };
            let bytes = self.own(deepest, &mut chains);
            let above = if bytes > bound { format!("ABOVE {bound}: ") } else { String::new() };
            fits &= bytes <= bound;
            lines.push(format!("{above}own stack of {call}: {bytes} bytes ="));
            let mut each = Some(deepest);
            while let Some(name) = each {
                lines.push(format!("  {:>5}  {}", self.frame[name], shown(name)));
                each = chains.next.get(name);
            }
        }
        let library = self.frame.iter().filter(|(name, _)| of_library(name).is_some());
        for (name, bytes) in library.clone().filter(|(_, bytes)| **bytes > ONE) {
            lines.push(format!("ABOVE {ONE}: {bytes} bytes in {}", shown(name)));
            fits = false;
        }
        if let Some((name, bytes)) = library.max_by_key(|(_, bytes)| **bytes) {
            lines.push(format!("largest frame: {bytes} bytes in {}", shown(name)));
        }
        Ok((lines, fits))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Functions of the library, by the instructions that make frames.
    fn image(mmap: &str) -> String {
        let head = |name: &str| format!("10 <ptarmigan::space::SpaceMut<F>::{name}::h1>:\n");
        format!(
            "{}{mmap}\n11:\tjal\t0x20 <ptarmigan::table::walk::h2>\n12:\tjal\t0x30 <kernel_x::flush>\n\
             {}13:\tsub\tsp, sp, #0x20\n{}14:\tstp\tx29, x30, [sp, #-16]!\n\
             20 <ptarmigan::table::walk::h2>:\n21:\tlui\ta0, 0x1\n22:\taddi\ta0, a0, -0x800\n\
             23:\tsub\tsp, sp, a0\n30 <kernel_x::flush>:\n31:\tsub\tsp, sp, #0x9, lsl #12\n",
            head("map_area"),
            head("munmap"),
            head("mprotect"),
        )
    }

    #[test]
    fn the_deepest_chain_is_bounded_without_functions_of_others() {
        let (lines, fits) = Frames::of(&image("9:\taddi\tsp, sp, -0x40")).report().unwrap();
        assert!(!fits);
        assert_eq!(
            lines,
            [
                "ABOVE 1280: own stack of mmap: 2112 bytes =",
                "     64  ptarmigan::space::SpaceMut<F>::map_area",
                "   2048  ptarmigan::table::walk",
                "own stack of munmap: 32 bytes =",
                "     32  ptarmigan::space::SpaceMut<F>::munmap",
                "own stack of mprotect: 16 bytes =",
                "     16  ptarmigan::space::SpaceMut<F>::mprotect",
                "largest frame: 2048 bytes in ptarmigan::table::walk",
            ]
        );
        let small =
            image("9:\taddi\tsp, sp, -16").replace("lui\ta0, 0x1", "lui\ta0, 0x0").replace("-0x800", "0x8");
        assert!(Frames::of(&small).report().unwrap().1);
        let large = small.replace("sub\tsp, sp, a0", "sub\tsp, sp, #0x2, lsl #12");
        let (lines, fits) = Frames::of(&large).report().unwrap();
        assert!(!fits && lines.contains(&"ABOVE 4096: 8192 bytes in ptarmigan::table::walk".to_owned()));
        assert!(Frames::of("").report().unwrap().0.contains(&"the image has no mmap".to_owned()));
    }
}
