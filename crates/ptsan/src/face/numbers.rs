//! The hooks of numbers of spaces: which root has which, and a check when a root is loaded.
use crate::cpu::Cpu;
use crate::report::{Kind, Place, Rule};
use crate::state::Sanitizer;

impl Sanitizer {
    /// Tells that the code under test gave the tables at `root` the number `space` (ASID, PCID,
    /// VMID, ASID of a guest), in place of the one that they had. From then on until the root is
    /// freed, gets another number, or [all numbers are taken back](Self::numbers_taken_back), a
    /// load of the root with another number and a load of another root with this one are findings
    /// ([`Kind::WrongNumber`]).
    ///
    /// Optional. Roots that were given no number are loaded with any.
    /// ```
    /// use ptsan::{Arch, Config, Content, Granule, Kind, Sanitizer};
    ///
    /// let ram = vec![0u8; 1 << 16];
    /// let mut san = Sanitizer::new(Config { asids: true, ..Config::new(Arch::aarch64_stage2(Granule::K4, 39, 1)) });
    /// for root in [0x1000, 0x2000] {
    ///     san.table_allocated(&ram, root, 4096, Some(2), Content::Zero);
    /// }
    /// san.number_given(0x1000, 7);                // VMID 7 for the first guest,
    /// san.number_given(0x2000, 7);                // and for the second one
    /// san.switch(&ram, 0, 0x1000, 8);             // the first one runs with another one's
    /// assert_eq!(san.count(Kind::WrongNumber), 2);
    /// ```
    pub fn number_given(&mut self, root: u64, space: u64) {
        self.hook(|s| {
            s.check_host(Place { frame: Some(root), space: Some(space), ..Place::default() });
            if let Some(other) = s.numbers.assign(root, space) {
                let place = Place { frame: Some(root), space: Some(space), ..Place::default() };
                s.report(Kind::WrongNumber, Rule::NumberTaken, place, || {
                    format!("the root at {other:#x} has it")
                });
            }
        });
    }

    /// Tells that the code under test took all numbers back (a rollover of generations), except
    /// those of roots that CPUs have loaded, which keep theirs. For numbers that belong to CPUs,
    /// not to all of them, tell of none.
    pub fn numbers_taken_back(&mut self) {
        self.hook(|s| {
            let loaded: Vec<u64> = s.numbered().filter_map(|(_, c)| Some(c.loaded?.root)).collect();
            s.numbers.keep(|root| loaded.contains(&root));
        });
    }

    /// Lists the CPUs, or the devices if there are no CPUs: beside CPUs, domains and PASIDs are
    /// numbers of another sort.
    fn numbered(&self) -> impl Iterator<Item = (usize, &Cpu)> {
        let number = if self.config.cpus > 0 { self.config.cpus } else { self.cpus.len() };
        self.cpus.iter().take(number).enumerate()
    }

    /// Checks the number with which a CPU loads a root.
    pub(super) fn check_number(&mut self, cpu: usize, root: u64, space: u64) {
        if self.numbered().all(|(number, _)| number != cpu) {
            return;
        }
        let place = Place { frame: Some(root), cpu: Some(cpu), space: Some(space), ..Place::default() };
        if self.check_host(place) {
            return;
        }
        let wrong = match (self.numbers.of(root), self.numbers.root_of(space)) {
            (Some(own), _) if own != space => Some(format!("the root was given {own:#x}")),
            (None, Some(other)) if other != root => {
                Some(format!("the number was given to the root at {other:#x}"))
            }
            _ => None,
        };
        if let Some(note) = wrong {
            return self.report(Kind::WrongNumber, Rule::OtherNumber, place, || note);
        }
        if !self.config.common_numbers {
            return;
        }
        let beside = self.numbered().find_map(|(other, c)| {
            let theirs = c.loaded.filter(|l| other != cpu && l.space == space && l.root != root)?;
            Some((other, theirs.root))
        });
        if let Some((other, theirs)) = beside {
            let other = self.reader(other);
            self.report(Kind::WrongNumber, Rule::NumberShared, place, || {
                format!("{other} runs the root at {theirs:#x} with it")
            });
        }
    }

    /// Reports a guest that has the number of the host. Returns whether it has.
    fn check_host(&mut self, place: Place) -> bool {
        let host = self.config.arch.second_stage.and_then(|second| second.host);
        let has = host.is_some() && host == place.space;
        if has {
            self.report(Kind::WrongNumber, Rule::NumberOfHost, place, String::new);
        }
        has
    }
}
