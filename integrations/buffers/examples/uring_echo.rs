//! Runs a server on io_uring with registered buffers, fewer than connections:
//!
//! ```sh
//! cargo run --release -p ptarmigan-buffers --example uring_echo
//! ```
use ptarmigan_buffers::{clients, uring_echo::Server};
use ptarmigan_pool::{PagePool, PoolConfig};
use std::net::TcpListener;
use std::sync::Arc;

const CONNECTIONS: usize = 40;
const PACKETS: usize = 200;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let page_size = 64 << 10;
    let pool = PagePool::new(PoolConfig { page_size, capacity: 8 * page_size, ..PoolConfig::default() })?;
    let pool = Arc::new(pool);
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let server = Server::new(&pool).map_err(|e| format!("io_uring with registered buffers: {e}"))?;
    let clients = std::thread::spawn(move || clients::run(address, CONNECTIONS, PACKETS));
    let counts = server.serve(&listener, CONNECTIONS)?;
    let bytes = clients.join().map_err(|_| "the clients panicked")??;
    println!(
        "{CONNECTIONS} connections, 8 registered buffers of 64 KiB: {bytes} bytes came back as they were sent"
    );
    println!("{} times another connection was waiting for a buffer", counts.waits);
    Ok(())
}
