//! The console: makes lines of typed bytes, as a terminal does.

use crate::arch::Arch;
use crate::signal::{SignalInfo, number};
use crate::task::Wait;
use crate::{Kernel, State};

const LINE: usize = 256;
const READY: usize = 1024;
/// The key that ends a file, or a line without a newline.
const END: u8 = 4;
/// The same among bytes that are ready.
const MARK: u16 = 1 << 8;

/// `c_iflag`: a carriage return is a newline.
const ICRNL: u32 = 0o400;
/// `c_oflag`: a newline is a carriage return and a newline.
const OPOST_ONLCR: u32 = 0o5;
/// `c_lflag`: keys that send signals.
const ISIG: u32 = 0o1;
/// `c_lflag`: whole lines.
const ICANON: u32 = 0o2;
/// `c_lflag`: typed bytes are echoed.
const ECHO: u32 = 0o10;

/// Places of these flags in the structure `termios`.
const INPUT: usize = 0;
const OUTPUT: usize = 1;
const LOCAL: usize = 3;

/// How the terminal behaves: the structure `termios`, as the kernel has it.
#[derive(Clone, Copy)]
pub struct Termios(pub [u32; 9]);

impl Termios {
    const NEW: Termios = Termios([
        ICRNL,
        OPOST_ONLCR,
        0o2275, // 9600 baud, 8 bits, the receiver on
        ISIG | ICANON | ECHO | 0o20 | 0o40,
        // Line discipline 0, then the keys: ^C ^\ DEL ^U ^D, 0 and 1, and so on.
        0x7f1c_0300,
        0x0100_0415,
        0x0000_1311,
        0,
        0,
    ]);
}

/// The console's input, and how it behaves.
pub struct Console {
    line: [u8; LINE],
    len: usize,
    /// Bytes, and a [`MARK`] wherever [`END`] was typed.
    ready: [u16; READY],
    first: usize,
    count: usize,
    /// How it behaves; [`set`](Self::set) changes it.
    pub termios: Termios,
    /// The process group in the foreground.
    pub foreground: i32,
}

impl Console {
    /// Makes a console without input.
    pub const fn new() -> Self {
        Console {
            line: [0; LINE],
            len: 0,
            ready: [0; READY],
            first: 0,
            count: 0,
            termios: Termios::NEW,
            foreground: 1,
        }
    }

    /// Whether a read would return at once.
    pub fn is_readable(&self) -> bool {
        self.count > 0
    }

    /// Returns the number of bytes that wait.
    pub fn waiting(&self) -> usize {
        self.count
    }

    /// Whether there is room for a whole line. Other typed bytes wait in the serial port.
    fn has_room(&self) -> bool {
        self.count + LINE < READY
    }

    fn takes_lines(&self) -> bool {
        self.termios.0[LOCAL] & ICANON != 0
    }

    /// Takes bytes to the start of `bytes`, up to the end of a line; how many. 0 at an end of file.
    pub fn take(&mut self, bytes: &mut [u8]) -> usize {
        let lines = self.takes_lines();
        let mut n = 0;
        while self.count > 0 {
            let next = self.ready[self.first % READY];
            let ends = lines && next == MARK;
            let byte = if next == MARK { END } else { next as u8 };
            // A mark right after the last byte that fits belongs to it.
            if !ends {
                let Some(place) = bytes.get_mut(n) else { break };
                *place = byte;
                n += 1;
            }
            self.first = (self.first + 1) % READY;
            self.count -= 1;
            if ends || lines && byte == b'\n' {
                break;
            }
        }
        n
    }

    /// Changes how the terminal behaves. A line that is not whole yet is ready when lines are no
    /// longer asked for.
    pub fn set(&mut self, termios: Termios) {
        self.termios = termios;
        if !self.takes_lines() {
            self.finish_line();
        }
    }

    fn push(&mut self, what: u16) {
        if self.count < READY {
            self.ready[(self.first + self.count) % READY] = what;
            self.count += 1;
        }
    }

    fn finish_line(&mut self) {
        for i in 0..self.len {
            self.push(self.line[i].into());
        }
        self.len = 0;
    }
}

/// Shows bytes on the console.
pub fn show<A: Arch>(termios: &Termios, bytes: &[u8]) {
    let converts = termios.0[OUTPUT] & OPOST_ONLCR == OPOST_ONLCR;
    for byte in bytes {
        if converts && *byte == b'\n' {
            A::put(b'\r');
        }
        A::put(*byte);
    }
}

impl<A: Arch> Kernel<A> {
    /// Takes the typed bytes.
    pub(crate) fn take_typed(&'static self, state: &mut State) {
        let mut any = false;
        while state.console.has_room()
            && let Some(byte) = A::typed()
        {
            self.typed(state, byte);
            any = true;
        }
        if any && state.console.is_readable() {
            state.tasks.wake(|wait| wait == Wait::Console || wait == Wait::Poll);
        }
    }

    fn typed(&'static self, state: &mut State, byte: u8) {
        let console = &mut state.console;
        let termios = console.termios;
        let byte = if byte == b'\r' && termios.0[INPUT] & ICRNL != 0 { b'\n' } else { byte };
        let echo = |bytes: &[u8]| {
            if termios.0[LOCAL] & ECHO != 0 {
                show::<A>(&termios, bytes);
            }
        };
        if termios.0[LOCAL] & ISIG != 0 && (byte == 3 || byte == 0x1c) {
            echo(if byte == 3 { b"^C\n" } else { b"^\\\n" });
            console.len = 0;
            let signal = if byte == 3 { number::SIGINT } else { number::SIGQUIT };
            let group = console.foreground;
            for process in state.tasks.slots() {
                if state.tasks.process(process).group == group {
                    self.send(state, process, signal, SignalInfo::KERNEL);
                }
            }
            return;
        }
        if termios.0[LOCAL] & ICANON == 0 {
            echo(&[byte]);
            console.push(byte.into());
            return;
        }
        match byte {
            END => {
                console.finish_line();
                console.push(MARK);
            }
            8 | 0x7f => {
                if console.len > 0 {
                    console.len -= 1;
                    echo(b"\x08 \x08");
                }
            }
            _ => {
                echo(&[byte]);
                // The last place is for the newline.
                if (console.len < LINE - 1 || byte == b'\n')
                    && let Some(place) = console.line.get_mut(console.len)
                {
                    *place = byte;
                    console.len += 1;
                }
                if byte == b'\n' {
                    console.finish_line();
                }
            }
        }
    }
}
