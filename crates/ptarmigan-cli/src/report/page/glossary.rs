//! Words of the field: as tooltips where a reader meets them first, and as a list at the end.
use ptarmigan_term::draw::escape;

/// A word and its meaning, as in the glossary of the book.
struct GlossaryWord {
    word: &'static str,
    /// Further spellings in a text.
    also: &'static [&'static str],
    meaning: &'static str,
    /// Whether a text marks it. Common words are in the list alone.
    marked: bool,
}

const fn word(word: &'static str, also: &'static [&'static str], meaning: &'static str) -> GlossaryWord {
    GlossaryWord { word, also, meaning, marked: true }
}

const fn common(word: &'static str, meaning: &'static str) -> GlossaryWord {
    GlossaryWord { word, also: &[], meaning, marked: false }
}

const WORDS: [GlossaryWord; 24] = [
    common("page", "the smallest piece of memory that a table maps: 4 KiB on x86"),
    common("frame", "a page of physical memory"),
    word(
        "page table, table page",
        &["Table pages", "table pages", "table page"],
        "a frame full of entries, read by the MMU. x86-64 has four levels: PGD, PUD, PMD, PTE",
    ),
    word(
        "leaf table",
        &["Leaf tables", "leaf tables", "Leaf table"],
        "a table of the last level (PTE table). 512 entries map 2 MiB",
    ),
    common(
        "entry",
        "8 bytes (4 on i386 without PAE) of a table: the address of the next table or page, and permissions",
    ),
    common(
        "address space",
        "the tables under one root, and the areas that they show. Processes have one each, threads share one",
    ),
    common(
        "area",
        "a range of an address space with one kind of memory and one set of permissions (Linux: VMA)",
    ),
    common(
        "fault",
        "the exception at an access that the tables do not allow. The kernel adds an entry, or sends a signal",
    ),
    common(
        "copy-on-write",
        "after fork both processes map the same pages read-only; the first write to a page copies it",
    ),
    word("VmPTE", &[], "Linux's count of a process's table pages, in /proc/PID/status"),
    common(
        "TLB",
        "the CPU's memory of translations. It may keep one until the kernel asks it to forget: a flush",
    ),
    common("shootdown", "a flush on other CPUs, by an interrupt or a broadcast instruction"),
    word(
        "huge page, large page",
        &["huge pages", "large pages", "large page", "huge page"],
        "an entry of an upper level that maps memory: 2 MiB or 1 GiB, without a leaf table",
    ),
    word("high memory", &[], "on 32-bit machines, frames without a permanent address in the kernel"),
    word("quicklist", &[], "a list of free table pages of one CPU, in a known state (Linux, 2007)"),
    common("known zero", "a page that was proven to hold zeros, so that it is not cleared again"),
    common("hit", "an allocation from the CPU's own list: no lock, no atomic instruction"),
    word(
        "refill",
        &[],
        "an allocation that first brings a batch of pages from the node's depot into the CPU's list",
    ),
    word("miss", &[], "an allocation that takes a new page from the frame allocator, and clears it"),
    word("depot", &[], "the store of batches of free pages that the CPUs of a node share"),
    word(
        "policy",
        &[],
        "the way in which table pages are allocated and freed. plain clears each page, v5 is Linux's patch \
         of 2007, ptarmigan is the library",
    ),
    word("replay", &[], "the calls of a recording, made on the library instead of Linux"),
    common("flushed", "a page that every TLB has forgotten. Only such pages become free"),
    common("trace, recording", "a file of a program's calls and faults, made by ptarmigan record"),
];

impl GlossaryWord {
    fn id(&self) -> String {
        let first = self.word.split(',').next().unwrap_or(self.word);
        format!("word-{}", first.to_lowercase().replace(' ', "-"))
    }

    /// Returns the first place of the word in a text, as a whole word.
    fn find(&self, text: &str) -> Option<(usize, usize)> {
        let spelled = self.also.iter().copied().chain([self.word]);
        let places = spelled.filter_map(|word| {
            let mut places = text.match_indices(word).map(|(at, _)| at);
            let at = places.find(|&at| {
                let beside = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '-' || c == '=');
                !beside(text[..at].chars().next_back()) && !beside(text[at + word.len()..].chars().next())
            })?;
            Some((at, word.len()))
        });
        places.min_by_key(|&(at, length)| (at, std::cmp::Reverse(length)))
    }
}

/// Returns text as HTML, each word of the glossary with a tooltip where it stands first, and a link
/// to its entry.
pub(super) fn explain(text: &str) -> String {
    let mut found: Vec<(usize, usize, &GlossaryWord)> = WORDS
        .iter()
        .filter(|word| word.marked)
        .filter_map(|word| word.find(text).map(|(at, length)| (at, length, word)))
        .collect();
    found.sort_by_key(|(at, length, _)| (*at, std::cmp::Reverse(*length)));
    let (mut html, mut done) = (String::new(), 0);
    for (at, length, word) in found.into_iter() {
        if at < done {
            continue;
        }
        html += &escape(&text[done..at]);
        html += &format!(
            "<a class=\"word\" href=\"#{}\"><abbr title=\"{}\">{}</abbr></a>",
            word.id(),
            escape(word.meaning),
            escape(&text[at..at + length])
        );
        done = at + length;
    }
    html + &escape(&text[done..])
}

/// Returns the list of all words.
pub(super) fn glossary() -> String {
    let mut html = "<section id=\"glossary\">\n<h2>Glossary</h2>\n<dl class=\"words\">\n".to_owned();
    for word in &WORDS {
        let (id, term, meaning) = (word.id(), escape(word.word), escape(word.meaning));
        html += &format!("<div id=\"{id}\"><dt>{term}</dt><dd>{meaning}</dd></div>\n");
    }
    html + "</dl>\n</section>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_mean_what_they_mean_in_the_book() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../book/src/glossary.md");
        let book = std::fs::read_to_string(path).expect("the glossary of the book").replace('`', "");
        for GlossaryWord { word, meaning, .. } in &WORDS {
            let row = format!("| {word} | {meaning} |");
            assert!(book.contains(&row), "not in the book: {row}");
        }
    }

    #[test]
    fn a_word_is_marked_once_and_as_a_whole() {
        let html = explain("A leaf table has a miss; leaf tables <b> have no missing miss.");
        let marked = |word: &str| html.matches(&format!(">{word}</abbr>")).count();
        assert_eq!((marked("leaf table"), marked("leaf tables"), marked("miss")), (1, 0, 1), "{html}");
        assert!(html.contains("href=\"#word-leaf-table\"") && html.contains("&lt;b&gt;"), "{html}");
        assert_eq!(explain("missing userpte=policy VmPTEs"), "missing userpte=policy VmPTEs");
    }
}
