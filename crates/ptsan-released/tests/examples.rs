//! The examples as tests: each fails unless exactly the known defects are found.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

#[path = "../examples/patina_paging.rs"]
mod patina_paging_example;

#[test]
fn patina_paging_has_the_known_defects_and_no_others() {
    patina_paging_example::main().expect("stores can be watched");
}

#[path = "../examples/ax_page_table_multiarch.rs"]
mod ax_page_table_multiarch_example;

#[test]
fn ax_page_table_multiarch_has_the_known_defects_and_no_others() {
    ax_page_table_multiarch_example::main();
}
