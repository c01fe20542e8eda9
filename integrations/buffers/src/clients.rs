//! Sends packets to a server and compares them with those that come back.
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};

/// Bytes in a packet, at the most.
pub const PACKET: usize = 1500;

/// Opens `connections` connections, keeps all of them open, and has each send `packets` packets of
/// up to [`PACKET`] bytes, with another content each. Returns the number of bytes that came back.
///
/// # Errors
///
/// The socket's error, or [`io::ErrorKind::InvalidData`] if other bytes come back.
pub fn run(server: SocketAddr, connections: usize, packets: usize) -> io::Result<usize> {
    let mut open = Vec::new();
    for _ in 0..connections {
        open.push(TcpStream::connect(server)?);
    }
    let mut bytes = 0;
    let mut back = vec![0; PACKET];
    for packet in 0..packets {
        let len = |n: usize| 1 + (packet * 577 + n * 31) % PACKET;
        let content = |n: usize| vec![(packet + n) as u8; len(n)];
        // All at once, so that the server needs more buffers than it has.
        for (n, socket) in open.iter_mut().enumerate() {
            socket.write_all(&content(n))?;
        }
        for (n, socket) in open.iter_mut().enumerate() {
            let back = &mut back[..len(n)];
            socket.read_exact(back)?;
            if *back != content(n) {
                let text = format!("packet {packet} of connection {n} came back with other bytes");
                return Err(io::Error::new(io::ErrorKind::InvalidData, text));
            }
            bytes += back.len();
        }
    }
    Ok(bytes)
}
