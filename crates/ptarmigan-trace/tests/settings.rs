//! Settings of the recorded machine: written first and once, and refused otherwise.
#[allow(dead_code)] // Other tests take traces apart.
#[path = "harness/forge.rs"]
mod forge;

use forge::Parts;
use ptarmigan_trace::{Event, Header, Kind, MAX_TEXT, Method, ReadError, Reader, Settings, Writer};

fn writer() -> Writer<Vec<u8>> {
    Writer::new(Vec::new(), &Header::new("settings", 1, Method::Synthetic), 3).expect("a good header")
}

fn read(bytes: &[u8]) -> Result<Vec<Event>, ReadError> {
    Reader::new(bytes)?.collect()
}

#[test]
fn settings_come_first_and_once() {
    let mut w = writer();
    w.setting("enabled", "always").expect("a good setting");
    let value = "x".repeat(MAX_TEXT);
    w.setting("boot", &value).expect("as long as a text may be");
    for (name, bad) in [("", "a"), ("a", ""), ("enabled", "never"), ("cwd", "/root"), ("a\n", "a")] {
        assert!(w.setting(name, bad).is_err(), "{name:?} {bad:?}");
    }
    w.event(&Event { task: 0, cpu: 0, kind: Kind::Brk { end: 1 } }).expect("a good event");
    assert!(w.setting("late", "1").is_err(), "an event came before");
    let (bytes, _) = w.finish(0).expect("memory takes everything");
    let mut reader = Reader::new(&bytes[..]).expect("a header");
    assert!(reader.by_ref().all(|event| event.is_ok()));
    let mut expected = Settings::default();
    expected.add("enabled", "always").expect("a good setting");
    expected.add("boot", &value).expect("a good setting");
    assert_eq!(reader.settings(), &expected);
}

#[test]
fn forged_settings_are_refused() {
    let text = |text: &[u8]| [&[14, 11, text.len() as u8], text].concat();
    let (a, b, path) = (text(b"a"), text(b"b"), text(b"/b"));
    let rows: [(&str, Vec<u8>); 8] = [
        ("without a name", [&a[..], &[14, 19, 0, 1]].concat()),
        ("without a value", [&a[..], &[14, 19, 1, 0]].concat()),
        ("does not exist", [&a[..], &[14, 19, 1, 2]].concat()),
        ("there already", [&a[..], &b, &[14, 19, 1, 2], &[14, 19, 1, 1]].concat()),
        ("with a path", [&a[..], &path, &[14, 19, 1, 2]].concat()),
        ("behind another event", [&a[..], &[7, 2], &[14, 19, 1, 1]].concat()),
        ("an unknown reason", vec![14, 20, 0, 9]),
        ("a name with a path", [&path[..], &[14, 20, 1, 0]].concat()),
    ];
    for (what, mut rows) in rows {
        rows.push(15);
        let forged = Parts::new(&Header::new("settings", 1, Method::Synthetic), &rows).trace();
        let error = read(&forged).expect_err(what).to_string();
        assert!(error.contains(what), "{what}: {error}");
    }
}
