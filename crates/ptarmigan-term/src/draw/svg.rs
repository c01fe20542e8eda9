//! A picture under construction, as SVG. Colours and sizes of text are the page's, by class.
use std::fmt::Write;

/// A picture.
pub struct Svg {
    width: f64,
    height: f64,
    body: String,
}

/// Where a text is, from its point.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Anchor {
    Start,
    Middle,
    End,
}

/// Replaces the characters that mean something in HTML.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// Returns about how wide a text is, in pixels.
pub(super) fn width_of(text: &str) -> f64 {
    7.4 * text.chars().count() as f64
}

/// Formats a coordinate with at most one decimal.
pub(super) fn number(n: f64) -> String {
    let text = format!("{n:.1}");
    match text.strip_suffix(".0") {
        Some("-0") => "0".to_owned(),
        Some(whole) => whole.to_owned(),
        None => text,
    }
}

// Writing to a string cannot fail, so results are not looked at here.
impl Svg {
    /// Begins a picture of this size, in pixels.
    pub fn new(width: f64, height: f64) -> Self {
        Svg { width, height, body: String::new() }
    }

    /// Adds text.
    pub fn text(&mut self, (x, y): (f64, f64), class: &str, anchor: Anchor, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => r#" text-anchor="middle""#,
            Anchor::End => r#" text-anchor="end""#,
        };
        let (x, y, text) = (number(x), number(y), escape(text));
        let _ = writeln!(self.body, r#"<text x="{x}" y="{y}" class="{class}"{anchor}>{text}</text>"#);
    }

    /// Adds text beside a point: to its right if there is room before `right`, else to its left,
    /// but not beyond `left`.
    pub fn text_beside(&mut self, (x, y): (f64, f64), (left, right): (f64, f64), text: &str) {
        let width = width_of(text);
        if x + 6.0 + width <= right {
            self.text((x + 6.0, y), "t", Anchor::Start, text);
        } else {
            self.text(((x - 6.0).max(left + width).min(right), y), "t", Anchor::End, text);
        }
    }

    /// Adds a path, with a text that is shown when it is pointed at.
    pub fn path(&mut self, d: &str, class: &str, title: &str) {
        if d.is_empty() {
            return;
        }
        let _ = match title {
            "" => writeln!(self.body, r#"<path d="{d}" class="{class}"/>"#),
            title => {
                let title = escape(title);
                writeln!(self.body, r#"<path d="{d}" class="{class}"><title>{title}</title></path>"#)
            }
        };
    }

    /// Adds a straight line.
    pub fn line(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64), class: &str) {
        let d = format!("M{} {}L{} {}", number(x1), number(y1), number(x2), number(y2));
        self.path(&d, class, "");
    }

    /// Adds a rectangle, with a text that is shown when it is pointed at. One without an area is
    /// left out.
    pub fn rect(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), class: &str, title: &str) {
        if width <= 0.0 || height <= 0.0 {
            return;
        }
        let (x, y) = (number(x), number(y));
        // Something that is there can be seen.
        let (width, height) = (number(width.max(0.8)), number(height.max(0.8)));
        let _ =
            write!(self.body, r#"<rect x="{x}" y="{y}" width="{width}" height="{height}" class="{class}""#);
        let _ = match title {
            "" => writeln!(self.body, "/>"),
            title => writeln!(self.body, "><title>{}</title></rect>", escape(title)),
        };
    }

    /// Adds a dot.
    pub fn dot(&mut self, (x, y): (f64, f64), class: &str) {
        let _ =
            writeln!(self.body, r#"<circle cx="{}" cy="{}" r="3" class="{class}"/>"#, number(x), number(y));
    }

    /// Returns the picture. `label` describes it for people who do not see it.
    pub fn finish(self, label: &str) -> String {
        let Svg { width, height, body } = self;
        let (width, height, label) = (number(width), number(height), escape(label));
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
             height=\"{height}\" role=\"img\" aria-label=\"{label}\">\n{body}</svg>\n"
        )
    }
}

/// Places a finished picture in a box of another one, as large as it fits.
pub fn placed(picture: &str, (x, y): (f64, f64), (width, height): (f64, f64)) -> String {
    let [x, y, width, height] = [x, y, width, height].map(number);
    // A picture begins as `finish` writes it, with its own size, which the box replaces.
    let Some((start, rest)) = picture.split_once(" width=\"") else { return String::new() };
    let Some((_, rest)) = rest.split_once(" role=") else { return String::new() };
    format!("{start} x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" role={rest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_become_markup() {
        let mut svg = Svg::new(10.0, 10.0);
        svg.text((1.0, 2.0), "t", Anchor::Start, "<script>&\"'");
        svg.rect((0.0, 0.0), (1.0, 1.0), "f0", "a<b");
        let text = svg.finish("\"quoted\"");
        assert!(text.contains("&lt;script&gt;&amp;&quot;&#39;") && text.contains("a&lt;b"), "{text}");
        assert!(text.contains("aria-label=\"&quot;quoted&quot;\"") && !text.contains("<script"), "{text}");
    }

    #[test]
    fn a_picture_in_another_one_has_the_size_of_its_box() {
        let mut svg = Svg::new(10.0, 20.0);
        svg.rect((0.0, 0.0), (1.0, 1.0), "f0", "");
        let text = placed(&svg.finish("label"), (3.0, 4.0), (5.0, 6.5));
        let start = "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 10 20\" x=\"3\" y=\"4\" \
                     width=\"5\" height=\"6.5\" role=\"img\"";
        assert!(text.starts_with(start) && text.contains("<rect ") && text.ends_with("</svg>\n"), "{text}");
    }

    #[test]
    fn coordinates_are_short() {
        assert_eq!([1.0, -0.01, 2.25, 100.96].map(number), ["1", "0", "2.2", "101"]);
    }
}
