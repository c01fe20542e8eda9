//! `--arch`, with the built program: of every machine, and of those that a build lacks.
use crate::program::{MORE, ptarmigan};

#[cfg(feature = "formats")]
#[test]
fn holt_s_program_runs_on_every_machine() {
    for arch in ["i386-pae"].iter().chain(&MORE) {
        let doc = ptarmigan(&["holt", "--arch", arch, "--rounds", "1", "--json"]).json();
        assert_eq!((&doc["bench"], &doc["arch"]), (&"holt".into(), &(*arch).into()));
        let rows = doc["rows"].as_array().expect("rows");
        assert_eq!(rows.len(), 4, "{arch}: {doc}");
        assert!(rows.iter().all(|row| row["value"].as_f64() > Some(0.0)), "{arch}: {doc}");
    }
}

#[cfg(not(feature = "formats"))]
#[test]
fn a_machine_missing_in_the_build_is_refused_with_a_remedy() {
    for arch in ["i386-pae"].iter().chain(&MORE) {
        let ran = ptarmigan(&["holt", "--arch", arch]);
        assert_eq!((ran.status, ran.out.as_str(), ran.err.lines().count()), (Some(1), "", 1), "{}", ran.err);
        assert!(ran.err.contains(&format!("--arch {arch}: this build has no such machine")), "{}", ran.err);
    }
}
