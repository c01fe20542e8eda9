//! Actions, masks and handlers of signals.

use super::layout::Layout;
use super::time::Width;
use super::{Stop, Sys};
use crate::arch::{Arch, Context, SIGNAL_FRAME};
use crate::errno::Errno;
use crate::signal::action::Left;
use crate::signal::info::INFO_BYTES;
use crate::signal::set::ALWAYS;
use crate::signal::{Action, SIGNALS, SignalInfo, SignalStack, number};
use crate::task::{Ends, Wait};

impl<A: Arch> Sys<'_, A> {
    /// `rt_sigaction`.
    pub(super) fn action(&mut self, signal: u64, new: u64, old: u64, size: u64) -> Result<u64, Errno> {
        Errno::EINVAL.when(size != 8 || signal == 0 || signal > SIGNALS as u64)?;
        let signal = signal as u8;
        let word = A::ABI.word();
        let before = self.process().actions.get(signal);
        let mut action = None;
        if new != 0 {
            Errno::EINVAL.when(signal == number::SIGKILL || signal == number::SIGSTOP)?;
            let [handler, flags] = self.read_numbers(new, word)?;
            let (mut at, mut restorer) = (new + 2 * word as u64, 0);
            if A::ABI.has_restorers() {
                restorer = self.read_word(at)?;
                at += word as u64;
            }
            let [mask] = self.read_numbers(at, 8)?;
            action = Some(Action { handler, flags, restorer, mask });
        }
        if old != 0 {
            let mut out = Layout::<32>::new(A::ABI);
            out.word(before.handler).word(before.flags);
            if A::ABI.has_restorers() {
                out.word(before.restorer);
            }
            out.u64(before.mask);
            self.write_bytes(old, out.bytes())?;
        }
        if let Some(action) = action {
            self.state.tasks.set_action(self.me, signal, action);
        }
        Ok(0)
    }

    pub(super) fn read_set(&mut self, at: u64, size: u64) -> Result<u64, Errno> {
        Errno::EINVAL.when(size != 8)?;
        self.read_numbers(at, 8).map(|[set]| set)
    }

    /// `rt_sigprocmask`.
    pub(super) fn mask(&mut self, how: u64, new: u64, old: u64, size: u64) -> Result<u64, Errno> {
        let before = self.task().signals.blocked;
        let set = if new == 0 { None } else { Some(self.read_set(new, size)?) };
        if old != 0 {
            self.write_bytes(old, &before.to_le_bytes())?;
        }
        if let Some(set) = set {
            let mask = match how {
                0 => before | set,
                1 => before & !set,
                2 => set,
                _ => return Err(Errno::EINVAL),
            };
            self.task().signals.set_blocked(mask);
        }
        Ok(0)
    }

    /// `rt_sigpending`.
    pub(super) fn pending(&mut self, at: u64) -> Result<u64, Errno> {
        let signals = &self.state.tasks.get(self.me).signals;
        let all = signals.pending.set() | self.state.tasks.process_of(self.me).pending.set();
        let set = all & signals.blocked;
        self.answer(at, &set.to_le_bytes())
    }

    /// `rt_sigtimedwait`.
    pub(super) fn take_signal(
        &mut self,
        [set, info_at, timeout, size, ..]: [u64; 6],
        width: Width,
    ) -> Result<u64, Stop> {
        /// Bytes of `siginfo_t`.
        const WHOLE: usize = 128;
        let set = self.read_set(set, size)? & !ALWAYS;
        let timeout = self.timeout(timeout, width)?;
        let tasks = &self.state.tasks;
        let ready =
            set & (tasks.get(self.me).signals.pending.set() | tasks.process_of(self.me).pending.set());
        if ready == 0 {
            let is_over = timeout.is_some_and(|timeout| self.deadline(timeout));
            Errno::EAGAIN.when(is_over)?;
            return Err(Stop::Block(Wait::Signal(set)));
        }
        let signal = ready.trailing_zeros() as u8 + 1;
        let info = self.kernel.take_signal(self.state, self.me, signal).unwrap_or(SignalInfo::KERNEL);
        if info_at != 0 {
            let mut whole = [0; WHOLE];
            whole[..INFO_BYTES].copy_from_slice(&info.bytes(A::ABI, signal));
            self.write_bytes(info_at, &whole)?;
        }
        Ok(signal.into())
    }

    /// `rt_sigsuspend`.
    pub(super) fn suspend(&mut self, at: u64, size: u64) -> Result<u64, Stop> {
        let set = self.read_set(at, size)?;
        let signals = &mut self.task().signals;
        if signals.suspended.is_none() {
            signals.suspended = Some(signals.blocked);
            signals.set_blocked(set);
        }
        Err(Stop::Block(Wait::Time))
    }

    /// `sigaltstack`.
    pub(super) fn signal_stack(&mut self, new: u64, old: u64) -> Result<u64, Errno> {
        let at = self.body.context.stack();
        let before = self.task().signals.stack;
        if new != 0 {
            // The address, flags (and as much again on 64 bits), the size.
            let [lowest, flags, size] = self.read_numbers(new, A::ABI.word())?;
            let new = SignalStack { at: lowest, size, flags: flags as u32 };
            self.task().signals.stack.set(new, at, A::ABI.least_stack())?;
        }
        if old != 0 {
            let mut out = Layout::<24>::new(A::ABI);
            out.word(before.at).word(before.flags_at(at).into()).word(before.size);
            self.write_bytes(old, out.bytes())?;
        }
        Ok(0)
    }

    /// `rt_sigreturn`.
    pub(super) fn handler_returns(&mut self) -> Result<u64, Stop> {
        let (at, len) = self.body.context.handler_frame();
        let mut frame = [0; SIGNAL_FRAME];
        let len = len.min(SIGNAL_FRAME);
        if self.read_bytes(at, &mut frame[..len]).is_err() {
            return Err(Stop::End(Ends::Process, i32::from(number::SIGSEGV)));
        }
        A::save(&mut self.body.context);
        let Left { mask, stack } = self.body.context.leave_handler(&frame[..len]);
        A::load(&self.body.context);
        let at = self.body.context.stack();
        let signals = &mut self.task().signals;
        signals.set_blocked(mask);
        // As under Linux: a stack that the frame names and that cannot be is left out.
        let _ = signals.stack.set(stack, at, A::ABI.least_stack());
        Err(Stop::Quiet)
    }
}
