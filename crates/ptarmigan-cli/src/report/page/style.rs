//! The style sheet, and a check of its colours.

/// The style sheet of the page.
pub(super) const STYLE: &str = include_str!("style.css");

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    /// The least contrast of a colour with its background, by its use (WCAG 2.2).
    const TEXT: f64 = 4.5;
    const GRAPHIC: f64 = 3.0;

    /// Colours in front, their backgrounds, and the least contrast.
    const PAIRS: [(&str, &str, f64); 21] = [
        ("fg", "bg", TEXT),
        ("fg", "warn-bg", TEXT),
        ("muted", "bg", TEXT),
        ("link", "bg", TEXT),
        ("warn", "warn-bg", TEXT),
        ("warn", "bg", GRAPHIC),
        ("axis", "bg", GRAPHIC),
        ("c0", "bg", GRAPHIC),
        ("c1", "bg", GRAPHIC),
        ("c2", "bg", GRAPHIC),
        ("c3", "bg", GRAPHIC),
        ("c0-low", "bg", GRAPHIC),
        ("c0-high", "bg", GRAPHIC),
        ("c1-low", "bg", GRAPHIC),
        ("c1-high", "bg", GRAPHIC),
        // Lines of memory kept lie on the area of memory in tables.
        ("c0", "shade", GRAPHIC),
        ("c1", "shade", GRAPHIC),
        ("c2", "shade", GRAPHIC),
        ("c3", "shade", GRAPHIC),
        ("fg", "shade", GRAPHIC),
        ("muted", "shade", GRAPHIC),
    ];
    /// Colours that carry no information: backgrounds, rules of tables and scales, and the area
    /// that has an outline.
    const NOT_READ: [&str; 4] = ["bg", "warn-bg", "grid", "shade"];

    /// Returns the colours of a scheme; the dark one overrides colours of the light one.
    fn colours(dark: bool) -> BTreeMap<&'static str, &'static str> {
        let blocks: Vec<&str> =
            STYLE.split(":root {").skip(1).filter_map(|block| block.split('}').next()).collect();
        assert_eq!(blocks.len(), 2, "a light and a dark scheme");
        let blocks = if dark { &blocks[..] } else { &blocks[..1] };
        let declarations = blocks.iter().flat_map(|block| block.split(';'));
        let pairs = declarations.filter_map(|one| one.trim().strip_prefix("--")?.split_once(": "));
        pairs.collect()
    }

    /// Returns the relative luminance of `#rgb` or `#rrggbb`.
    fn luminance(colour: &str) -> f64 {
        let digits = colour.strip_prefix('#').unwrap_or_else(|| panic!("{colour} is no colour"));
        let channel = |n: usize| {
            let part = match digits.len() {
                3 => digits[n..=n].repeat(2),
                6 => digits[2 * n..2 * n + 2].to_owned(),
                _ => panic!("{colour} is no colour"),
            };
            let value = f64::from(u8::from_str_radix(&part, 16).expect("hexadecimal digits")) / 255.0;
            if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * channel(0) + 0.7152 * channel(1) + 0.0722 * channel(2)
    }

    fn contrast(a: &str, b: &str) -> f64 {
        let (a, b) = (luminance(a), luminance(b));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    #[test]
    fn contrast_is_as_wcag_defines_it() {
        assert!((contrast("#000", "#ffffff") - 21.0).abs() < 1e-9);
        assert!((contrast("#777777", "#fff") - 4.478).abs() < 1e-3, "the well-known grey that just fails");
        assert_eq!(contrast("#123456", "#123456"), 1.0);
    }

    #[test]
    fn all_colours_have_contrast_in_light_and_dark() {
        for dark in [false, true] {
            let colours = colours(dark);
            for (front, behind, least) in PAIRS {
                let found = contrast(colours[front], colours[behind]);
                assert!(
                    found >= least,
                    "{front} on {behind}, dark: {dark}: {found:.2}, {least} at the least"
                );
            }
        }
    }

    #[test]
    fn every_colour_is_checked_and_has_a_dark_counterpart() {
        let rest = STYLE.split(":root {").map(|part| part.split_once('}').map_or("", |(_, rest)| rest));
        let rest: String = rest.collect();
        let used: BTreeSet<&str> =
            rest.split("var(--").skip(1).filter_map(|part| part.split(')').next()).collect();
        let (light, both) = (colours(false), colours(true));
        assert_eq!(used, light.keys().copied().collect(), "what is declared is used");
        assert_eq!(light.len(), both.len());
        for name in used {
            let same = light[name] == both[name];
            assert!(!same, "{name} is the same in the dark");
            let checked = PAIRS.iter().any(|(front, ..)| *front == name);
            assert!(checked != NOT_READ.contains(&name), "{name} is in no pair");
        }
        assert!(!rest.contains('#') && !rest.contains("opacity"), "colours are declared in one place");
    }
}
