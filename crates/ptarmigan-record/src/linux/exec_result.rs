//! Reads the result of an execve from `/proc`.
use super::object::MappedObject;
use super::system::proc::{self, Area, NewProgram, PAGE_SHIFT};
use ptarmigan_trace::{AreaKind, Prot};

/// The result of an `execve`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ExecResult {
    pub(crate) stack_end: u64,
    pub(crate) arg_pages: u32,
    /// First page of the heap, which is still empty.
    pub(crate) heap: u64,
    /// The limit of the stack, in pages; 0 if it could not be read.
    pub(crate) stack_limit: u64,
    /// The name of the program.
    pub(crate) name: String,
    /// A 32-bit program.
    pub(crate) narrow: bool,
    pub(crate) areas: Vec<Area>,
    /// The path of the program. It stays in temporary files.
    pub(crate) program: String,
    /// The objects of areas that have one.
    pub(crate) objects: Vec<MappedObject>,
}

impl ExecResult {
    /// Encodes the areas as 64-bit words. The eighth word is the number of areas.
    pub(crate) fn encode(&self) -> Vec<u64> {
        let mut w = vec![self.stack_end, u64::from(self.arg_pages), self.heap, self.stack_limit];
        // The name is short, or is cut.
        let mut name = [0; 16];
        let len = self.name.len().min(15);
        name[..len].copy_from_slice(&self.name.as_bytes()[..len]);
        w.extend(name.chunks_exact(8).map(|b| b.iter().rev().fold(0, |word, b| word << 8 | u64::from(*b))));
        w.push(u64::from(self.narrow));
        w.push(self.areas.len() as u64);
        for a in &self.areas {
            w.extend([a.start, a.pages, u64::from(a.prot.0) | (a.kind as u64) << 8]);
        }
        MappedObject { path: self.program.clone(), ..MappedObject::default() }.encode(&mut w);
        w.push(self.objects.len() as u64);
        self.objects.iter().for_each(|object| object.encode(&mut w));
        w
    }

    /// Decodes the words of `encode`.
    pub(crate) fn decode(mut word: impl FnMut() -> Option<u64>) -> Option<Self> {
        let (stack_end, arg_pages, heap, stack_limit) = (word()?, word()? as u32, word()?, word()?);
        let name: Vec<u8> = [word()?, word()?].iter().flat_map(|w| w.to_le_bytes()).collect();
        let name = String::from_utf8_lossy(&name).trim_end_matches('\0').to_owned();
        let narrow = word()? != 0;
        let mut made = Self { stack_end, arg_pages, heap, stack_limit, name, narrow, ..Self::default() };
        for _ in 0..word()? {
            let (start, pages, bits) = (word()?, word()?, word()?);
            let kind = match bits >> 8 {
                0 => AreaKind::File,
                1 => AreaKind::Anon,
                2 => AreaKind::Stack,
                _ => AreaKind::Special,
            };
            made.areas.push(Area { start, pages, prot: Prot(bits as u8), kind, ..Area::default() });
        }
        made.program = MappedObject::decode(&mut word)?.path;
        for _ in 0..word()? {
            made.objects.push(MappedObject::decode(&mut word)?);
        }
        Some(made)
    }

    /// Whether the areas include a stack, as those of every program do. If not, /proc could not be
    /// read.
    pub(crate) fn is_complete(&self) -> bool {
        self.areas.iter().any(|a| a.kind == AreaKind::Stack)
    }

    /// Reads the result of an execve, from a task that is stopped at its end.
    pub(crate) fn look(pid: i32) -> Self {
        let (areas, objects) = proc::mappings(pid);
        let program = proc::program_path(pid);
        let NewProgram { name, arguments, heap } = proc::program(pid).unwrap_or_default();
        let top = areas.iter().find(|a| a.kind == AreaKind::Stack).map_or(0, |a| a.start + a.pages);
        let args = arguments >> PAGE_SHIFT;
        let arg_pages = if args != 0 && args < top { (top - args) as u32 } else { 0 };
        let heap = heap.div_ceil(1 << PAGE_SHIFT);
        // The temporary stack ends one page below the end of the user addresses, as x86-64 leaves a
        // guard page there.
        let stack_end = (proc::USER_END >> PAGE_SHIFT) - 1;
        let stack_limit = proc::stack_limit(pid).unwrap_or(0);
        let narrow = proc::is_32_bit(pid);
        Self { stack_end, arg_pages, heap, stack_limit, name, narrow, areas, program, objects }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_back() {
        let area = Area { start: 1, pages: 2, prot: Prot(5), kind: AreaKind::Stack, ..Area::default() };
        let (stack_limit, name) = (2048, "a program".to_owned());
        let areas = vec![area; 3];
        let object =
            MappedObject { start: 1, pages: 2, path: "/lib/l".to_owned(), ..MappedObject::default() };
        let (program, objects) = ("/bin/a program".to_owned(), vec![object; 2]);
        let (stack_end, arg_pages, heap, narrow) = (7, 2, 9, true);
        let made =
            ExecResult { stack_end, arg_pages, heap, stack_limit, name, narrow, areas, program, objects };
        let mut words = made.encode().into_iter();
        assert_eq!(ExecResult::decode(|| words.next()), Some(made));
    }
}
