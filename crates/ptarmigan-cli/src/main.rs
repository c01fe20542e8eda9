//! The workbench command.
fn main() {}
