//! The trait of a proposal.
use super::answer::{Answer, Judgement};
use super::moment::Moment;
use super::whole::Whole;
use crate::counted::{CountedMachine, CountedRun};

/// What a proposal is, whoever made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct About {
    /// Its name on the command line: `on-demand-fork`.
    pub name: &'static str,
    /// Its name in a sentence: `share leaf tables at fork until a write`.
    pub title: &'static str,
    /// Who proposed it, and where it is described.
    pub reference: &'static str,
    /// The gain that its authors measured, and on what.
    pub claim: &'static str,
}

/// A proposal that is priced on a recording.
///
/// Events come in the order of the recording, all of them, from one thread.
pub trait Row: Send {
    /// Says what the proposal is.
    fn about(&self) -> About;

    /// An event of a space comes next; the view shows the space as it is before it. There is none
    /// for events that concern no space.
    fn before(&mut self, _moment: &Moment<'_>) {}

    /// An event has been replayed, with these effects.
    fn event(&mut self, moment: &Moment<'_>);

    /// Returns the machine on which a replay judges the answer, made of the usual one, where the
    /// library has the mechanism of the proposal. Asked for after [`answer`](Self::answer).
    fn machine(&self, _usual: CountedMachine) -> Option<CountedMachine> {
        None
    }

    /// Returns what the replay on that machine says, beside the same figure as counted. Where they
    /// differ, the replay is right.
    fn judge(&self, _usual: &CountedRun, _changed: &CountedRun) -> Option<Judgement> {
        None
    }

    /// Answers, at the end of the recording.
    ///
    /// # Errors
    /// Why the recording cannot tell: a sentence without a full stop.
    fn answer(&mut self, whole: &Whole<'_>) -> Result<Answer, String>;
}

impl<R: Row + ?Sized> Row for &mut R {
    fn about(&self) -> About {
        (**self).about()
    }

    fn before(&mut self, moment: &Moment<'_>) {
        (**self).before(moment);
    }

    fn event(&mut self, moment: &Moment<'_>) {
        (**self).event(moment);
    }

    fn machine(&self, usual: CountedMachine) -> Option<CountedMachine> {
        (**self).machine(usual)
    }

    fn judge(&self, usual: &CountedRun, changed: &CountedRun) -> Option<Judgement> {
        (**self).judge(usual, changed)
    }

    fn answer(&mut self, whole: &Whole<'_>) -> Result<Answer, String> {
        (**self).answer(whole)
    }
}
