//! Which program each address space belongs to.
//!
//! A program is known by its name, where the recording has names. Otherwise programs are told apart
//! by the areas of files that `execve` mapped for them: their number, sizes and permissions, which
//! are the same at each start of a program, wherever it is loaded.
use crate::input::schedule::{Op, Schedule};
use crate::input::trace::Trace;
use foldhash::{HashMap, HashMapExt};
use ptarmigan_trace::{AreaKind, Kind};

/// A program of the recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedProgram {
    /// Its name, if the recording has it.
    pub name: Option<String>,
    /// Pages of files that `execve` mapped for it, its loader included. 0 for the tasks that ran
    /// before the first program started.
    pub pages: u64,
    /// How often it was started in the recording.
    pub starts: u64,
}

/// The programs of a trace.
pub struct Programs {
    /// In order of their first start.
    pub all: Vec<RecordedProgram>,
    of_space: Vec<u32>,
}

/// How programs are told apart.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Key {
    Start,
    Name(String),
    Image(u64),
}

/// The known origin of a space.
#[derive(Clone)]
enum Origin {
    Forked(u32),
    Started {
        name: Option<String>,
        image: u64,
        pages: u64,
        /// Whether the start is in the recording.
        seen: bool,
    },
    First,
}

/// Start and factor of the hash FNV-1a.
const FNV: (u64, u64) = (0xcbf2_9ce4_8422_2325, 0x0000_0100_0000_01b3);

impl Programs {
    /// Finds the programs of a trace.
    pub fn of(trace: &Trace, schedule: &Schedule) -> Self {
        let mut origins = vec![Origin::First; schedule.spaces];
        for op in schedule.programs.iter().flat_map(|program| &program.ops) {
            match *op {
                Op::Fork { space, child, .. } => origins[child as usize] = Origin::Forked(space),
                Op::Exec { rare, space, next, .. } => {
                    let mut seen = !matches!(trace.rare[rare as usize], Kind::Exec { arg_pages: 0, .. });
                    // A program that was read later than it began.
                    if let Origin::Started { name: None, pages: 0, seen: before, .. } =
                        &mut origins[space as usize]
                        && !seen
                    {
                        seen = std::mem::take(before);
                    }
                    origins[next as usize] = Origin::Started { name: None, image: FNV.0, pages: 0, seen };
                }
                Op::Call { rare, space, .. } => {
                    if let Origin::Started { name, image, pages, .. } = &mut origins[space as usize] {
                        match trace.rare[rare as usize] {
                            Kind::Area { pages: length, prot, kind: AreaKind::File, .. } => {
                                *pages += length;
                                for part in [length, u64::from(prot.0)] {
                                    *image = (*image ^ part).wrapping_mul(FNV.1);
                                }
                            }
                            Kind::Name(found) => *name = Some(found.as_str().to_owned()),
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
        }
        Self::sort(&origins)
    }

    /// Finds the program of each space. A copy comes after its original.
    fn sort(origins: &[Origin]) -> Self {
        let mut programs = Programs { all: Vec::new(), of_space: Vec::with_capacity(origins.len()) };
        let mut known: HashMap<Key, u32> = HashMap::new();
        for origin in origins {
            let (key, program) = match origin {
                Origin::Forked(space) => {
                    let of_parent = programs.of_space.get(*space as usize).copied().unwrap_or(0);
                    programs.of_space.push(of_parent);
                    continue;
                }
                Origin::First => (Key::Start, RecordedProgram { name: None, pages: 0, starts: 0 }),
                Origin::Started { name, image, pages, .. } => {
                    let key = name.clone().map_or(Key::Image(*image), Key::Name);
                    (key, RecordedProgram { name: name.clone(), pages: *pages, starts: 0 })
                }
            };
            let number = *known.entry(key).or_insert_with(|| {
                programs.all.push(program);
                programs.all.len() as u32 - 1
            });
            programs.all[number as usize].starts +=
                u64::from(matches!(origin, Origin::Started { seen: true, .. }));
            programs.of_space.push(number);
        }
        programs
    }

    /// Returns the program of a space, as an index of [`all`](Self::all).
    pub fn of_space(&self, space: u32) -> u32 {
        self.of_space.get(space as usize).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn started(name: Option<&str>, image: u64) -> Origin {
        Origin::Started { name: name.map(str::to_owned), image, pages: image, seen: true }
    }

    #[test]
    fn copies_belong_to_the_program_of_their_original() {
        let origins =
            [Origin::First, Origin::Forked(0), started(None, 7), Origin::Forked(2), started(None, 7)];
        let programs = Programs::sort(&origins);
        assert_eq!((0..5).map(|space| programs.of_space(space)).collect::<Vec<_>>(), [0, 0, 1, 1, 1]);
        assert_eq!(programs.all[1], RecordedProgram { name: None, pages: 7, starts: 2 });
        assert_eq!(programs.all[0].starts, 0);
    }

    #[test]
    fn a_name_tells_more_than_an_image() {
        let origins = [started(Some("cc1"), 1), started(Some("cc1"), 2), started(Some("as"), 2)];
        let programs = Programs::sort(&origins);
        assert_eq!((0..3).map(|space| programs.of_space(space)).collect::<Vec<_>>(), [0, 0, 1]);
    }
}
