//! Both servers send every packet back, with fewer buffers than connections, and every buffer is
//! zero and back in its pool afterwards.
use io_uring::{IoUring, opcode, types};
use ptarmigan_buffers::uring_echo::Server;
use ptarmigan_buffers::{clients, tokio_echo};
use ptarmigan_pool::{PagePool, PoolConfig};
use std::io::Write;
use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::sync::Arc;

const PAGE: usize = 64 << 10;

fn pool(pages: usize) -> Arc<PagePool> {
    let config = PoolConfig { page_size: PAGE, capacity: pages * PAGE, ..PoolConfig::default() };
    Arc::new(PagePool::new(config).expect("the host has that much address space"))
}

/// All pages of a pool are back and zero.
fn check(pool: &PagePool, pages: usize) {
    let all: Vec<_> = (0..pages).map(|_| pool.page().expect("all are back")).collect();
    assert!(all.iter().all(|page| page.iter().all(|b| *b == 0)));
}

#[test]
fn tasks_of_tokio_wait_for_buffers_and_all_get_one() {
    for (pages, workers) in [(1, 1), (2, 2), (6, 3)] {
        let pool = pool(pages);
        let runtime = tokio_echo::runtime(workers, &pool).expect("the host has threads");
        let listener =
            runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).expect("a port is free");
        let server = listener.local_addr().expect("it is bound");
        drop(runtime.spawn(tokio_echo::serve(listener, pool.clone())));
        let bytes = clients::run(server, 40, 40).expect("the server answers");
        assert!(bytes > 40 * 40);
        assert!(pool.stats().passed_on > 0, "{:?}", pool.stats());
        drop(runtime);
        check(&pool, pages);
    }
}

#[test]
fn operations_of_io_uring_own_their_buffers_and_give_them_back() {
    let pool = pool(3);
    let server = match Server::new(&pool) {
        Ok(server) => server,
        Err(error) => return eprintln!("left out, as the host refuses io_uring: {error}"),
    };
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    let clients = std::thread::spawn(move || clients::run(address, 10, 50));
    let counts = server.serve(&listener, 10).expect("the ring works");
    let bytes = clients.join().expect("they do not panic").expect("the server answers");
    assert_eq!(counts.bytes, bytes);
    assert!(counts.waits > 0);
    assert_eq!(pool.stats().returned, 0, "no memory goes back while it is registered");
    check(&pool, 3);
    assert!(pool.stats().returned > 0, "the region is gone");
}

#[test]
fn a_ring_closed_under_way_leaves_its_buffer_to_the_kernel() {
    let pool = pool(3);
    let Ok(mut ring) = IoUring::new(4) else { return };
    let (silent, mut peer) = std::os::unix::net::UnixStream::pair().expect("the host has sockets");
    let raw = pool.arc_page().expect("3 fit").into_raw_prefix(100);
    let buffer = raw.buffer();
    let read = opcode::Read::new(types::Fd(silent.as_raw_fd()), buffer.cast().as_ptr(), buffer.len() as u32);
    // SAFETY: the page is raw, and is never made a page again; the socket is open until the end.
    unsafe { ring.submission().push(&read.build()) }.expect("the ring is empty");
    ring.submit().expect("the ring takes it");
    drop((ring, raw));
    // The operation may be cancelled or complete: no page of the pool is hit.
    peer.write_all(&[7; 100]).expect("the socket is open");
    let others: Vec<_> = (0..2).map(|_| pool.page().expect("2 are left")).collect();
    assert!(pool.page().is_err(), "the kernel has the third");
    assert!(others.iter().all(|page| page.raw().base() != buffer.cast() && page.iter().all(|b| *b == 0)));
    drop(others);
    assert_eq!(Arc::strong_count(&pool), 2, "its share stays");
}
