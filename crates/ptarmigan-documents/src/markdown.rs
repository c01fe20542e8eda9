//! Reads the parts of Markdown that the checks need: headings, links, blocks of code.

/// A page.
#[derive(Debug, Default)]
pub struct Page {
    /// Names of headings in links, as GitHub and mdBook make them.
    pub anchors: Vec<String>,
    /// Links, and definitions of links.
    pub links: Vec<Link>,
    /// Blocks of code.
    pub blocks: Vec<Block>,
}

/// A link.
#[derive(Debug, PartialEq, Eq)]
pub struct Link {
    /// Line of the page, from 1 on.
    pub line: usize,
    /// Where it leads.
    pub target: String,
}

/// A block of code.
#[derive(Debug, PartialEq, Eq)]
pub struct Block {
    /// Line of the page at which its text begins, from 1 on.
    pub line: usize,
    /// The text behind the fence: a language, and more.
    pub info: String,
    /// Its lines.
    pub text: String,
}

impl Block {
    /// Returns whether the block is Rust that has to compile.
    pub fn is_rust(&self) -> bool {
        let mut words = self.info.split(',');
        words.next() == Some("rust") && !words.any(|word| word == "ignore")
    }

    /// Returns whether the block is for a shell.
    pub fn is_shell(&self) -> bool {
        matches!(self.info.as_str(), "sh" | "bash" | "shell" | "console")
    }
}

impl Page {
    /// Parses a page.
    pub fn parse(text: &str) -> Page {
        let mut page = Page::default();
        let mut block: Option<Block> = None;
        // Text between two blocks, in which links may go over the end of a line.
        let mut prose: Vec<(usize, &str)> = Vec::new();
        for (at, line) in text.lines().enumerate() {
            let fence = line.trim_start().strip_prefix("```");
            match (&mut block, fence) {
                (Some(_), Some(_)) => page.blocks.extend(block.take()),
                (Some(block), None) => {
                    block.text.push_str(line);
                    block.text.push('\n');
                }
                (None, Some(info)) => {
                    let info = info.trim().to_owned();
                    block = Some(Block { line: at + 2, info, text: String::new() });
                }
                (None, None) => {
                    if let Some(heading) = heading(line) {
                        page.add_anchor(heading);
                    }
                    prose.push((at + 1, line));
                }
            }
        }
        page.add_links(&prose);
        page
    }

    fn add_anchor(&mut self, heading: &str) {
        let name = anchor(heading);
        let same = self.anchors.iter().filter(|one| **one == name).count();
        self.anchors.push(if same == 0 { name } else { format!("{name}-{same}") });
    }

    fn add_links(&mut self, prose: &[(usize, &str)]) {
        for (line, text) in prose {
            let text = without_code(text);
            // [name]: target
            if let Some((_, target)) = text.strip_prefix('[').and_then(|rest| rest.split_once("]: ")) {
                let target = target.split_whitespace().next().unwrap_or_default().to_owned();
                self.links.push(Link { line: *line, target });
                continue;
            }
            // [text](target), ![text](target); the text may have begun on the line before.
            for part in text.split("](").skip(1) {
                if let Some((target, _)) = part.split_once(')') {
                    self.links.push(Link { line: *line, target: target.trim().to_owned() });
                }
            }
        }
    }
}

fn heading(line: &str) -> Option<&str> {
    let text = line.trim_start_matches('#');
    let level = line.len() - text.len();
    (1..=6).contains(&level).then(|| text.strip_prefix(' ')).flatten()
}

/// Returns the name of a heading in links.
fn anchor(heading: &str) -> String {
    let kept = |c: char| match c {
        ' ' => Some('-'),
        '-' | '_' => Some(c),
        _ if c.is_alphanumeric() => Some(c),
        _ => None,
    };
    heading.trim().to_lowercase().chars().filter_map(kept).collect()
}

/// Returns a line without the code between backticks, which is not text of Markdown.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join("`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_links_and_blocks_are_found_with_their_lines() {
        let page = Page::parse(
            "# A `b` c: d, e?\n## Same\n## Same\n[one](x.md#y) `[no](z)` and ![a\nb](i.svg)\n```rust\nlet x;\n\
             [no](z)\n```\n[`r`]: y.md\n",
        );
        assert_eq!(page.anchors, ["a-b-c-d-e", "same", "same-1"]);
        let links: Vec<_> = page.links.iter().map(|link| (link.line, link.target.as_str())).collect();
        assert_eq!(links, [(4, "x.md#y"), (5, "i.svg"), (10, "y.md")]);
        assert_eq!(page.blocks.len(), 1);
        assert_eq!((page.blocks[0].line, page.blocks[0].is_rust()), (7, true));
        assert_eq!(page.blocks[0].text, "let x;\n[no](z)\n");
    }
}
