//! Advice, in short, at the top of the page.
use super::html::{anchor, panels};
use crate::report::collect::TraceFigures;
use crate::report::words::sentences;
use ptarmigan_term::draw::escape;
use ptarmigan_term::words::several;

/// Pieces that are shown; the command prints all of them.
pub(in crate::report) const SHOWN: usize = 3;

/// About the most characters of a figure: the command prints all of it.
pub(in crate::report) const FIGURE: usize = 260;

/// Returns the advice for each trace; empty if it was not asked for.
pub(super) fn advice(all: &[TraceFigures]) -> String {
    if all.iter().all(|one| one.advice.is_none()) {
        return String::new();
    }
    let content = panels(all, |one| {
        let Some(advice) = &one.advice else { return String::new() };
        if let Some(problem) = &advice.problem {
            return format!("<p>Advice was looked for in vain: {}.</p>\n", escape(problem));
        }
        if advice.pieces.is_empty() {
            return "<p>No change that was tried helps.</p>\n".to_owned();
        }
        let mut html = "<ol class=\"advice\">\n".to_owned();
        for piece in advice.pieces.iter().take(SHOWN) {
            let (title, figure) = (escape(&sentence(&piece.title)), escape(sentences(&piece.figure, FIGURE)));
            let line = piece.line().map_or(String::new(), |line| format!("<br>{}", escape(&line)));
            let ways: String = piece
                .folded()
                .iter()
                .map(|(word, text)| format!("<p>{word}: {}</p>\n", escape(text)))
                .collect();
            html += &format!(
                "<li><strong>{title}</strong> {figure}{line}\n<details class=\"more\">\n\
                 <summary>How</summary>\n{ways}</details></li>\n"
            );
        }
        html += "</ol>\n";
        let more = advice.pieces.len().saturating_sub(SHOWN);
        if more == 0 {
            return html;
        }
        let more = several(more as u64, "piece");
        html + &format!("<p class=\"note\">{more} more: <code>ptarmigan advise</code> prints all.</p>\n")
    });
    format!("<section id=\"advice\">\n<h2>What would help{}</h2>\n{content}</section>\n", anchor("advice"))
}

/// Returns a title as a sentence.
pub(in crate::report) fn sentence(title: &str) -> String {
    let mut letters = title.chars();
    let first = letters.next().map(char::to_uppercase);
    first.into_iter().flatten().chain(letters).chain(['.']).collect()
}
