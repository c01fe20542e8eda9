//! Decodes records of tracepoints, as the kernel's `format` files describe them.
use super::format::{Field, TracepointFormat};
use super::points::{self, Point};
use super::ring::PageLayout;
use crate::linux::raw::{Raw, RawKind};
use std::collections::HashMap;
use std::io;

/// How a record is decoded.
#[derive(Clone, Debug)]
struct RecordReading {
    event: String,
    point: Point,
    fields: Vec<Field>,
}

/// Decodes ring-buffer records into raw events.
#[derive(Clone, Debug)]
pub(crate) struct Decoder {
    pub(super) layout: PageLayout,
    kind: Field,
    pid: Field,
    readings: HashMap<u16, RecordReading>,
}

impl Decoder {
    /// Reads the formats. `read` returns the text of a file below `events`; `sub_buffer` is the
    /// size of a page of the buffers, in bytes. Tracepoints that a recording can do without are
    /// left out if they are missing, or have other fields than it needs.
    ///
    /// # Errors
    /// The missing field or tracepoint, in words.
    pub(super) fn new(read: impl Fn(&str) -> io::Result<String>, sub_buffer: usize) -> Result<Self, String> {
        let page = read("header_page").map_err(|e| format!("events/header_page: {e}"))?;
        let layout = PageLayout::new(&page, sub_buffer)
            .ok_or("this kernel's buffers (events/header_page) are not of the known form")?;
        let (mut common, mut readings) = (None, HashMap::new());
        for (event, point, _, fields) in points::wanted() {
            match reading(&read, &event, point, fields) {
                Ok((id, reading, all)) => {
                    common = common.or(all);
                    readings.insert(id, reading);
                }
                Err(why) if points::required(point) => return Err(why),
                Err(_) => {}
            }
        }
        let (kind, pid) = common.ok_or("this kernel's tracepoints have no common_type or common_pid")?;
        Ok(Self { layout, kind, pid, readings })
    }

    /// Returns whether the records of a group are decoded.
    pub(super) fn has(&self, point: Point) -> bool {
        self.readings.values().any(|reading| reading.point == point)
    }

    /// Returns whether a tracepoint is decoded.
    pub(super) fn reads(&self, event: &str) -> bool {
        self.readings.values().any(|reading| reading.event == event)
    }

    /// Leaves out a tracepoint.
    pub(super) fn forget(&mut self, event: &str) {
        self.readings.retain(|_, reading| reading.event != event);
    }

    /// Decodes one record. `None` if it is of no known tracepoint, or too short.
    pub(super) fn record(&self, time: u64, cpu: u16, record: &[u8]) -> Option<Raw> {
        let reading = self.readings.get(&(self.kind.get(record)? as u16))?;
        let pid = self.pid.get(record)? as i32;
        let f = |i: usize| reading.fields.get(i).and_then(|f| f.get(record));
        let what = match reading.point {
            // Bit 3 of the error code, a reserved bit in a table, is ours to use.
            Point::Fault => RawKind::Fault { address: f(0)?, code: f(1)? & 0x17 },
            Point::Clone => RawKind::Clone { child: f(0)? as i32, flags: f(1)? },
            Point::ExecStart => RawKind::ExecStart,
            Point::ExecDone => RawKind::ExecDone { old: f(0)? as i32 },
            Point::Exit => RawKind::Exit,
            Point::Enter(call) => {
                let mut args = [0; 5];
                for (i, arg) in args.iter_mut().enumerate() {
                    *arg = f(i).unwrap_or(0);
                }
                RawKind::Enter { call, args }
            }
            Point::Leave => RawKind::Leave { result: f(0)? as i64 },
            Point::Locked if f(1)? == 0 => RawKind::NotLocked,
            Point::Locked if f(0)? == 0 => RawKind::LockedToRead,
            Point::Locked => RawKind::Locked,
            Point::Released => RawKind::Released,
            Point::Refused => RawKind::Refused,
            Point::BadAddress => RawKind::BadAddress,
            Point::TlbFlush => {
                RawKind::TlbFlush { reason: u8::try_from(f(0)?).unwrap_or(u8::MAX), pages: f(1)? }
            }
            Point::Switch => RawKind::Switch { next: f(0)? as i32, state: f(1)? as u32 },
            Point::Wake => RawKind::Wake { woken: f(0)? as i32 },
            Point::Begin(call) => RawKind::Begin { call },
            Point::End => RawKind::End { result: f(0)? as i64 },
        };
        Some(Raw { time, cpu, pid, what })
    }
}

/// Type of the record and number of the task, which all records have.
type Common = (Field, Field);

/// Reads the format of one tracepoint: its number, how its records are decoded, and the fields that
/// all records have.
fn reading(
    read: impl Fn(&str) -> io::Result<String>,
    event: &str,
    point: Point,
    fields: &[&str],
) -> Result<(u16, RecordReading, Option<Common>), String> {
    let text = read(&format!("{event}/format")).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => format!("this kernel has no tracepoint {event}"),
        _ => format!("tracepoint {event}: {e}"),
    })?;
    let format = TracepointFormat::parse(&text);
    if format.id == 0 {
        return Err(format!("this kernel's tracepoint {event} has no number"));
    }
    let number = |name: &str| format.field(name).filter(|field| field.is_number());
    let fields = fields
        .iter()
        .map(|name| number(name).ok_or(format!("this kernel's tracepoint {event} has no number {name}")))
        .collect::<Result<_, _>>()?;
    let common = number("common_type").zip(number("common_pid"));
    Ok((format.id, RecordReading { event: event.to_owned(), point, fields }, common))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "field: u64 timestamp; offset:0; size:8;\nfield: local_t commit; offset:8; size:8;\n\
        field: char data; offset:16; size:4080;\n";

    /// The formats of a kernel whose records begin with `first`, an unknown field of four bytes,
    /// and have their fields in the order of their names. `change` may change the text of a file.
    fn kernel(change: impl Fn(&str, String) -> Option<String>) -> impl Fn(&str) -> io::Result<String> {
        move |file| {
            let text = if file == "header_page" {
                PAGE.to_owned()
            } else {
                let all = points::wanted();
                let n = all.iter().position(|(event, ..)| file == format!("{event}/format"));
                let n = n.ok_or(io::ErrorKind::NotFound)?;
                let mut text = format!(
                    "name: x\nID: {}\nformat:\n\tfield:u32 first; offset:0; size:4;\n\
                     \tfield:int common_pid; offset:4; size:4;\n\
                     \tfield:unsigned short common_type; offset:8; size:2;\n",
                    n + 1
                );
                let mut fields = all[n].3.to_vec();
                fields.sort_unstable();
                for (n, field) in fields.iter().enumerate() {
                    text += &format!("\tfield:unsigned long {field}; offset:{}; size:8;\n", 16 + 8 * n);
                }
                text
            };
            change(file, text).ok_or(io::ErrorKind::NotFound.into())
        }
    }

    /// A record of tracepoint `event` by task 77, with these fields of eight bytes.
    fn record(event: &str, fields: &[u64]) -> Vec<u8> {
        let id = points::wanted().iter().position(|(name, ..)| name == event).expect("it is wanted") + 1;
        let mut bytes = vec![0xee; 4];
        bytes.extend(77u32.to_le_bytes());
        bytes.extend((id as u16).to_le_bytes());
        bytes.resize(16, 0xee);
        bytes.extend(fields.iter().flat_map(|field| field.to_le_bytes()));
        bytes
    }

    #[test]
    fn fields_are_found_wherever_a_kernel_has_them() {
        let decoder = Decoder::new(kernel(|_, text| Some(text)), 4096).expect("a kernel");
        let decode = |event, fields: &[u64]| {
            let raw = decoder.record(5, 1, &record(event, fields)).expect("a record");
            assert_eq!((raw.time, raw.cpu, raw.pid), (5, 1, 77));
            raw.what
        };
        let address = 0x1234_5678_9abc;
        assert_eq!(decode("exceptions/page_fault_user", &[address, 6]), RawKind::Fault { address, code: 6 });
        // In the order of their names: flags before the number of the child.
        assert_eq!(decode("task/task_newtask", &[0x100, 9]), RawKind::Clone { child: 9, flags: 0x100 });
        assert_eq!(decode("tlb/tlb_flush", &[33, 4]), RawKind::TlbFlush { reason: 4, pages: 33 });
        let short = record("task/task_newtask", &[0x100]);
        assert_eq!(decoder.record(5, 1, &short), None, "too short");
        assert_eq!(decoder.record(5, 1, &[]), None);
        let mut unknown = record("task/task_newtask", &[1, 2]);
        unknown[8..10].copy_from_slice(&9999u16.to_le_bytes());
        assert_eq!(decoder.record(5, 1, &unknown), None, "of no known tracepoint");
    }

    #[test]
    fn an_unknown_kernel_is_told_what_it_lacks() {
        let lacks = |event: &'static str, from: &'static str, to: &'static str| {
            let change = move |file: &str, text: String| {
                Some(if file == format!("{event}/format") { text.replace(from, to) } else { text })
            };
            Decoder::new(kernel(change), 4096).err()
        };
        let user = "exceptions/page_fault_user";
        let no_address = format!("this kernel's tracepoint {user} has no number address");
        assert_eq!(lacks(user, "address", "ip"), Some(no_address.clone()));
        // An array is not a number, and neither are three bytes.
        assert_eq!(
            lacks(user, "address; offset:16; size:8", "address; offset:16; size:16"),
            Some(no_address.clone())
        );
        assert_eq!(
            lacks(user, "address; offset:16; size:8", "address; offset:16; size:3"),
            Some(no_address.clone())
        );
        assert_eq!(lacks(user, "offset:16", "offset:99999999999999999999"), Some(no_address));
        assert!(lacks(user, "ID: 1\n", "").is_some_and(|why| why.contains("has no number")));
        let gone = |file: &str, text: String| (file != "sched/sched_prepare_exec/format").then_some(text);
        assert_eq!(
            Decoder::new(kernel(gone), 4096).err().as_deref(),
            Some("this kernel has no tracepoint sched/sched_prepare_exec")
        );
        let common = |_: &str, text: String| Some(text.replace("common_pid", "common_tgid"));
        assert!(Decoder::new(kernel(common), 4096).is_err_and(|why| why.contains("common_pid")));
        for (file, text) in
            [("header_page", None), ("header_page", Some("")), ("header_page", Some("field:x;"))]
        {
            let change = |f: &str, old: String| if f == file { text.map(str::to_owned) } else { Some(old) };
            assert!(Decoder::new(kernel(change), 4096).is_err_and(|why| why.contains("header_page")));
        }
    }

    #[test]
    fn what_a_recording_can_do_without_is_left_out() {
        for (event, point, _, fields) in points::wanted() {
            if points::required(point) {
                continue;
            }
            let missing = |file: &str, text: String| (!file.starts_with(&event)).then_some(text);
            let decoder = Decoder::new(kernel(missing), 4096).expect("it can do without");
            assert!(!decoder.reads(&event) && decoder.reads("exceptions/page_fault_user"), "{event}");
            for field in fields {
                let renamed = |file: &str, text: String| {
                    Some(if file.starts_with(&event) { text.replace(field, "other") } else { text })
                };
                let decoder = Decoder::new(kernel(renamed), 4096).expect("it can do without");
                assert!(!decoder.reads(&event), "{event} without {field}");
            }
        }
    }

    #[test]
    fn any_format_file_is_read_or_refused() {
        // Bytes of the formats change, and the resulting decoder gets records of any bytes.
        let mut state = 0x1234_5678_9abc_def1_u64;
        let mut random = move |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state % below as u64) as usize
        };
        let mut decoded = 0;
        for _ in 0..300 {
            let (at, byte) = (random(120), random(128) as u8);
            let change = |_: &str, text: String| {
                let mut bytes = text.into_bytes();
                if let Some(b) = bytes.get_mut(at) {
                    *b = byte;
                }
                String::from_utf8(bytes).ok()
            };
            let Ok(decoder) = Decoder::new(kernel(change), 4096) else { continue };
            for _ in 0..50 {
                let bytes: Vec<u8> = (0..random(64)).map(|_| random(40) as u8).collect();
                decoded += usize::from(decoder.record(0, 0, &bytes).is_some());
            }
        }
        assert!(decoded > 0, "some records have a meaning");
    }
}
