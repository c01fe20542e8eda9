//! The program `ptarmigan-papers`.
fn main() -> std::process::ExitCode {
    ptarmigan_papers::main()
}
