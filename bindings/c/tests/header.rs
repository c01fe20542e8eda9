//! The header equals the source. `PT_WRITE=1 cargo test -p ptarmigan-c --test header` writes it
//! anew.
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The files with items for C, in the order of the header.
const SOURCES: [&str; 20] = [
    "error",
    "arch",
    "hooks",
    "config",
    "machine",
    "cpu",
    "attr",
    "face/machine",
    "face/cpu",
    "face/quicklist",
    "face/page",
    "face/kmap",
    "face/tree",
    "face/large",
    "face/dirty",
    "face/space",
    "face/gather",
    "face/kernel",
    "face/counts",
    "face/text",
];

/// Copies the sources, with a pointer for each type of a parameter that stands for one, as C has
/// it: cbindgen would name such a type in the header. Returns the folder.
fn copies_with_plain_pointers(root: &Path) -> PathBuf {
    static COPIES: AtomicUsize = AtomicUsize::new(0);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!(
        "header-{}-{}",
        std::process::id(),
        COPIES.fetch_add(1, Relaxed)
    ));
    for file in SOURCES {
        let [from, to] = [&root.join("src"), &folder].map(|folder| folder.join(file).with_extension("rs"));
        let mut source = std::fs::read_to_string(from).expect("source is text");
        for (name, pointer) in [("ConstArg", "*const"), ("Arg", "*mut"), ("LastArg", "*mut"), ("Out", "*mut")]
        {
            while let Some((before, after)) = source.split_once(&format!(" {name}<'_, ")) {
                let (target, after) = after.split_once('>').expect("it is closed");
                source = format!("{before} {pointer} {target}{after}");
            }
        }
        std::fs::create_dir_all(to.parent().expect("a folder")).expect("the folder can be made");
        std::fs::write(to, source).expect("the copy can be written");
    }
    folder
}

fn generated(root: &Path) -> String {
    let config =
        cbindgen::Config::from_file(root.join("cbindgen.toml")).expect("the configuration can be read");
    let copies = copies_with_plain_pointers(root);
    let builder = SOURCES.into_iter().fold(cbindgen::Builder::new().with_config(config), |builder, file| {
        builder.with_src(copies.join(file).with_extension("rs"))
    });
    let mut text = Vec::new();
    builder.generate().expect("the source can be read").write(&mut text);
    std::fs::remove_dir_all(copies).expect("the copies can be removed");
    String::from_utf8(text).expect("the header is text")
}

#[test]
fn the_header_is_what_the_source_says() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let header = root.join("include/ptarmigan.h");
    let want = generated(root);
    if std::env::var_os("PT_WRITE").is_some() {
        std::fs::write(&header, &want).expect("the header can be written");
    }
    let is = std::fs::read_to_string(&header).unwrap_or_default();
    let differs = is.lines().zip(want.lines()).position(|(a, b)| a != b);
    assert!(
        is == want,
        "include/ptarmigan.h is old, first at line {:?}; run with PT_WRITE=1",
        differs.map(|line| line + 1)
    );
}

#[test]
fn every_exported_function_is_in_the_header_with_its_contract() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let header = generated(root);
    let mut functions = 0;
    for file in std::fs::read_dir(root.join("src/face")).expect("there is source") {
        let source = std::fs::read_to_string(file.expect("a file").path()).expect("source is text");
        for name in source.split("extern \"C\" fn pt_").skip(1) {
            let name = name.split('(').next().unwrap_or_default();
            let (before, _) = header.split_once(&format!("pt_{name}(")).expect("add its file to SOURCES");
            let comment = before.rsplit("\n\n").next().unwrap_or_default();
            assert_eq!(header.matches(&format!("pt_{name}(")).count(), 1, "pt_{name} is declared once");
            assert!(comment.contains("# Safety") || name == "error_text", "pt_{name}: {comment}");
            functions += 1;
        }
    }
    assert!(functions >= 30, "{functions} functions found in the source");
}
