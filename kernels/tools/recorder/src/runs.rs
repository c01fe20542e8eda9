//! Consecutive stores of one instruction, as few records.

use ptsan_log::Record;

/// Bytes of a word.
const WORD: u64 = 8;

/// Returns records of stores that leave `bytes` at `phys`. Words that are alike become one.
pub fn stores(mut phys: u64, mut bytes: &[u8]) -> Vec<Record<'static>> {
    let word = |bytes: &[u8]| bytes.first_chunk().map(|word| u64::from_le_bytes(*word));
    let mut records = Vec::new();
    while !bytes.is_empty() {
        let (record, used) = match word(bytes).filter(|_| phys.is_multiple_of(WORD)) {
            Some(value) => {
                let alike = bytes.chunks(8).take_while(|chunk| word(chunk) == Some(value)).count() as u64;
                let used = alike * WORD;
                match alike {
                    1 => (Record::Store { phys, value, bytes: 8 }, used),
                    _ => (Record::Fill { phys, bytes: used, value }, used),
                }
            }
            None => {
                let fits = |n: &u64| phys.is_multiple_of(*n) && *n <= bytes.len() as u64;
                let size = [4, 2, 1].into_iter().find(fits).unwrap_or(1);
                let value =
                    bytes[..size as usize].iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte));
                (Record::Store { phys, value, bytes: size as u8 }, size)
            }
        };
        records.push(record);
        phys += used;
        bytes = &bytes[used as usize..];
    }
    records
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_of_stores_becomes_few_records_with_the_same_bytes() {
        let mut bytes = vec![0; 4096];
        bytes[4095] = 7;
        assert_eq!(
            stores(0x1000, &bytes),
            [
                Record::Fill { phys: 0x1000, bytes: 4088, value: 0 },
                Record::Store { phys: 0x1ff8, value: 7 << 56, bytes: 8 },
            ]
        );
        for (start, end) in (0..24).flat_map(|start| (start..40).map(move |end| (start, end))) {
            let bytes: Vec<u8> = (start..end).map(|n| (n / 16) as u8).collect();
            let mut memory = [0xff; 48];
            for record in stores(start, &bytes) {
                match record {
                    Record::Store { phys, value, bytes } => memory[phys as usize..][..bytes.into()]
                        .copy_from_slice(&value.to_le_bytes()[..bytes.into()]),
                    Record::Fill { phys, bytes, value } => memory[phys as usize..][..bytes as usize]
                        .chunks_mut(8)
                        .for_each(|word| word.copy_from_slice(&value.to_le_bytes())),
                    other => panic!("{other:?}"),
                }
            }
            assert_eq!(memory[start as usize..end as usize], bytes, "{start}..{end}");
            assert!(memory[..start as usize].iter().chain(&memory[end as usize..]).all(|b| *b == 0xff));
        }
    }
}
