//! Counts the rights of user mode on a frame: page tables that it may write, frames that it may
//! write and execute.
use crate::arch::{Entry, Perms};
use crate::report::{Kind, Place, Rule};
use crate::shadow::UserMapping;
use crate::state::{EntryAt, Sanitizer};

impl Sanitizer {
    /// Records which frames an entry maps to user mode, and checks those that it maps from now on.
    pub(crate) fn map_to_user(&mut self, at: EntryAt, old: Option<Entry>, new: Entry) {
        if let Some(Entry::Leaf { phys, perms, .. }) = old
            && perms.contains(Perms::USER)
        {
            self.mappings.remove(phys, at.level, at.entry);
        }
        let Entry::Leaf { phys, perms, .. } = new else { return };
        if !perms.contains(Perms::USER) {
            return;
        }
        let mapping = UserMapping { entry: at.entry, table: at.table, level: at.level, perms };
        self.mappings.add(phys, mapping);
        let size = 1u64 << self.config.arch.levels[usize::from(at.level)].shift;
        if perms.contains(Perms::WRITE)
            && let Some(table) = self.frames.table_within(phys, size)
        {
            self.report_writable(table, mapping);
        }
        if self.config.write_xor_execute {
            self.check_write_execute(phys, size, mapping);
        }
    }

    /// Reports the frame that becomes a table if user mode may write it.
    pub(crate) fn check_writable(&mut self, phys: u64, size: u64) {
        let mappings = self.mappings.of(&self.config.arch, phys, size);
        let writes = |m: &&UserMapping| m.perms.contains(Perms::WRITE) && self.is_table(m.table);
        if let Some(&mapping) = mappings.iter().find(writes) {
            self.report_writable(phys, mapping);
        }
    }

    fn report_writable(&mut self, table: u64, mapping: UserMapping) {
        let place = Place { frame: Some(table), level: Some(mapping.level), ..Place::default() };
        self.report(Kind::TableMapped, Rule::TableWritable, place, || {
            format!("the entry at {:#x} maps it ({})", mapping.entry, mapping.perms)
        });
    }

    fn check_write_execute(&mut self, phys: u64, size: u64, new: UserMapping) {
        let (write, execute) = (Perms::WRITE, Perms::USER_EXEC);
        let both = |p: Perms, q: Perms| p.contains(write) && q.contains(execute);
        let mappings = self.mappings.of(&self.config.arch, phys, size);
        let clash = mappings
            .into_iter()
            .filter(|m| self.is_table(m.table))
            .find(|m| both(m.perms, new.perms) || both(new.perms, m.perms));
        let Some(other) = clash else { return };
        let place = Place { frame: Some(phys), level: Some(new.level), ..Place::default() };
        self.report(Kind::WriteExecute, Rule::WriteAndExecute, place, || {
            let (old, new) = ((other.entry, other.perms), (new.entry, new.perms));
            format!("the entry at {:#x} says {}, the one at {:#x} {}", old.0, old.1, new.0, new.1)
        });
    }
}
