//! Formats that differ from x86-64 in a part only.
/// Defines the functions of a format that entries share with `X86_64`: all but those that a leaf's
/// frame is in.
macro_rules! entries_of_x86_64 {
    () => {
        fn link(level: Level, at: PhysAddr) -> u64 {
            ::ptarmigan::format::X86_64::link(level, at)
        }
        fn linked(level: Level, raw: u64) -> Option<PhysAddr> {
            ::ptarmigan::format::X86_64::linked(level, raw)
        }
        fn attr(raw: u64) -> Attr {
            ::ptarmigan::format::X86_64::attr(raw)
        }
        fn is_present(raw: u64) -> bool {
            ::ptarmigan::format::X86_64::is_present(raw)
        }
        fn allows(raw: u64, access: Access) -> bool {
            ::ptarmigan::format::X86_64::allows(raw, access)
        }
        fn write_protected(raw: u64) -> u64 {
            ::ptarmigan::format::X86_64::write_protected(raw)
        }
        fn is_special(raw: u64) -> bool {
            ::ptarmigan::format::X86_64::is_special(raw)
        }
    };
}
