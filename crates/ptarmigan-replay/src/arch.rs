//! The machines of `--arch`: their names, and the formats of their tables.
#[cfg(feature = "formats")]
use ptarmigan::format::{
    Aarch64, Aarch64K16, Aarch64K64, I386, Ia64, LoongArch64, Sparc64, Sv32, Sv39, Sv48, Sv57, X86_64La57,
    X86Pae,
};
use ptarmigan::format::{Format, X86_64};
use ptarmigan_term::Failure;

/// A machine by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum MachineName {
    /// x86-64 with 4 levels
    #[default]
    #[value(name = "x86-64")]
    X86_64,
    /// 32-bit x86 with 2 levels
    #[value(hide = !cfg!(feature = "formats"))]
    I386,
    /// 32-bit x86 with PAE
    I386Pae,
    /// 32-bit PowerPC with a hash table
    Ppc32,
    /// x86-64 with 5 levels
    #[value(name = "x86-64-5", hide = !cfg!(feature = "formats"))]
    X86_64La57,
    /// 32-bit RISC-V with 2 levels
    #[value(hide = !cfg!(feature = "formats"))]
    Sv32,
    /// RISC-V with 3 levels
    #[value(hide = !cfg!(feature = "formats"))]
    Sv39,
    /// RISC-V with 4 levels
    #[value(hide = !cfg!(feature = "formats"))]
    Sv48,
    /// RISC-V with 5 levels
    #[value(hide = !cfg!(feature = "formats"))]
    Sv57,
    /// AArch64 with pages of 4 KiB
    #[value(name = "aarch64-4k", hide = !cfg!(feature = "formats"))]
    Aarch64K4,
    /// AArch64 with pages of 16 KiB
    #[value(name = "aarch64-16k", hide = !cfg!(feature = "formats"))]
    Aarch64K16,
    /// AArch64 with pages of 64 KiB
    #[value(name = "aarch64-64k", hide = !cfg!(feature = "formats"))]
    Aarch64K64,
    /// LoongArch with pages of 16 KiB, whose TLBs software fills
    #[value(name = "loongarch64", hide = !cfg!(feature = "formats"))]
    LoongArch64,
    /// Itanium with pages of 16 KiB, one region, and TLBs that software fills
    #[value(name = "ia64", hide = !cfg!(feature = "formats"))]
    Ia64,
    /// SPARC with pages of 8 KiB, whose TLBs software fills
    #[value(name = "sparc64", hide = !cfg!(feature = "formats"))]
    Sparc64,
}

impl MachineName {
    /// Returns whether it is an x86, which has two historic lists.
    pub(super) fn is_x86(self) -> bool {
        matches!(self, Self::X86_64 | Self::I386 | Self::I386Pae | Self::X86_64La57)
    }

    /// Returns its name in `--arch`.
    pub fn name(self) -> String {
        clap::ValueEnum::to_possible_value(&self).map_or(String::new(), |value| value.get_name().to_owned())
    }

    /// Names the machines that this build lacks, and how to get them. `None` if it has all.
    pub fn hint() -> Option<String> {
        let all =
            <Self as clap::ValueEnum>::value_variants().iter().filter_map(clap::ValueEnum::to_possible_value);
        let hidden: Vec<String> =
            all.filter(|value| value.is_hide_set()).map(|value| value.get_name().to_owned()).collect();
        (!hidden.is_empty()).then(|| format!("a build with --features formats has {} too", hidden.join(", ")))
    }

    /// Says how to get a machine that this build lacks.
    #[cfg(not(feature = "formats"))]
    pub(super) fn not_in_this_build(self) -> Failure {
        Failure::new(format!(
            "--arch {}: this build has no such machine; build the command with --features formats",
            self.name()
        ))
    }

    /// Runs `work` in the format of the machine's tables.
    ///
    /// # Errors
    ///
    /// If the build lacks the format, MMUs do not walk the tables, or `work` fails.
    #[cfg(not(feature = "formats"))]
    pub fn in_its_format<W: PerFormat>(self, work: W) -> Result<W::Done, Failure> {
        match self {
            Self::X86_64 => work.run::<X86_64>(),
            Self::Ppc32 => Err(hashed()),
            other => Err(other.not_in_this_build()),
        }
    }

    /// Runs `work` in the format of the machine's tables.
    ///
    /// # Errors
    ///
    /// If MMUs do not walk the tables, or `work` fails.
    #[cfg(feature = "formats")]
    pub fn in_its_format<W: PerFormat>(self, work: W) -> Result<W::Done, Failure> {
        match self {
            Self::X86_64 => work.run::<X86_64>(),
            Self::I386 => work.run::<I386>(),
            Self::I386Pae => work.run::<X86Pae>(),
            Self::Ppc32 => Err(hashed()),
            Self::X86_64La57 => work.run::<X86_64La57>(),
            Self::Sv32 => work.run::<Sv32>(),
            Self::Sv39 => work.run::<Sv39>(),
            Self::Sv48 => work.run::<Sv48>(),
            Self::Sv57 => work.run::<Sv57>(),
            Self::Aarch64K4 => work.run::<Aarch64>(),
            Self::Aarch64K16 => work.run::<Aarch64K16>(),
            Self::Aarch64K64 => work.run::<Aarch64K64>(),
            Self::LoongArch64 => work.run::<LoongArch64>(),
            Self::Ia64 => work.run::<Ia64>(),
            Self::Sparc64 => work.run::<Sparc64>(),
        }
    }
}

/// Says where the tables of ppc32 are measured.
fn hashed() -> Failure {
    Failure::new(
        "--arch ppc32: its MMUs find pages in a hash table, which `ptarmigan-papers hash` measures"
            .to_owned(),
    )
}

/// Work that is compiled for each format whose tables MMUs walk, or software for them.
pub trait PerFormat {
    /// Its result.
    type Done;

    /// Does it in a format.
    ///
    /// # Errors
    ///
    /// If it fails.
    fn run<F: Format>(self) -> Result<Self::Done, Failure>;
}
