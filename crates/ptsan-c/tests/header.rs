//! The header agrees with the source. `PTSAN_WRITE=1 cargo test -p ptsan-c --test header` writes it
//! anew.
use std::path::Path;

/// The files with functions for C, in the order of the header.
const SOURCES: [&str; 24] = [
    "error",
    "options",
    "source",
    "handles",
    "machine",
    "face/create",
    "face/tables",
    "face/stores",
    "face/frames",
    "face/cpus",
    "face/spaces",
    "face/flushes",
    "face/barriers",
    "face/operations",
    "face/accesses",
    "face/expect",
    "face/guests",
    "face/devices",
    "face/readers",
    "face/locks",
    "face/hashed",
    "face/watch",
    "face/harness",
    "face/findings",
];
const LAST: &str = "face/end";

fn generated(root: &Path) -> String {
    let config =
        cbindgen::Config::from_file(root.join("cbindgen.toml")).expect("the configuration can be read");
    let sources = SOURCES.into_iter().chain([LAST]);
    let builder = sources.fold(cbindgen::Builder::new().with_config(config), |builder, file| {
        builder.with_src(root.join("src").join(file).with_extension("rs"))
    });
    let mut text = Vec::new();
    builder.generate().expect("the source can be read").write(&mut text);
    String::from_utf8(text).expect("the header is text")
}

#[test]
fn the_header_is_what_the_source_says() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let header = root.join("include/ptsan.h");
    let want = generated(root);
    if std::env::var_os("PTSAN_WRITE").is_some() {
        std::fs::write(&header, &want).expect("the header can be written");
    }
    let is = std::fs::read_to_string(&header).unwrap_or_default();
    let differs = is.lines().zip(want.lines()).position(|(a, b)| a != b);
    assert!(
        is == want,
        "include/ptsan.h is old, first at line {:?}; run with PTSAN_WRITE=1",
        differs.map(|line| line + 1)
    );
}

#[test]
fn every_exported_function_is_in_the_header() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let header = generated(root);
    let files = ["src", "src/face"].into_iter().flat_map(|directory| {
        std::fs::read_dir(root.join(directory))
            .expect("there is source")
            .map(|entry| entry.expect("a file").path())
    });
    let mut functions = 0;
    for file in files.filter(|path| path.is_file()) {
        let source = std::fs::read_to_string(&file).expect("source is text");
        for name in source.split("extern \"C\" fn ptsan_").skip(1) {
            let name = name.split('(').next().unwrap_or_default();
            assert!(header.contains(&format!("ptsan_{name}(")), "{}: add it to SOURCES", file.display());
            functions += 1;
        }
    }
    assert!(functions >= 60, "{functions} functions found in the source");
}
