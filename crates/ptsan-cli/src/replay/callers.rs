//! Names the code behind records, as the sanitizer names callers.
use crate::symbols::Symbols;
use ptsan::{Trace, TraceFrame};
use std::collections::HashMap;

/// The most instructions that are remembered. Kernels have tens that records name; a log may lie.
const MOST: usize = 1 << 16;

/// The code at the addresses of instructions. Each is looked up once.
pub(super) struct Callers {
    symbols: Symbols,
    known: HashMap<u64, Trace>,
    nobody: Trace,
}

impl Callers {
    pub(super) fn new(symbols: Symbols) -> Self {
        Self { symbols, known: HashMap::new(), nobody: Trace::new(Vec::new()) }
    }

    /// Returns the functions at the address of an instruction, innermost first, or the address
    /// where no function is known.
    pub(super) fn of(&mut self, pc: Option<u64>) -> Trace {
        let Some(pc) = pc else { return self.nobody.clone() };
        if self.known.len() >= MOST {
            self.known.clear();
        }
        let look_up = || {
            let mut frames = self.symbols.frames(pc);
            match frames.first_mut() {
                Some(TraceFrame { at: at @ None, .. }) => *at = Some(format!("{pc:#x}")),
                Some(_) => {}
                None => frames.push(TraceFrame { symbol: format!("{pc:#x}"), at: None }),
            }
            Trace::new(frames)
        };
        self.known.entry(pc).or_insert_with(look_up).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instruction_without_a_function_is_its_address() {
        let mut callers = Callers::new(Symbols::open(None, false).unwrap());
        let frame = TraceFrame { symbol: "0xffff800000100000".to_owned(), at: None };
        assert_eq!(callers.of(Some(0xffff_8000_0010_0000)).frames(), [frame]);
        assert_eq!(callers.of(None).frames(), []);
        (0..3 * MOST as u64).for_each(|pc| drop(callers.of(Some(pc))));
        assert!(callers.known.len() <= MOST);
    }
}
