//! The recordings that come with the command. They are part of the program, so it needs no file.

/// The recording of a compile.
pub const COMPILE: &[u8] = include_bytes!("../traces/compile.ptrace");

/// All recordings with their names, the compile first.
pub const SHIPPED: [(&str, &[u8]); 4] = [
    ("compile", COMPILE),
    ("configure", include_bytes!("../traces/configure.ptrace")),
    ("rustc", include_bytes!("../traces/rustc.ptrace")),
    ("fixture", include_bytes!("../traces/fixture.ptrace")),
];
