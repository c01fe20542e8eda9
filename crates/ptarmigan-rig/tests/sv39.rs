//! The format of the RISC-V kernel, which is written by hand, against the sanitizer's decoder.
#[path = "../../../kernels/riscv64/src/format.rs"]
mod format;

#[test]
fn sv39_of_the_kernel_is_what_the_sanitizer_decodes() {
    ptarmigan_rig::conforms_to::<format::Sv39>(&ptsan::Arch::riscv_sv39()).unwrap();
}
