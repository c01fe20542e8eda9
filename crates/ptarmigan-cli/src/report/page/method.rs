//! Explains the origin of the figures.
use super::html::said;
use crate::report::collect::TraceFigures;
use ptarmigan_term::draw::escape;
use ptarmigan_term::{Bytes, Count};

/// Returns the end of the page.
pub(super) fn method(all: &[TraceFigures]) -> String {
    let truth = said(all, |one| {
        let truth = &one.facts.truth;
        format!("{} of {}", Count(truth.equal), Count(truth.checked))
    });
    let memory = all.first().map_or(0, |one| one.facts.memory);
    let paragraphs = [
        format!(
            "How: each recording is replayed once, by one worker, on the library's policy, on a simulated x86-64 \
             machine with {} of memory and the recorded number of CPUs. In this pass the life of each table page is \
             written down, the entries of a leaf table are counted before each operation that may take some, and \
             flushes are counted. Samples of VmPTE that are equal to Linux's: {truth}.",
            Bytes(memory)
        ),
        "The calls of the allocator in this pass are then made again on each policy, on a new machine, without the \
         replay around them. The tables of a recording do not depend on where their pages come from, so counts and \
         memory kept are those of a whole replay on that policy. Times are of the calls alone: the caches are \
         warmer than in a replay."
            .to_owned(),
        "Times vary from run to run by a factor of two and more on a busy machine; counts do not vary. Nothing was \
         measured on the recorded machine: what an allocation took there is not known."
            .to_owned(),
    ];
    let paragraphs: String = paragraphs.iter().map(|text| format!("<p>{}</p>\n", escape(text))).collect();
    format!(
        "<footer>\n{paragraphs}<p>Documents: <code>ptarmigan docs report</code> (this page), <code>ptarmigan docs \
         advise</code>, <code>ptarmigan docs recording</code>. ptarmigan {}</p>\n</footer>\n",
        env!("CARGO_PKG_VERSION")
    )
}
