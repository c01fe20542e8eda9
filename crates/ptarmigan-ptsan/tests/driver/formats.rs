//! Makes a test of each format, with stores told: it calls `format::<Format, Mmu>(arch)`.

macro_rules! each_format {
    ($($test:ident $format:ident, $mmu:ident;)*) => { $(
        #[test]
        fn $test() {
            format::<ptarmigan_ptsan::Told<ptarmigan::format::$format>, ptarmigan_ptsan::$mmu>(
                <ptarmigan::format::$format as ptarmigan_ptsan::Watchable>::arch,
            );
        }
    )* };
}

/// Formats that have large pages: of each architecture some, and all with the feature `formats`.
#[allow(unused_macros, reason = "not all tests take all of them")]
macro_rules! each_format_with_large_pages {
    () => {
        each_format! {
            i386 I386, Interrupting;
            x86_64 X86_64, Interrupting;
            sv39_napot Sv39Napot, Fencing;
            aarch64_4k Aarch64, Broadcasting;
            aarch64_16k Aarch64K16, Broadcasting;
            ept Ept, Interrupting;
        }
        #[cfg(feature = "formats")]
        each_format! {
            i386_pae X86Pae, Interrupting;
            x86_64_5 X86_64La57, Interrupting;
            sv32 Sv32, Fencing;
            sv39 Sv39, Fencing;
            sv48 Sv48, Fencing;
            sv57 Sv57, Fencing;
            aarch64_64k Aarch64K64, Broadcasting;
            aarch64_s2 Aarch64Stage2, Broadcasting;
            npt Npt, Interrupting;
            sv39x4 Sv39x4, Fencing;
            sv48x4 Sv48x4, Fencing;
            sv48_napot Sv48Napot, Fencing;
            sv39x4_napot Sv39x4Napot, Fencing;
        }
    };
}
