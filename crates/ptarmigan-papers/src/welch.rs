//! Means, standard deviations, and Welch's test of two means.
//!
//! The test assumes that the values of each side are independent and roughly normal. It does not
//! assume that both sides spread alike.

/// Mean and spread of several values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Summary {
    /// Number of values.
    pub n: usize,
    /// Their mean.
    pub mean: f64,
    /// Their standard deviation: that of a sample, over `n - 1`.
    pub deviation: f64,
}

/// The result of Welch's test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Welch {
    /// The difference of the means over its standard error.
    pub t: f64,
    /// Degrees of freedom, by Welch and Satterthwaite.
    pub df: f64,
    /// Probability of a `t` at least as far from 0, on either side, if both means are equal.
    pub p: f64,
}

impl Summary {
    /// Summarises values; without any the mean is NaN, and below two the deviation is 0.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let values: Vec<f64> = values.into_iter().collect();
        let n = values.len();
        let mean = values.iter().sum::<f64>() / n as f64;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let deviation = if n < 2 { 0.0 } else { (squares / (n - 1) as f64).sqrt() };
        Summary { n, mean, deviation }
    }

    /// The variance of the mean.
    fn of_mean(&self) -> f64 {
        self.deviation.powi(2) / self.n as f64
    }

    /// Compares the mean with that of `other`. `None` if a side has fewer than two values, or
    /// neither side spreads.
    pub(crate) fn welch(&self, other: &Summary) -> Option<Welch> {
        let (a, b) = (self.of_mean(), other.of_mean());
        if self.n < 2 || other.n < 2 || a + b <= 0.0 {
            return None;
        }
        let t = (self.mean - other.mean) / (a + b).sqrt();
        let df = (a + b).powi(2) / (a.powi(2) / (self.n - 1) as f64 + b.powi(2) / (other.n - 1) as f64);
        Some(Welch { t, df, p: regularised_beta(df / 2.0, 0.5, df / (df + t * t)) })
    }
}

/// Returns the regularised incomplete beta function I_x(a, b), for positive `a` and `b` and `x`
/// from 0 to 1.
fn regularised_beta(a: f64, b: f64, x: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return if x <= 0.0 { 0.0 } else { 1.0 };
    }
    // The fraction converges quickly below the mean. Beyond it the function is mirrored.
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - regularised_beta(b, a, 1.0 - x);
    }
    let front = ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (1.0 - x).ln();
    front.exp() * beta_fraction(a, b, x) / a
}

/// The continued fraction of the incomplete beta function, by Lentz's method.
fn beta_fraction(a: f64, b: f64, x: f64) -> f64 {
    const TERMS: u32 = 500;
    const CLOSE: f64 = 1e-15;
    let away_from_0 = |value: f64| if value.abs() < 1e-300 { 1e-300 } else { value };
    let mut c = 1.0;
    let mut d = 1.0 / away_from_0(1.0 - (a + b) * x / (a + 1.0));
    let mut result = d;
    for m in (1..TERMS).map(f64::from) {
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let mut step = 1.0;
        for term in [even, odd] {
            d = 1.0 / away_from_0(1.0 + term * d);
            c = away_from_0(1.0 + term / c);
            step = c * d;
            result *= step;
        }
        if (step - 1.0).abs() < CLOSE {
            break;
        }
    }
    result
}

/// Returns the logarithm of the gamma function for positive `x`: Lanczos's approximation with nine
/// terms, good to about 15 digits.
fn ln_gamma(x: f64) -> f64 {
    const G: f64 = 7.0;
    const TERMS: [f64; 8] = [
        676.520_368_121_885_1,
        -1_259.139_216_722_402_8,
        771.323_428_777_653_1,
        -176.615_029_162_140_6,
        12.507_343_278_686_905,
        -0.138_571_095_265_720_12,
        9.984_369_578_019_572e-6,
        1.505_632_735_149_311_6e-7,
    ];
    if x < 0.5 {
        let pi = std::f64::consts::PI;
        return (pi / (pi * x).sin()).ln() - ln_gamma(1.0 - x);
    }
    let x = x - 1.0;
    let sum = TERMS
        .iter()
        .zip(1_u8..)
        .fold(0.999_999_999_999_809_9, |sum, (term, n)| sum + term / (x + f64::from(n)));
    let t = x + G + 0.5;
    0.5 * (2.0 * std::f64::consts::PI).ln() + (x + 0.5) * t.ln() - t + sum.ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(is: f64, should: f64, within: f64) {
        assert!((is - should).abs() <= within * should.abs(), "{is} is not {should}");
    }

    fn five(mean: f64, deviation: f64) -> Summary {
        Summary { n: 5, mean, deviation }
    }

    #[test]
    fn the_2010_figures_agree_with_another_programs_result() {
        // The mail's means and deviations; t, degrees of freedom and p from mpmath, 25 digits.
        let cases = [
            (five(59.737, 1.26727), five(55.9, 1.07799), 5.156_926_7, 7.799_409_75, 9.387_772_85e-4),
            (five(175.396, 0.238914), five(174.278, 0.831968), 2.888_106_75, 4.655_264_33, 3.726_759_44e-2),
            (five(515.983, 5.85019), five(515.659, 6.07012), 0.085_937_666_2, 7.989_129_3, 0.933_630_687),
            (five(39989.7, 4672.64), five(39929.6, 4485.13), 0.020_748_835_2, 7.986_617_78, 0.983_955_02),
            (five(42617.7, 246.307), five(42583.7, 373.039), 0.170_074_324, 6.930_665_6, 0.869_809_681),
        ];
        for (high, low, t, df, p) in cases {
            let found = high.welch(&low).expect("both spread");
            near(found.t, t, 1e-7);
            near(found.df, df, 1e-7);
            near(found.p, p, 1e-7);
            let turned = low.welch(&high).expect("both spread");
            near(turned.t, -t, 1e-7);
            near(turned.p, p, 1e-7);
        }
    }

    #[test]
    fn the_beta_function_has_known_values_on_both_sides_of_its_mean() {
        for (a, b, x, value) in [
            (2.0, 3.0, 0.4, 0.5248),
            (0.5, 0.5, 0.3, 0.369_010_119_565_545_4),
            (10.0, 0.5, 0.9, 0.151_640_909_634_709_97),
            (50.0, 0.5, 0.99, 0.317_304_397_874_197_4),
            (1.0, 1.0, 0.25, 0.25),
        ] {
            near(regularised_beta(a, b, x), value, 1e-12);
            near(1.0 - regularised_beta(b, a, 1.0 - x), value, 1e-11);
        }
        assert_eq!((regularised_beta(2.0, 3.0, 0.0), regularised_beta(2.0, 3.0, 1.0)), (0.0, 1.0));
    }

    #[test]
    fn a_summary_is_that_of_a_sample_and_equal_values_have_no_test() {
        let some = Summary::of([2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]);
        assert_eq!((some.n, some.mean), (8, 5.0));
        near(some.deviation, (32.0_f64 / 7.0).sqrt(), 1e-15);
        let same = Summary::of([3.0; 5]);
        assert_eq!((same.mean, same.deviation), (3.0, 0.0));
        assert!(same.welch(&same).is_none() && Summary::of([1.0]).welch(&some).is_none());
        assert!(same.welch(&some).is_some());
    }
}
