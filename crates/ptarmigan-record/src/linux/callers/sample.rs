//! A sample: where a task was when it caused a fault or made a call.
use ptarmigan_trace::{Call, Cause};

/// A sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CallerSample {
    pub(crate) cause: Cause,
    /// The page of the fault, or the first of the call's range; 0 without one.
    pub(crate) page: u64,
    /// The number of events that it stands for.
    pub(crate) events: u64,
    pub(crate) ip: u64,
    pub(crate) sp: u64,
    pub(crate) bp: u64,
    /// The words of the stack from `sp` on.
    pub(crate) stack: Vec<u64>,
}

impl CallerSample {
    /// Returns a word of the stack.
    pub(crate) fn word(&self, address: u64) -> Option<u64> {
        let offset = address.checked_sub(self.sp)?;
        let word = usize::try_from(offset / 8).ok()?;
        offset.is_multiple_of(8).then(|| self.stack.get(word).copied())?
    }

    /// Encodes the sample as 64-bit words.
    pub(crate) fn encode(&self, to: &mut Vec<u64>) {
        let cause = match self.cause {
            Cause::Fault => 0,
            Cause::Call(call) => 1 + call as u64,
        };
        to.extend([cause, self.page, self.events, self.ip, self.sp, self.bp]);
        to.extend(&self.stack);
    }

    /// Decodes the words of [`encode`](Self::encode).
    pub(crate) fn decode(words: &[u64]) -> Option<Self> {
        let [cause, page, events, ip, sp, bp, stack @ ..] = words else { return None };
        let cause = match cause {
            0 => Cause::Fault,
            n => Cause::Call(*Call::ALL.get(usize::try_from(n - 1).ok()?)?),
        };
        let (page, events, ip, sp, bp) = (*page, *events, *ip, *sp, *bp);
        Some(Self { cause, page, events, ip, sp, bp, stack: stack.to_vec() })
    }
}
