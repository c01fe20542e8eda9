//! Wraps arbitrary rows in a trace with correct checksums, to test the reading of rows.
use ptarmigan_trace::{Header, Method, Writer};

/// Returns the header of a trace with four CPUs, `rows` compressed, and a trailer with zero counts.
pub fn rows(rows: &[u8]) -> Vec<u8> {
    let header = Header::new("wrapped", 4, Method::Synthetic);
    let (empty, _) = Writer::new(Vec::new(), &header, 1)
        .expect("a good header")
        .finish(0)
        .expect("memory takes everything");
    let body = usize::from(u16::from_le_bytes([empty[10], empty[11]]));
    let mut file = empty[..12 + body + 8].to_vec();
    file.extend(zstd::encode_all(rows, 1).expect("memory takes everything"));
    let mut trailer = empty[empty.len() - 184..].to_vec();
    trailer[160..168].copy_from_slice(&(rows.len() as u64).to_le_bytes());
    let sum = xxhash_rust::xxh3::xxh3_64(&file);
    trailer[168..176].copy_from_slice(&sum.to_le_bytes());
    let sum = xxhash_rust::xxh3::xxh3_64(&trailer[..176]);
    trailer[176..].copy_from_slice(&sum.to_le_bytes());
    file.extend(trailer);
    file
}
