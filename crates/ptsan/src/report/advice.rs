//! Advises a correction for a finding, where the sentence of its rule does not say it.
use super::machine::MachineNames;
use super::place::Place;
use super::rule::Rule;

/// Returns the advice, with the names of the hooks and the numbers of the place. It is empty if the
/// rule's sentence says enough. `tells` says whether stores are told.
pub(super) fn advice(rule: Rule, place: &Place, machine: &MachineNames, tells: bool) -> String {
    let cpu = place.cpu.unwrap_or_default();
    let reader = machine.reader(cpu);
    let space = place.space.unwrap_or_default();
    let frame = place.frame.unwrap_or_default();
    match rule {
        Rule::Unmapped | Rule::Remapped | Rule::PermissionRemoved => {
            let fix = format!(
                "invalidate the page in space {space:#x} on {reader} after the store, and call flush where that is done"
            );
            // The function that stored is not known.
            let named =
                "; to see the store, tell it (entry_written), watch the memory, or link kit/ptsan_stores.c";
            if tells { fix } else { fix + named }
        }
        Rule::UnmapNotFlushed
        | Rule::RemapNotFlushed
        | Rule::RestrictNotFlushed
        | Rule::DirtyNotFlushed
        | Rule::TypeNotFlushed => format!(
            "invalidate the pages in space {space:#x} on {reader} after the store, and call flush where that is done"
        ),
        Rule::GlobalNotFlushed => {
            format!(
                "invalidate the pages by address or everything on {reader}: a load of the root spares them"
            )
        }
        Rule::UnlinkNotFlushed => format!(
            "clear the entry that points at the table, flush its range on {reader}, and only then call \
            table_freed({frame:#x})"
        ),
        Rule::WriteAndExecute => {
            "take the right to write away before the frame may be executed, and flush in between".to_owned()
        }
        Rule::OnlyTablesMapIt | Rule::OnlyCodeMapsIt => {
            "correct the code's answer, or the store that should have made it true".to_owned()
        }
        Rule::MappedElsewhere | Rule::OtherSize | Rule::OtherPermissions => {
            "correct the code's answer, or the entry".to_owned()
        }
        Rule::HeldAsRoot => format!("call switch or leave on {reader} before table_freed({frame:#x})"),
        Rule::WalkedAfterFree => format!(
            "clear the entry that points at it and flush, on each CPU, before table_freed({frame:#x})"
        ),
        Rule::LinkedAfterFree => {
            format!(
                "call table_allocated({frame:#x}) when the frame is allocated, before an entry points at it"
            )
        }
        Rule::ZeroPromised => {
            "clear the frame before table_allocated, or announce it with Content::Unknown".to_owned()
        }
        Rule::NeverAnnounced => format!(
            "call table_allocated({frame:#x}) when the frame is allocated; if it is no table, correct the entry"
        ),
        Rule::NoMemory => "correct the address, or let Memory::read return what is there".to_owned(),
        Rule::Reserved => "correct the bits of the entry, or choose the Arch that they belong to".to_owned(),
        Rule::TwoLevels => {
            "set Config::recursive if an entry of the root points at the root; else correct the entry"
                .to_owned()
        }
        Rule::AlreadyTable => {
            format!("call table_freed for the table that is there before table_allocated({frame:#x})")
        }
        Rule::AlreadyFree => {
            format!("call table_freed({frame:#x}) once for each table_allocated({frame:#x})")
        }
        Rule::NotATable => {
            format!("call table_allocated({frame:#x}) when it is allocated; free what it was given")
        }
        Rule::WrongSize => "give table_freed the size that table_allocated was given".to_owned(),
        Rule::StillAllocated => {
            format!("call table_freed({frame:#x}) when the table goes back to its allocator")
        }
        Rule::NoSuchCpu => {
            format!("count CPUs from 0, and set Config::cpus to {} or more", cpu.saturating_add(1))
        }
        Rule::NoSuchSpace => format!(
            "call space_destroyed({space:#x}) once, for a space that was loaded or announced with space_created"
        ),
        Rule::NoRoot => format!("call switch on {reader} first, with a root and a space"),
        Rule::BadRoot => "give switch the address of the root table alone, without flags of the register, \
            aligned to the size of the table"
            .to_owned(),
        Rule::BadHashTable => {
            "call hash_table with a size that is a power of two, at a multiple of the size, \
            in memory, and with an Arch that is hashed"
                .to_owned()
        }
        Rule::NoHashTable => match place.space {
            Some(space) => format!("call hash_table, and segments({space:#x}, ..), before the first access"),
            None => "call hash_table first".to_owned(),
        },
        Rule::SpaceLoaded => {
            format!("call switch or leave on {reader} before space_destroyed({space:#x})")
        }
        Rule::BadArch => "give the Arch 1 to 8 levels that join without a gap, entries of 4 or 8 bytes, and \
            tables as large as their index"
            .to_owned(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_says_what_to_do() {
        for rule in Rule::ALL {
            // The hook's note does it for this one.
            let said = *rule == Rule::BadArgument || rule.text().contains("; ");
            assert!(
                said || !advice(*rule, &Place::default(), &MachineNames::default(), true).is_empty(),
                "{}",
                rule.name()
            );
        }
    }

    #[test]
    fn advice_names_the_numbers_of_the_place() {
        let place =
            Place { frame: Some(0x1000), va: Some(0x2000), cpu: Some(3), level: Some(0), space: Some(7) };
        for rule in [Rule::Unmapped, Rule::HeldAsRoot, Rule::NoSuchSpace, Rule::SpaceLoaded, Rule::NoRoot] {
            let advice = advice(rule, &place, &MachineNames::default(), true);
            assert!(["CPU 3", "(0x7)", "0x1000"].iter().any(|number| advice.contains(number)), "{advice}");
        }
    }
}
