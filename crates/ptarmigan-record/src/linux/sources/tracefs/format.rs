//! Offsets of a tracepoint's fields, from the `format` file of the kernel.
use std::collections::HashMap;

/// The offset and size of a field, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Field {
    offset: usize,
    size: usize,
}

impl Field {
    /// Returns the value, zero-extended, or `None` if the record is too short or the field is not a
    /// number.
    pub(super) fn get(self, record: &[u8]) -> Option<u64> {
        let bytes = record.get(self.offset..self.offset.checked_add(self.size)?)?;
        Some(match *bytes {
            [a] => u64::from(a),
            [a, b] => u64::from(u16::from_le_bytes([a, b])),
            [a, b, c, d] => u64::from(u32::from_le_bytes([a, b, c, d])),
            [a, b, c, d, e, f, g, h] => u64::from_le_bytes([a, b, c, d, e, f, g, h]),
            _ => return None,
        })
    }

    /// Returns whether the field has the size of a number.
    pub(super) fn is_number(self) -> bool {
        matches!(self.size, 1 | 2 | 4 | 8)
    }

    /// Returns the offset.
    pub(super) fn offset(self) -> usize {
        self.offset
    }
}

/// A parsed `format` file.
#[derive(Debug, Default)]
pub(super) struct TracepointFormat {
    pub(super) id: u16,
    fields: HashMap<String, Field>,
}

impl TracepointFormat {
    /// Parses a `format` file, or `events/header_page`, which contains fields only.
    pub(super) fn parse(text: &str) -> Self {
        let mut format = Self::default();
        for line in text.lines() {
            let line = line.trim();
            if let Some(id) = line.strip_prefix("ID:") {
                format.id = id.trim().parse().unwrap_or(0);
            }
            let Some(field) = line.strip_prefix("field:") else { continue };
            let mut parts = field.split(';').map(str::trim);
            let Some(name) = parts.next().and_then(|d| d.split_ascii_whitespace().last()) else { continue };
            let mut number = |key: &str| {
                parts
                    .next()
                    .and_then(|p| p.strip_prefix(key)?.strip_prefix(':')?.trim().parse::<usize>().ok())
            };
            if let (Some(offset), Some(size)) = (number("offset"), number("size")) {
                format.fields.insert(name.to_owned(), Field { offset, size });
            }
        }
        format
    }

    pub(super) fn field(&self, name: &str) -> Option<Field> {
        self.fields.get(name).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_file() {
        let f = TracepointFormat::parse(
            "name: task_newtask\nID: 205\nformat:\n\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
             \tfield:u64 clone_flags;\toffset:32;\tsize:8;\tsigned:0;\n\tfield:char comm[16];\toffset:12;\tsize:16;\n\
             print fmt: \"field: x; offset:1; size:1\"\n",
        );
        assert_eq!(f.id, 205);
        assert_eq!(f.field("clone_flags"), Some(Field { offset: 32, size: 8 }));
        let mut record = vec![0; 40];
        record[4] = 7;
        assert_eq!(f.field("common_pid").and_then(|x| x.get(&record)), Some(7));
        assert_eq!(f.field("comm[16]").and_then(|x| x.get(&record)), None);
        assert_eq!(f.field("clone_flags").and_then(|x| x.get(&record[..39])), None);
        assert!(f.field("absent").is_none());
    }
}
