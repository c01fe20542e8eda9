//! A picture of the curve: the cost of a flush by its size.
use ptarmigan_term::{Count, Time};

const COLUMNS: usize = 64;
const ROWS: usize = 14;

/// The data of the picture, in nanoseconds over pages.
pub(super) struct Picture {
    /// The measured points.
    pub points: Vec<(usize, f64)>,
    /// The line of flushes by name: its start, and its slope for each page.
    pub named: (f64, f64),
    /// The cost of everything.
    pub full: f64,
    pub break_even: f64,
}

impl Picture {
    /// Draws at most 80 columns. `plain` draws with ASCII marks.
    pub(super) fn draw(&self, plain: bool) -> String {
        let [point, named, full, bar] =
            if plain { ['o', '.', '-', '|'] } else { ['●', '·', '─', '│'] };
        let most_pages = self.points.iter().map(|(pages, _)| *pages).max().unwrap_or(1).max(1) as f64;
        let most_ns = self.points.iter().map(|(_, ns)| *ns).fold(1.0, f64::max) * 1.05;
        let column = |pages: f64| (pages / most_pages * (COLUMNS - 1) as f64).round();
        let row = |ns: f64| ((1.0 - ns / most_ns) * (ROWS - 1) as f64).round();
        let mut cells = vec![[' '; COLUMNS]; ROWS];
        let mut put = |pages: f64, ns: f64, mark: char| {
            let (x, y) = (column(pages), row(ns));
            let inside = (0.0..COLUMNS as f64).contains(&x) && (0.0..ROWS as f64).contains(&y);
            if inside {
                cells[y as usize][x as usize] = mark;
            }
        };
        for y in 0..ROWS {
            put(self.break_even, most_ns * y as f64 / (ROWS - 1) as f64, bar);
        }
        for x in 0..COLUMNS {
            let pages = x as f64 * most_pages / (COLUMNS - 1) as f64;
            put(pages, self.full, full);
            put(pages, self.named.0 + self.named.1 * pages, named);
        }
        for (pages, ns) in &self.points {
            put(*pages as f64, *ns, point);
        }
        let mut text = String::new();
        for (y, cells) in cells.iter().enumerate() {
            let label = match y {
                0 => format!("{:10}", Time::from_nanos(most_ns)),
                y if y == ROWS - 1 => format!("{:10}", Time::default()),
                _ => " ".repeat(10),
            };
            let line: String = cells.iter().collect();
            text += &format!("{label} {bar}{}\n", line.trim_end());
        }
        text += &format!("{:>12}0{:>width$} pages\n", "", Count(most_pages as u64), width = COLUMNS - 8);
        let meets = if self.break_even > most_pages {
            format!("break-even at {} pages, beyond the picture", Count(self.break_even.round() as u64))
        } else {
            format!("{bar} break-even")
        };
        text + &format!("{:>12}{point} measured  {named} by name  {full} everything  {meets}\n", "")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture(full: f64, break_even: f64) -> Picture {
        let points = (1..=132).map(|n| (n, if n <= 33 { 100.0 + 175.0 * n as f64 } else { full })).collect();
        Picture { points, named: (100.0, 175.0), full, break_even }
    }

    #[test]
    fn the_picture_fits_a_terminal_with_both_lines_and_crossing() {
        let text = picture(3000.0, 16.6).draw(true);
        assert!(text.replace("µs", "us").is_ascii(), "{text}");
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
        // The bar of the break-even stands where 16.6 of 132 pages are, behind the axis.
        let bars = text.lines().filter(|line| line.chars().nth(12 + 8) == Some('|')).count();
        assert!(bars >= 8, "{text}");
        let full = text.lines().find(|line| line.contains("ooooo")).unwrap();
        assert!(full.starts_with("           |-----"), "{text}");
        let wide = picture(3000.0, 16.6).draw(false);
        assert!(wide.contains('●') && wide.lines().all(|line| line.chars().count() <= 80));
        assert!(picture(544_000.0, 3110.0).draw(true).contains("3,110 pages, beyond the picture"));
    }
}
