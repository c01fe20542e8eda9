//! The recordings that come with the command. They are part of the program, so it needs no file.
//! As statics they are in it once, not in each unit that the compiler makes.

/// The recording that commands use if the line names none, with its name. It has names, callers
/// and times, so a first look shows all that the commands can say.
pub static DEFAULT: (&str, &[u8]) = ("linux-build", include_bytes!("../../traces/linux-build.ptrace"));

/// All recordings with their names, the default first.
pub static SHIPPED: [(&str, &[u8]); 5] = [
    DEFAULT,
    ("compile", include_bytes!("../../traces/compile.ptrace")),
    ("configure", include_bytes!("../../traces/configure.ptrace")),
    ("rustc", include_bytes!("../../traces/rustc.ptrace")),
    ("fixture", include_bytes!("../../traces/fixture.ptrace")),
];
