//! The program with most page tables, which gives a trace its name.
use super::system::proc;

/// The largest sample of `VmPTE` so far, and its program.
#[derive(Default)]
pub(crate) struct Largest {
    tables: u32,
    name: Option<String>,
    /// The name of the first program, as the kernel keeps it.
    first: Option<String>,
}

impl Largest {
    /// Notes that a program has started.
    pub(crate) fn started(&mut self, name: &str) {
        self.first.get_or_insert_with(|| name.to_owned());
    }

    /// Takes a sample of a task that is still there. Threads have names of their own: the program's
    /// is that of the first one. Samples before the first program are of the recorder's own copy.
    pub(crate) fn sample(&mut self, pid: i32, tables: u32) {
        if tables > self.tables && self.first.is_some() {
            let name = proc::status(&proc::group(pid).unwrap_or(pid).to_string(), "Name");
            if name.is_some() {
                (self.tables, self.name) = (tables, name);
            }
        }
    }

    /// Returns the name. `command` is that of the first program in full: the kernel keeps 15 bytes.
    pub(crate) fn name(self, command: &str) -> String {
        match self.name {
            Some(name) if Some(&name) != self.first.as_ref() => name,
            _ => command.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_gives_its_name_unless_another_program_is_larger() {
        let own = proc::status("self", "Name").expect("our own");
        let pid = std::process::id() as i32;
        let mut largest = Largest::default();
        largest.sample(pid, 9);
        largest.started("wrapper");
        assert_eq!(largest.tables, 0);
        largest.sample(pid, 7);
        largest.started(&own);
        assert_eq!(largest.name("wrapper-of-a-program"), own);
        let mut largest = Largest::default();
        largest.started(&own);
        largest.sample(pid, 7);
        // A task that is gone has no name.
        largest.sample(0, 9);
        assert_eq!(largest.name("the whole name"), "the whole name");
        assert_eq!(Largest::default().name("command"), "command");
    }
}
