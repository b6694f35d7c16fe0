//! Bars of results, and their axis.

use super::chart::{Axis, Bar, Group, Scale};
use super::data::{Row, median_of};

/// Style (index of a color) of erpc's bars.
pub(super) const ERPC: usize = 0;
/// Style of bars for bare sockets.
pub(super) const BARE: usize = 4;

/// Adds a bar with the median of `field` and, if `upper` is given and was measured, the median of
/// `upper`. Adds no bar if `field` was not measured.
pub(super) fn push_bar(
    bars: &mut Vec<Bar>,
    (label, style): (&str, usize),
    (rows, field, upper): (&[Row], &str, Option<&str>),
    wanted: impl Fn(&Row) -> bool,
) {
    if let Some(value) = median_of(rows, field, &wanted) {
        let upper = upper.and_then(|upper| median_of(rows, upper, &wanted));
        bars.push(Bar { label: label.to_owned(), style, value, upper });
    }
}

/// A linear axis from zero that has room for all bars.
pub(super) fn from_zero(label: &'static str, groups: &[Group]) -> Axis {
    let bars = groups.iter().flat_map(|group| &group.bars);
    let most = bars.map(|bar| bar.upper.unwrap_or(bar.value)).fold(0.0, f64::max);
    Axis { label, scale: Scale::Linear, range: (0.0, most.max(f64::MIN_POSITIVE)) }
}
