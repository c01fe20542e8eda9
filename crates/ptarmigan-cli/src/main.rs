//! The command `ptarmigan`.
fn main() -> std::process::ExitCode {
    ptarmigan_cli::cli::main()
}
