//! Reads what `llvm-objdump` prints of an image.
use kernel_boot::{output, toolchain::llvm_tool};
use std::path::Path;
use std::process::Command;

/// Instructions that go to the first byte of another function. `llvm-objdump` resolves pairs of
/// `auipc` and `jalr` as well.
const CALLS: [&str; 10] = ["jal", "jalr", "j", "jr", "tail", "call", "callq", "jmp", "b", "bl"];

/// Runs `llvm-objdump` with options.
///
/// # Errors
///
/// If there is no such image or program.
pub fn objdump(image: &Path, options: &[&str]) -> Result<String, String> {
    if !image.is_file() {
        return Err(format!("there is no image {}", image.display()));
    }
    output(Command::new(llvm_tool("llvm-objdump")?).args(options).arg(image))
}

/// Returns the instructions of an image.
///
/// # Errors
///
/// As [`objdump`].
pub fn disassembly(image: &Path) -> Result<String, String> {
    objdump(image, &["--disassemble", "--demangle", "--no-show-raw-insn"])
}

/// A line of a disassembly.
pub enum AsmLine<'a> {
    /// The head of a function of this name.
    Function(&'a str),
    /// An instruction, with its operands.
    Instruction(&'a str, &'a str),
}

/// Reads a line of a disassembly.
pub fn line(line: &str) -> Option<AsmLine<'_>> {
    if let Some((_, name)) = line.strip_suffix(">:").and_then(|head| head.split_once(" <")) {
        return (!name.starts_with(".L") && !line.starts_with([' ', '\t']))
            .then_some(AsmLine::Function(name));
    }
    let (_, instruction) = line.split_once('\t')?;
    let (name, operands) = instruction.split_once(['\t', ' ']).unwrap_or((instruction, ""));
    Some(AsmLine::Instruction(name.trim(), operands.trim()))
}

/// Returns the name of the function that an instruction goes to.
pub fn callee<'a>(name: &str, operands: &'a str) -> Option<&'a str> {
    let (_, target) = operands.split_once('<')?;
    (CALLS.contains(&name) && !target.starts_with('>')).then(|| target.strip_suffix('>').unwrap_or(target))
}

/// Returns the name of a function of Rust's, as the linker has it, without its hash.
pub fn readable(name: &str) -> String {
    let hash = name.match_indices("::h").find(|(at, _)| {
        let rest = &name[at + 3..];
        let digits = rest.bytes().take_while(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')).count();
        digits > 0 && (digits == rest.len() || rest[digits..].starts_with(' '))
    });
    let mut name = name[..hash.map_or(name.len(), |(at, _)| at)].to_owned();
    for (from, to) in [
        ("_$LT$", "<"),
        ("$LT$", "<"),
        ("$GT$", ">"),
        ("$u20$", " "),
        ("$u7b$", "{"),
        ("$u7d$", "}"),
        ("$u5b$", "["),
        ("$u5d$", "]"),
        ("$RF$", "&"),
        ("$C$", ", "),
        ("_{", "{"),
        ("..", "::"),
    ] {
        name = name.replace(from, to);
    }
    name
}

/// A function of the symbol table.
pub struct Symbol<'a> {
    /// Its address.
    pub address: u64,
    /// The length of its code.
    pub bytes: u64,
    /// Its name.
    pub name: &'a str,
}

/// Reads the functions of a symbol table.
pub fn functions(symbols: &str) -> impl Iterator<Item = Symbol<'_>> {
    symbols.lines().filter_map(|line| {
        let (head, rest) = line.split_once(" F .text")?;
        let (bytes, name) = rest.trim_start().split_once(' ')?;
        Some(Symbol {
            address: hex(head.split(' ').next()?)?,
            bytes: hex(bytes)?,
            name: name.strip_prefix(".hidden ").unwrap_or(name),
        })
    })
}

/// Returns the number of hexadecimal digits.
pub fn hex(digits: &str) -> Option<u64> {
    u64::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_heads_of_functions_and_instructions() {
        let Some(AsmLine::Function(name)) = line("ffffffff80000000 <a::b::h0123>:") else { panic!("a head") };
        assert_eq!(readable(name), "a::b");
        assert!(line("80000000 <.Lpcrel_hi0>:").is_none() && line("").is_none());
        let Some(AsmLine::Instruction("jal", operands)) = line("80000010:      \tjal\t0x80000100 <a::c>")
        else {
            panic!("an instruction")
        };
        assert_eq!(callee("jal", operands), Some("a::c"));
        assert_eq!(callee("lui", operands), None);
    }

    #[test]
    fn names_of_the_linker_are_put_back_into_rust() {
        assert_eq!(readable("_$LT$a..B$u20$as$u20$c..D$GT$::e::hf0 (.llvm.1)"), "<a::B as c::D>::e");
        assert_eq!(readable("a::h_is_no_hash"), "a::h_is_no_hash");
    }

    #[test]
    fn functions_of_a_symbol_table_have_addresses_and_lengths() {
        let text = "0000000000000010 l     F .text\t0000000000000020 .hidden a::b\n0000000000000030 g O .data\t0 c\n";
        let all: Vec<_> = functions(text).map(|symbol| (symbol.address, symbol.bytes, symbol.name)).collect();
        assert_eq!(all, [(16, 32, "a::b")]);
    }
}
