//! Runs a server on Tokio with fewer buffers than connections, and clients that send at once:
//!
//! ```sh
//! cargo run --release -p ptarmigan-buffers --example tokio_echo
//! ```
use ptarmigan_buffers::{clients, tokio_echo};
use ptarmigan_pool::{PagePool, PoolConfig};
use std::sync::Arc;

const CONNECTIONS: usize = 200;
const PACKETS: usize = 100;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let page_size = 64 << 10;
    let pool = PagePool::new(PoolConfig { page_size, capacity: 8 * page_size, ..PoolConfig::default() })?;
    let pool = Arc::new(pool);
    let runtime = tokio_echo::runtime(2, &pool)?;
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))?;
    let server = listener.local_addr()?;
    let task = runtime.spawn(tokio_echo::serve(listener, pool.clone()));
    let bytes = clients::run(server, CONNECTIONS, PACKETS)?;
    task.abort();
    let stats = pool.stats();
    println!("{CONNECTIONS} connections, 8 buffers of 64 KiB: {bytes} bytes came back as they were sent");
    println!("buffers handed out {}, of these to tasks that waited {}", stats.allocs, stats.passed_on);
    Ok(())
}
