//! Formats text for Markdown.

/// Returns text for Markdown: no character is markup, and GitHub sees neither a mention nor a
/// reference nor an address in it.
pub(crate) fn text(plain: &str) -> String {
    let mut out = String::with_capacity(plain.len());
    for c in plain.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\\' | '`' | '*' | '_' | '{' | '}' | '[' | ']' | '|' | '~' | '$' | '!' => {
                out.push('\\');
                out.push(c);
            }
            // A joiner without width parts what follows from what would make it a link.
            '@' | '#' => {
                out.push(c);
                out.push('\u{2060}');
            }
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out.replace("://", ":\u{2060}//").replace("www.", "www\u{2060}.").replace("GH-", "GH\u{2060}-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_neither_markup_nor_a_link() {
        assert_eq!(text("a|b *c* `d`\n<e> & [f](g)"), "a\\|b \\*c\\* \\`d\\` &lt;e&gt; &amp; \\[f\\](g)");
        for (plain, linked) in [("@user", "@user"), ("x#12", "#12"), ("http://h", "://"), ("www.h", "www.")] {
            assert!(!text(plain).contains(linked), "{plain}");
        }
    }
}
