//! A server on io_uring: all pages of the pool are one registered buffer, and an operation owns its
//! page until its completion was seen.
use crate::clients::PACKET;
use io_uring::{IoUring, opcode, squeue, types};
use ptarmigan_pool::{ArcPage, ArcRegion, PagePool, PoolError, RawArcPage};
use std::collections::VecDeque;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;

/// The number of the registered buffer: one for all pages.
const BUFFER: u16 = 0;

/// A connection, and the operation that it waits for.
struct Connection {
    socket: TcpStream,
    state: State,
}

enum State {
    /// It waits for a page.
    Idle,
    /// The kernel writes to the page.
    Receiving(RawArcPage),
    /// The kernel reads the page: bytes that are sent already, and bytes in all.
    Sending(RawArcPage, usize, usize),
    Closed,
}

/// Counts of a run.
#[derive(Debug, Default)]
pub struct Counts {
    /// Bytes that were sent back.
    pub bytes: usize,
    /// Connections that had to wait for a page.
    pub waits: usize,
}

/// A server and its ring.
pub struct Server {
    // Before `region`: the kernel forgets the buffer when the ring is closed.
    ring: IoUring,
    /// Keeps the pages where the kernel knows them.
    region: ArcRegion,
    pool: Arc<PagePool>,
    connections: Vec<Connection>,
    /// Connections without a page, in the order in which they get one.
    waiting: VecDeque<usize>,
    counts: Counts,
}

impl Server {
    /// Makes a ring and registers the pages of `pool` with it.
    ///
    /// # Errors
    ///
    /// The host's, if it does not allow io_uring or locks no more memory (`RLIMIT_MEMLOCK`);
    /// [`io::ErrorKind::Other`] if the pool is another process's.
    pub fn new(pool: &Arc<PagePool>) -> io::Result<Self> {
        let ring = IoUring::new(64)?;
        let region = pool.arc_region().map_err(io::Error::other)?;
        let iovec = libc::iovec { iov_base: region.base().as_ptr().cast(), iov_len: region.len() };
        // SAFETY: the region keeps the memory there for as long as the ring exists.
        unsafe { ring.submitter().register_buffers(&[iovec])? };
        let (connections, waiting) = (Vec::new(), VecDeque::new());
        Ok(Server { ring, region, pool: pool.clone(), connections, waiting, counts: Counts::default() })
    }

    /// Accepts `n` connections and serves them until all have ended.
    ///
    /// # Errors
    ///
    /// The listener's or the ring's. An error of a connection ends that connection.
    pub fn serve(mut self, listener: &TcpListener, n: usize) -> io::Result<Counts> {
        for _ in 0..n {
            let socket = listener.accept()?.0;
            self.waiting.push_back(self.connections.len());
            self.connections.push(Connection { socket, state: State::Idle });
        }
        let mut open = n;
        while open > 0 {
            self.receive_where_there_is_a_page()?;
            self.ring.submit_and_wait(1)?;
            let done: Vec<_> = self.ring.completion().map(|c| (c.user_data(), c.result())).collect();
            for (who, result) in done {
                open -= usize::from(self.completed(who as usize, result)?);
            }
        }
        self.ring.submitter().unregister_buffers()?;
        debug_assert!(self.region.len() > 0);
        Ok(self.counts)
    }

    /// Connections that wait get a page and receive into it, as long as there are pages.
    fn receive_where_there_is_a_page(&mut self) -> io::Result<()> {
        while let Some(&who) = self.waiting.front() {
            let page = match self.pool.arc_page() {
                Ok(page) => page,
                // A completion brings one.
                Err(PoolError::Full { .. }) => return Ok(()),
                Err(error) => return Err(io::Error::other(error)),
            };
            self.waiting.pop_front();
            self.receive(who, page)?;
        }
        Ok(())
    }

    /// Begins to receive a packet into a page.
    fn receive(&mut self, who: usize, page: ArcPage) -> io::Result<()> {
        let raw = page.into_raw_prefix(PACKET);
        let fd = types::Fd(self.connections[who].socket.as_raw_fd());
        let buffer = raw.buffer();
        let read = opcode::ReadFixed::new(fd, buffer.cast().as_ptr(), buffer.len() as u32, BUFFER);
        self.connections[who].state = State::Receiving(raw);
        self.push(read.build().user_data(who as u64))
    }

    /// Begins to send the bytes `from..to` of a page.
    fn send(&mut self, who: usize, raw: RawArcPage, from: usize, to: usize) -> io::Result<()> {
        let fd = types::Fd(self.connections[who].socket.as_raw_fd());
        let at = raw.buffer().cast::<u8>().as_ptr().wrapping_add(from);
        let write = opcode::WriteFixed::new(fd, at, (to - from) as u32, BUFFER);
        self.connections[who].state = State::Sending(raw, from, to);
        self.push(write.build().user_data(who as u64))
    }

    fn push(&mut self, entry: squeue::Entry) -> io::Result<()> {
        // SAFETY: its page is raw, and is kept by the connection's state until the completion was
        // seen; if the server ends before, it leaks. Its socket is open until then.
        while unsafe { self.ring.submission().push(&entry) }.is_err() {
            self.ring.submit()?;
        }
        Ok(())
    }

    /// An operation has ended. Returns whether its connection has, too.
    fn completed(&mut self, who: usize, result: i32) -> io::Result<bool> {
        match std::mem::replace(&mut self.connections[who].state, State::Closed) {
            State::Receiving(raw) if result > 0 => self.send(who, raw, 0, result as usize)?,
            State::Sending(raw, from, to) if result > 0 && from + (result as usize) < to => {
                self.counts.bytes += result as usize;
                self.send(who, raw, from + result as usize, to)?;
            }
            State::Sending(raw, ..) if result > 0 => {
                self.counts.bytes += result as usize;
                // SAFETY: 1. its last operation has ended. 2. the kernel wrote to the buffer only.
                let page = unsafe { raw.into_page() };
                // The next in line gets a page first, if one waits.
                drop(page);
                self.counts.waits += usize::from(!self.waiting.is_empty());
                self.connections[who].state = State::Idle;
                self.waiting.push_back(who);
            }
            State::Receiving(raw) | State::Sending(raw, ..) => {
                // SAFETY: as above.
                drop(unsafe { raw.into_page() });
                return Ok(true);
            }
            State::Idle | State::Closed => {}
        }
        Ok(false)
    }
}
