//! The stages of a trace, and the system registers that belong to them.

/// A stage of translation of which the log has tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Stage {
    /// The hypervisor's own tables (`TTBR0_EL2`).
    One,
    /// The tables of its guests (`VTTBR_EL2`).
    Two,
}

impl Stage {
    pub(super) const ALL: [Self; 2] = [Self::One, Self::Two];

    pub(super) const fn index(self) -> usize {
        match self {
            Self::One => 0,
            Self::Two => 1,
        }
    }

    pub(super) const fn register(self) -> &'static str {
        match self {
            Self::One => "TTBR0_EL2",
            Self::Two => "VTTBR_EL2",
        }
    }
}

/// A system register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Register {
    /// The root of a stage.
    Root(Stage),
    /// The format of a stage: `TCR_EL2`, `VTCR_EL2`.
    Control(Stage),
    /// Another one, which has no meaning here.
    Other,
}
