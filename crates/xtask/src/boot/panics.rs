//! Counts, in a linked image, the calls to functions that panic.
use super::objdump::{AsmLine, callee, disassembly, functions, hex, line, objdump, readable};
use regex_lite::Regex;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

/// Prints the number of calls to functions that panic, the functions that have such calls (a
/// function of the library that can be called from outside as `public`), and the sizes of code and
/// data.
///
/// # Errors
///
/// If there are more than `most` calls, or the image cannot be read.
pub fn count(image: &Path, most: Option<u64>) -> Result<(), String> {
    let data = objdump(image, &["--full-contents", "--section=.data"]).unwrap_or_default();
    let symbols = objdump(image, &["--syms", "--demangle"])?;
    let source = kernel_boot::here().join("../crates/ptarmigan/src");
    let calls = Calls::of(&disassembly(image)?, &words(&data), &symbols, &source)?;
    calls.lines().iter().for_each(|line| println!("{line}"));
    if let Some(most) = most.filter(|most| calls.total() > *most) {
        return Err(format!("more than {most} calls"));
    }
    println!("{}", sections(&objdump(image, &["--section-headers"])?));
    let (all, library) = code(&symbols)?;
    println!("code in functions: {all} bytes, of the library {library}");
    Ok(())
}

/// Calls to functions that panic.
#[derive(Default)]
struct Calls {
    to: BTreeMap<String, u64>,
    /// Where a function belongs to, and its name.
    from: BTreeMap<(&'static str, String), u64>,
}

/// What never returns for a defect is in `core::panicking`, or is named `*_failed` or `*_fail` in
/// core.
fn panicking() -> Result<Regex, String> {
    pattern(r"^core::panicking::|^core::(option|result|slice|str|cell)::.*(_failed|_fail|panic_)")
}

fn pattern(text: &str) -> Result<Regex, String> {
    Regex::new(text).map_err(|e| format!("{text}: {e}"))
}

impl Calls {
    /// Counts the calls of a disassembly. On x86-64 a call may go by way of the table of offsets,
    /// which the image has among its data.
    fn of(text: &str, data: &HashMap<u64, u64>, symbols: &str, source: &Path) -> Result<Self, String> {
        let symbols: HashMap<u64, &str> =
            functions(symbols).map(|symbol| (symbol.address, symbol.name)).collect();
        let by_table = |name: &str, operands: &str| -> Option<&str> {
            let is_far =
                matches!(name, "callq" | "jmpq") && operands.starts_with('*') && operands.contains("(%rip)");
            let (_, place) = operands.split_once("# 0x").filter(|_| is_far)?;
            let end = place.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(place.len());
            symbols.get(data.get(&hex(&place[..end])?)?).copied()
        };
        let (is_panic, is_library) = (panicking()?, pattern(r"(^|[<& ])ptarmigan::")?);
        let (mut calls, mut caller) = (Calls::default(), "");
        for each in text.lines() {
            let (name, operands) = match line(each) {
                Some(AsmLine::Function(name)) => {
                    caller = name;
                    continue;
                }
                Some(AsmLine::Instruction(name, operands)) => (name, operands),
                None => continue,
            };
            let Some(target) = by_table(name, operands).or_else(|| callee(name, operands)) else { continue };
            let (target, from) = (readable(target), readable(caller));
            // What the panic functions themselves consist of is not counted twice.
            if !is_panic.is_match(&target) || is_panic.is_match(&from) {
                continue;
            }
            let place = match () {
                () if is_library.is_match(&from) && is_public(&from, source)? => "public",
                () if is_library.is_match(&from) => "library",
                () if from.contains("kernel_") => "kernel",
                () => "core",
            };
            *calls.to.entry(target).or_default() += 1;
            *calls.from.entry((place, from)).or_default() += 1;
        }
        Ok(calls)
    }

    fn total(&self) -> u64 {
        self.to.values().sum()
    }

    fn of_place(&self, place: &str) -> u64 {
        self.from.iter().filter(|((of, _), _)| *of == place).map(|(_, count)| count).sum()
    }

    fn lines(&self) -> Vec<String> {
        let [public, library, kernel, core] =
            ["public", "library", "kernel", "core"].map(|place| self.of_place(place));
        let mut lines = vec![format!(
            "calls to panic functions: {} (library {}, of these in public functions {public}; kernel {kernel}, core {core})",
            self.total(),
            library + public
        )];
        let mut to: Vec<_> = self.to.iter().collect();
        to.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        lines.extend(to.iter().map(|(name, count)| format!("  to  {count:>3}  {name}")));
        let mut from: Vec<_> = self.from.iter().collect();
        from.sort_by_key(|((place, _), count)| std::cmp::Reverse((*place, **count)));
        lines.extend(from.iter().map(|((place, name), count)| format!("  in  {count:>3}  {place}  {name}")));
        lines
    }
}

/// Whether a function of the library can be called from outside: its source says `pub fn`, or it is
/// a method of a trait.
fn is_public(name: &str, source: &Path) -> Result<bool, String> {
    if name.contains("{closure}") {
        return Ok(false);
    }
    let last = name.rsplit("::").next().unwrap_or(name);
    if pattern("<.* (for|as) .*>::[a-z_0-9]+$")?.is_match(name) {
        return Ok(true);
    }
    let parts: Vec<&str> = name.split("::").collect();
    let is_module = |part: &&&str| {
        !part.is_empty() && part.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_'))
    };
    let modules = parts[1..parts.len().max(2) - 1].iter().take_while(is_module);
    let path: PathBuf = modules.fold(source.to_owned(), |path, part| path.join(part));
    let text = fs::read_to_string(path.with_extension("rs"))
        .or_else(|_| fs::read_to_string(path.join("mod.rs")))
        .unwrap_or_default();
    Ok(pattern(&format!("pub (const )?(unsafe )?fn {}[(<]", regex_lite::escape(last)))?.is_match(&text))
}

/// Reads 64-bit words, least byte first, by their addresses: lines of 16 bytes.
fn words(data: &str) -> HashMap<u64, u64> {
    let mut words = HashMap::new();
    for line in data.lines().filter(|line| line.starts_with(' ')) {
        let mut parts = line.split(' ').skip(1);
        let Some(address) = parts.next().and_then(hex) else { continue };
        let parts: Vec<u32> = parts.map_while(|part| u32::from_str_radix(part, 16).ok()).take(4).collect();
        for (at, pair) in (0..).zip(parts.chunks_exact(2)) {
            let word = u64::from(pair[1].swap_bytes()) << 32 | u64::from(pair[0].swap_bytes());
            words.insert(address + 8 * at, word);
        }
    }
    words
}

/// Returns the lengths of the sections of code and data.
fn sections(headers: &str) -> String {
    let all = headers.lines().filter_map(|line| {
        let mut parts = line.split_whitespace().skip(1);
        let (name, bytes) = (parts.next()?, hex(parts.next()?)?);
        matches!(name, ".text" | ".rodata" | ".data" | ".bss").then(|| format!("{name} {bytes} bytes"))
    });
    all.collect::<Vec<_>>().join("  ")
}

/// Returns the bytes of all functions, and of the library's.
fn code(symbols: &str) -> Result<(u64, u64), String> {
    let is_library = pattern(r"(^|[<& \t])ptarmigan(::|\.\.)|_\$LT\$ptarmigan")?;
    let (mut all, mut library) = (0, 0);
    for symbol in functions(symbols) {
        all += symbol.bytes;
        if is_library.is_match(symbol.name) {
            library += symbol.bytes;
        }
    }
    Ok((all, library))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_counted_by_callee_and_caller() {
        let symbols = "0000000000002000 l     F .text\t0000000000000010 core::panicking::panic::h1\n\
                       0000000000001000 l     F .text\t0000000000000020 <ptarmigan::a::B>::c\n";
        let data = "Contents of section .data:\n 3000 00000000 00000000 00200000 00000000  ........\n";
        let text = "1000 <_$LT$ptarmigan..a..B$GT$::c::h2>:\n\
                    1000:      \tcallq\t*0x2(%rip)  # 0x3008 <x>\n\
                    1004:      \tcallq\t0x2000 <core::panicking::panic::h1>\n\
                    1100 <kernel_x::main::h3>:\n1104:\tjal\t0x1 <core::option::unwrap_failed::h3>\n\
                    2000 <core::panicking::panic::h1>:\n2000:\tj\t0x1 <core::panicking::panic_fmt>\n";
        let calls = Calls::of(text, &words(data), symbols, Path::new("/none")).unwrap();
        assert_eq!(
            calls.lines(),
            [
                "calls to panic functions: 3 (library 2, of these in public functions 0; kernel 1, core 0)",
                "  to    2  core::panicking::panic",
                "  to    1  core::option::unwrap_failed",
                "  in    2  library  <ptarmigan::a::B>::c",
                "  in    1  kernel  kernel_x::main",
            ]
        );
        assert_eq!(code(symbols), Ok((48, 32)));
        assert_eq!(
            sections("  1 .text 00000010 x\n  2 .eh 1 x\n  3 .bss 20 x"),
            ".text 16 bytes  .bss 32 bytes"
        );
    }

    #[test]
    fn functions_that_can_be_called_from_outside_are_found() {
        let source = kernel_boot::here().join("../crates/ptarmigan/src");
        let is_public = |name| is_public(name, &source).unwrap();
        assert!(is_public("<ptarmigan::a::B as core::fmt::Debug>::fmt"));
        assert!(is_public("ptarmigan::addr::PhysFrame::new") || is_public("ptarmigan::addr::Frame::new"));
        assert!(!is_public("ptarmigan::addr::no_such_function"));
        assert!(!is_public("ptarmigan::addr::f::{closure}"));
    }
}
