//! The invalidations of AArch64 that a trace may have.
use super::register::Stage;

const PAGE: u64 = 4096;

/// The scope of an invalidation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// Everything of a stage, under every number (`ALLE1`, `ALLE2`).
    All,
    /// Everything of the current VMID, both stages (`VMALLS12E1`).
    Guest,
    /// Stage 1 of the current VMID (`VMALLE1`): all that combines both stages.
    GuestStage1,
    /// Addresses of the current VMID, or of EL2.
    Range { start: u64, end: u64, leaf_only: bool },
    /// Addresses of a guest's stage 1, which the log has no tables of.
    GuestAddress,
}

/// An invalidation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tlbi {
    pub(super) stage: Stage,
    pub(super) reach: Reach,
    /// Whether all CPUs carry it out.
    pub(super) broadcast: bool,
}

/// The operand of an invalidation by address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operand {
    /// The register as the instruction takes it.
    Register(u64),
    /// The number of a page.
    Page(u64),
}

/// The form of an operand.
#[derive(Clone, Copy)]
enum Form {
    None,
    Page {
        leaf_only: bool,
    },
    Range {
        leaf_only: bool,
    },
    /// Any, of a guest's stage 1.
    Guest,
}

/// Returns the stage, the scope without operand, and the form of the operand.
fn kind(name: &str) -> Option<(Stage, Reach, Form)> {
    use Form::{Guest, None as No, Page, Range};
    let any = Reach::GuestAddress;
    Some(match name {
        "alle1" => (Stage::Two, Reach::All, No),
        "alle2" => (Stage::One, Reach::All, No),
        "vmalls12e1" => (Stage::Two, Reach::Guest, No),
        "vmalle1" => (Stage::Two, Reach::GuestStage1, No),
        "vae2" => (Stage::One, any, Page { leaf_only: false }),
        "vale2" => (Stage::One, any, Page { leaf_only: true }),
        "ipas2e1" => (Stage::Two, any, Page { leaf_only: false }),
        "ipas2le1" => (Stage::Two, any, Page { leaf_only: true }),
        "rvae2" => (Stage::One, any, Range { leaf_only: false }),
        "rvale2" => (Stage::One, any, Range { leaf_only: true }),
        "ripas2e1" => (Stage::Two, any, Range { leaf_only: false }),
        "ripas2le1" => (Stage::Two, any, Range { leaf_only: true }),
        "vae1" | "vale1" | "vaae1" | "vaale1" | "aside1" | "rvae1" | "rvale1" | "rvaae1" | "rvaale1" => {
            (Stage::Two, any, Guest)
        }
        _ => return None,
    })
}

/// Returns whether the instruction takes a register, or `None` if there is no such instruction.
pub(super) fn takes_operand(name: &str) -> Option<bool> {
    kind(without_domain(name).0).map(|(_, _, form)| !matches!(form, Form::None))
}

/// Splits the shareability domain off.
fn without_domain(name: &str) -> (&str, bool) {
    let bare = name.strip_suffix("is").or_else(|| name.strip_suffix("os"));
    bare.map_or((name, false), |bare| (bare, true))
}

/// Returns the invalidation of a name in small letters (Arm ARM, C5.5), or `None` if there is no
/// such instruction or its operand is missing.
pub(super) fn tlbi(name: &str, operand: Option<Operand>) -> Option<Tlbi> {
    let (bare, broadcast) = without_domain(name);
    let (stage, reach, form) = kind(bare)?;
    let reach = match (form, operand) {
        (Form::None, _) => reach,
        (Form::Guest, Some(_)) => Reach::GuestAddress,
        (Form::Page { leaf_only }, Some(Operand::Register(value) | Operand::Page(value))) => {
            one(value, leaf_only)
        }
        (Form::Range { leaf_only }, Some(Operand::Register(value))) => several(value, leaf_only),
        (Form::Range { .. }, Some(Operand::Page(_))) | (_, None) => return None,
    };
    Some(Tlbi { stage, reach, broadcast })
}

/// The range of one page. Numbers of pages have 44 bits.
const fn one(page: u64, leaf_only: bool) -> Reach {
    let start = (page & 0xfff_ffff_ffff) * PAGE;
    Reach::Range { start, end: start + PAGE, leaf_only }
}

/// The range of `TLBI R…`, for pages of 4 KiB (Arm ARM, C5.5, "TLBI RVAE2").
fn several(value: u64, leaf_only: bool) -> Reach {
    let start = (value & 0x1f_ffff_ffff) * PAGE;
    let (num, scale) = (value >> 39 & 0x1f, value >> 44 & 3);
    let end = start + ((num + 1) << (5 * scale + 1)) * PAGE;
    Reach::Range { start, end, leaf_only }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operands_are_registers_or_pages_and_ranges_have_their_scale() {
        let range = |name, operand| match tlbi(name, Some(operand)).map(|t| t.reach) {
            Some(Reach::Range { start, end, leaf_only }) => (start, end, leaf_only),
            other => panic!("{other:?}"),
        };
        // The level hint in bits 47 to 44 and the number above it are no address.
        assert_eq!(range("ipas2e1is", Operand::Register(0x0007_3000_0000_0012)), (0x12000, 0x13000, false));
        assert_eq!(range("vale2is", Operand::Page(5)), (0x5000, 0x6000, true));
        assert_eq!(range("rvae2is", Operand::Register(1 << 44 | 2 << 39 | 8)), (0x8000, 0xc8000, false));
        assert_eq!(tlbi("ipas2e1is", None), None);
        assert_eq!(tlbi("vae3is", Some(Operand::Page(0))), None);
        let guest = tlbi("vae1is", Some(Operand::Register(1))).unwrap();
        assert_eq!((guest.reach, guest.stage), (Reach::GuestAddress, Stage::Two));
        assert_eq!(tlbi("vmalle1", None).map(|t| (t.reach, t.broadcast)), Some((Reach::GuestStage1, false)));
        assert_eq!(tlbi("alle2os", None).map(|t| (t.stage, t.broadcast)), Some((Stage::One, true)));
        assert_eq!(
            (takes_operand("vmalle1is"), takes_operand("vae2"), takes_operand("x")),
            (Some(false), Some(true), None)
        );
    }
}
