//! `cargo xtask boot lint`: lints each image for its own target. Lints do not link.
use kernel_boot::board::{Board, Boards};
use kernel_boot::image::{cargo, target_directory};
use kernel_boot::{here, linux};
use std::path::PathBuf;

/// Packages of `kernels` that are linted with their tests, which run on the host.
const HOSTED: [&str; 5] =
    ["ptarmigan-kernel-base", "ptarmigan-kernel-x86", "kernel-boot", "kernel-counter", "kernel-recorder"];
/// Packages of `linux` that are.
const HOSTED_LINUX: [&str; 2] = ["ptarmigan-kernel", "kernel-comparison"];

/// Runs the lints of the workspaces `kernels` and `linux`, up to the first that fails.
///
/// # Errors
///
/// A lint fails.
pub fn run() -> Result<(), String> {
    // An image that needs a nightly toolchain is linted by a job of its own.
    let boards = Boards::read()?;
    let boards = boards.board.iter().filter(|board| !board.core_from_source);
    let of_boards =
        boards.flat_map(|board| of_board(board).into_iter().map(|words| (board.workspace(), words)));
    let mut all: Vec<(PathBuf, String)> = of_boards.collect();
    for (workspace, packages) in [(here().to_owned(), &HOSTED[..]), (linux(), &HOSTED_LINUX)] {
        all.push((workspace, format!("--all-targets -p {}", packages.join(" -p "))));
    }
    for (workspace, words) in all {
        let mut command = cargo(&workspace, &target_directory());
        command.args(["clippy", "--quiet"]).args(words.split(' ')).args(["--", "-D", "warnings"]);
        let status = command.status().map_err(|e| format!("cargo: {e}"))?;
        if !status.success() {
            return Err(format!("cargo clippy {words}: {status}"));
        }
    }
    Ok(())
}

/// Returns the arguments of clippy for the packages of a board, each time with other features.
fn of_board(board: &Board) -> Vec<String> {
    let Board { target, package, .. } = board;
    if board.linux.is_some() {
        return ["", " --features negative"]
            .map(|more| format!("--target {target} -p {package}{more}"))
            .into();
    }
    let image = |package: &str| format!("--all-targets --target {target} -p {package}");
    let mut all = vec![image(package)];
    if board.has_minimal {
        all.push(image("kernel-minimal"));
    }
    // With the code that tells a recorder of tables.
    if board.recorded.is_some() {
        all.push(format!("{} --features record", image(package)));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_image_of_a_board_is_linted_with_its_features() {
        let boards = Boards::read().unwrap();
        let of = |name| of_board(boards.named(name).unwrap());
        assert_eq!(of("ppc32"), ["--all-targets --target powerpc-unknown-linux-gnu -p kernel-bare"]);
        assert_eq!(
            of("i686"),
            [
                "--target i586-unknown-linux-gnu -p kernel-linux-x86",
                "--target i586-unknown-linux-gnu -p kernel-linux-x86 --features negative",
            ]
        );
        let target = "--all-targets --target riscv64gc-unknown-none-elf -p kernel-";
        assert_eq!(
            of("riscv64"),
            [format!("{target}bare"), format!("{target}minimal"), format!("{target}bare --features record"),]
        );
    }
}
