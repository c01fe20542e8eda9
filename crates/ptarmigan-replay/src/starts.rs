//! Which start of a program each task runs, and the name of that program.
use foldhash::{HashMap, HashMapExt};
use ptarmigan_trace::{AreaKind, Event, Kind};

/// One start of a program.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
struct Start {
    name: Option<String>,
    /// The areas of files that `execve` has mapped: lengths and permissions.
    image: Vec<(u64, u8)>,
}

/// The starts of programs.
pub(crate) struct Starts {
    all: Vec<Start>,
    of_task: HashMap<u32, u32>,
}

impl Default for Starts {
    fn default() -> Self {
        Self { all: vec![Start::default()], of_task: HashMap::from_iter([(0, 0)]) }
    }
}

impl Starts {
    /// Returns the start that a task runs.
    pub(crate) fn of(&self, task: u32) -> u32 {
        self.of_task.get(&task).copied().unwrap_or(0)
    }

    pub(crate) fn see(&mut self, event: &Event) {
        let start = self.of(event.task);
        match &event.kind {
            Kind::Clone { child, .. } => drop(self.of_task.insert(*child, start)),
            Kind::Exec { .. } => {
                self.of_task.insert(event.task, self.all.len() as u32);
                self.all.push(Start::default());
            }
            Kind::Exit { .. } => drop(self.of_task.remove(&event.task)),
            Kind::Area { pages, prot, kind: AreaKind::File, .. } => {
                self.all[start as usize].image.push((*pages, prot.0));
            }
            Kind::Name(name) => self.all[start as usize].name = Some(name.as_str().to_owned()),
            _ => {}
        }
    }

    /// Returns a name for each start. Programs without names are numbered.
    pub(crate) fn finish(self) -> Vec<String> {
        let mut unnamed: HashMap<Vec<(u64, u8)>, usize> = HashMap::new();
        let mut name = |start: Start| {
            let next = unnamed.len() + 1;
            match start {
                Start { name: Some(name), .. } => name,
                Start { image, .. } if image.is_empty() => "(start)".to_owned(),
                Start { image, .. } => format!("program {}", unnamed.entry(image).or_insert(next)),
            }
        };
        self.all.into_iter().map(&mut name).collect()
    }
}
