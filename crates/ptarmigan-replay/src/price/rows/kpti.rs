//! Two roots for each space, so that user mode does not see the kernel (KPTI). A recording has the
//! roots, but not the entries to the kernel, at which they are exchanged.
use crate::price::{About, Answer, Moment, Row, Whole};

/// Refuses an answer, with its reason.
pub struct Kpti;

impl Row for Kpti {
    fn about(&self) -> About {
        About {
            name: "kpti",
            title: "keep the kernel out of the tables of user mode (KPTI)",
            reference: "Gruss et al., KASLR is Dead: Long Live KASLR, ESSoS 2017; Linux 4.15 (2018)",
            claim: "a protection at a price: each entry to the kernel loads another root",
        }
    }

    fn event(&mut self, _: &Moment<'_>) {}

    fn answer(&mut self, _: &Whole<'_>) -> Result<Answer, String> {
        Err("its price is at system calls and interrupts, which no recording has".to_owned())
    }
}
