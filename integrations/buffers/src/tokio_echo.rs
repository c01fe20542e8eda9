//! A server on Tokio: a connection has a buffer only while it has data, and waits for one while all
//! are out.
use crate::clients::PACKET;
use ptarmigan_pool::PagePool;
use std::io;
use std::sync::Arc;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};

/// Makes a runtime for users of `pool`: a worker that is about to sleep hands over the pages in its
/// magazines, so that tasks of other workers need not wait for them.
///
/// # Errors
///
/// The host's, if it has no threads.
pub fn runtime(workers: usize, pool: &Arc<PagePool>) -> io::Result<Runtime> {
    let pool = pool.clone();
    Builder::new_multi_thread()
        .worker_threads(workers)
        .enable_io()
        .on_thread_park(move || pool.hand_over())
        .build()
}

/// Serves connections until the future is dropped.
///
/// # Errors
///
/// The listener's.
pub async fn serve(listener: TcpListener, pool: Arc<PagePool>) -> io::Result<()> {
    loop {
        let (socket, _) = listener.accept().await?;
        let pool = pool.clone();
        tokio::spawn(async move {
            if let Err(error) = echo(socket, &pool).await {
                eprintln!("a connection ends: {error}");
            }
        });
    }
}

/// Sends all packets of a connection back, until it ends.
async fn echo(mut socket: TcpStream, pool: &Arc<PagePool>) -> io::Result<()> {
    loop {
        // Not a buffer first: a connection that is silent needs none.
        socket.readable().await?;
        // Back-pressure: while all buffers are out, the client's data waits in its socket.
        let mut page = pool.arc_acquire().await.map_err(io::Error::other)?;
        // As much as is lent is cleared when the page goes back: a packet, not the whole page.
        let n = match socket.try_read(page.prefix_mut(PACKET)) {
            Ok(0) => return Ok(()),
            Ok(n) => n,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) => return Err(error),
        };
        // Here is the work with the packet, which may wait; the buffer is out meanwhile.
        tokio::task::yield_now().await;
        socket.write_all(&page[..n]).await?;
    }
}
