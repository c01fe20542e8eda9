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
        fn attr(level: Level, raw: u64) -> Attr {
            ::ptarmigan::format::X86_64::attr(level, raw)
        }
        fn is_present(level: Level, raw: u64) -> bool {
            ::ptarmigan::format::X86_64::is_present(level, raw)
        }
        fn allows(level: Level, raw: u64, access: Access) -> bool {
            ::ptarmigan::format::X86_64::allows(level, raw, access)
        }
        fn write_protected(level: Level, raw: u64) -> u64 {
            ::ptarmigan::format::X86_64::write_protected(level, raw)
        }
        fn is_special(level: Level, raw: u64) -> bool {
            ::ptarmigan::format::X86_64::is_special(level, raw)
        }
    };
}
