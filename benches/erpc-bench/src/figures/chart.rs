//! Charts as SVG text. A chart has its own background, so that it is legible on any page, and a
//! second set of colors for readers who prefer a dark background.

use std::fmt::Write as _;

/// How values become positions along an axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Scale {
    Linear,
    Log,
}

/// An axis with its label, which names the unit.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    pub(super) label: &'static str,
    pub(super) scale: Scale,
    /// Smallest and largest value. Values outside are drawn at the nearest value of the axis.
    pub(super) range: (f64, f64),
}

/// A line and its markers. Series of several panels with the same name share one legend entry, so
/// they must have the same style.
#[derive(Clone, Debug)]
pub(super) struct Series {
    pub(super) name: &'static str,
    /// Number of the color and of the marker's shape.
    pub(super) style: usize,
    pub(super) dashed: bool,
    pub(super) points: Vec<(f64, f64)>,
}

/// One of the plots of a chart, which share their axes.
#[derive(Clone, Debug)]
pub(super) struct Panel {
    pub(super) title: String,
    pub(super) series: Vec<Series>,
}

/// A row of a bar chart.
#[derive(Clone, Debug)]
pub(super) struct Bar {
    pub(super) label: String,
    pub(super) style: usize,
    pub(super) value: f64,
    /// A second value, which is at least the first: for example, a higher quantile.
    pub(super) upper: Option<f64>,
}

/// Rows under a heading. If the title is empty, no heading is drawn.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) title: String,
    pub(super) bars: Vec<Bar>,
}

/// The contents of a chart.
#[derive(Clone, Debug)]
pub(super) enum Plot {
    /// Lines over a common x axis, in panels.
    Lines { x: Axis, y: Axis, panels: Vec<Panel> },
    /// Horizontal bars. A bar with an upper value is drawn as a dot and a line.
    Bars { x: Axis, groups: Vec<Group> },
    /// Several quantities of the same things: bars side by side, each column with an axis of its own.
    /// All columns have the same groups and labels.
    Columns(Vec<(Axis, Vec<Group>)>),
}

#[derive(Clone, Debug)]
pub(super) struct Chart {
    pub(super) title: &'static str,
    /// How to read the chart, in one line.
    pub(super) subtitle: &'static str,
    pub(super) plot: Plot,
}

const WIDTH: f64 = 900.0;
const MARGIN: f64 = 16.0;
/// Height of a line of text.
const LINE: f64 = 20.0;
/// Estimated width of a character. SVG text has no known width before it is shown.
const CHARACTER: f64 = 7.4;
const PANEL_HEIGHT: f64 = 260.0;
const ROW: f64 = 22.0;
/// Space right of the longest bar, for its numbers.
const NUMBERS: f64 = 120.0;
/// The same in one of several columns, whose bars have no upper values.
const COLUMN_NUMBERS: f64 = 60.0;
/// Lines with more points have no markers.
const MAX_MARKERS: usize = 30;

/// Colors of the styles, on a light and on a dark background.
const COLORS: [(&str, &str); 6] = [
    ("#0550ae", "#58a6ff"),
    ("#bc4c00", "#f0883e"),
    ("#1a7f37", "#56d364"),
    ("#8250df", "#d2a8ff"),
    ("#57606a", "#9ea7b3"),
    ("#9a6700", "#e3b341"),
];

impl Chart {
    /// The text of the picture. `name` is the argument of `erpc-bench figures` that draws it.
    pub(super) fn svg(&self, name: &str) -> String {
        let mut svg = Svg(String::new());
        svg.text((MARGIN, 28.0), "h", "start", self.title);
        svg.text((MARGIN, 28.0 + LINE), "q", "start", self.subtitle);
        let top = 28.0 + 2.0 * LINE;
        let height = match &self.plot {
            Plot::Lines { x, y, panels } => lines(&mut svg, top, (x, y), panels),
            Plot::Bars { x, groups } => bars(&mut svg, top, x, groups),
            Plot::Columns(columns) => bar_columns(&mut svg, top, columns),
        };
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
             height=\"{height}\" role=\"img\">\n<!-- Drawn by: erpc-bench figures {name} -->\n<title>{}</title>\n",
            escaped(self.title)
        );
        out.push_str(&style());
        let _ = writeln!(out, "<rect class=\"bg\" width=\"{WIDTH}\" height=\"{height}\"/>");
        out.push_str(&svg.0);
        out.push_str("</svg>\n");
        out
    }
}

fn style() -> String {
    let colors = |dark: bool| {
        let mut rules = String::new();
        for (number, (light_color, dark_color)) in COLORS.iter().enumerate() {
            let color = if dark { dark_color } else { light_color };
            let _ = write!(rules, ".c{number}{{fill:{color};stroke:{color}}}");
        }
        rules
    };
    format!(
        "<style>\ntext{{font:13px system-ui,sans-serif;fill:#1f2328}}.h{{font-size:16px;font-weight:600}}\
         .b{{font-weight:600}}.q{{fill:#57606a}}\n.bg{{fill:#fff}}.grid{{stroke:#d8dee4}}.axis{{stroke:#57606a;fill:none}}\n\
         {}.l{{fill:none;stroke-width:2}}\n@media(prefers-color-scheme:dark){{text{{fill:#e6edf3}}.q{{fill:#9ea7b3}}\
         .bg{{fill:#0d1117}}.grid{{stroke:#30363d}}.axis{{stroke:#9ea7b3}}{}.l{{fill:none}}}}\n</style>\n",
        colors(false),
        colors(true)
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// A coordinate, rounded to one decimal.
fn px(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map(str::to_owned).unwrap_or(text)
}

/// Elements, one per line.
struct Svg(String);

impl Svg {
    fn text(&mut self, (x, y): (f64, f64), class: &str, anchor: &str, text: &str) {
        let (x, y, text) = (px(x), px(y), escaped(text));
        let _ = writeln!(
            self.0,
            "<text x=\"{x}\" y=\"{y}\" class=\"{class}\" text-anchor=\"{anchor}\">{text}</text>"
        );
    }

    /// A label that is read from bottom to top.
    fn upward(&mut self, (x, y): (f64, f64), text: &str) {
        let (x, y, text) = (px(x), px(y), escaped(text));
        let _ = writeln!(
            self.0,
            "<text transform=\"translate({x} {y})rotate(-90)\" text-anchor=\"middle\">{text}</text>"
        );
    }

    fn path(&mut self, class: &str, dashed: bool, points: &[(f64, f64)]) {
        let dash = if dashed { " stroke-dasharray=\"6 4\"" } else { "" };
        let points: Vec<String> =
            points.iter().map(|(x, y)| format!("{} {}", px(*x), px(*y))).collect();
        let points = points.join("L");
        let _ = writeln!(self.0, "<path class=\"{class}\"{dash} d=\"M{points}\"/>");
    }

    /// A marker, whose shape depends on the style as its color does.
    fn marker(&mut self, style: usize, (x, y): (f64, f64)) {
        let style = style % COLORS.len();
        let at = |dx: f64, dy: f64| format!("{} {}", px(x + dx), px(y + dy));
        let polygon = |corners: &[(f64, f64)]| {
            let corners: Vec<String> = corners.iter().map(|(dx, dy)| at(*dx, *dy)).collect();
            format!("<path class=\"c{style}\" d=\"M{}z\"/>", corners.join("L"))
        };
        let shape = match style % 4 {
            0 => {
                format!("<circle class=\"c{style}\" cx=\"{}\" cy=\"{}\" r=\"3.5\"/>", px(x), px(y))
            }
            1 => polygon(&[(-3.0, -3.0), (3.0, -3.0), (3.0, 3.0), (-3.0, 3.0)]),
            2 => polygon(&[(-4.0, 3.0), (0.0, -4.0), (4.0, 3.0)]),
            _ => polygon(&[(-4.0, 0.0), (0.0, -4.0), (4.0, 0.0), (0.0, 4.0)]),
        };
        self.0.push_str(&shape);
        self.0.push('\n');
    }
}

impl Axis {
    /// Position of a value, from 0 to 1.
    fn part(&self, value: f64) -> f64 {
        let (low, high) = self.range;
        let part = match self.scale {
            Scale::Linear => (value - low) / (high - low),
            Scale::Log => (value.max(low) / low).ln() / (high / low).ln(),
        };
        part.clamp(0.0, 1.0)
    }

    /// Values that get a grid line and a number.
    fn ticks(&self) -> Vec<f64> {
        let (low, high) = self.range;
        let inside = |tick: &f64| (low * 0.999..=high * 1.001).contains(tick);
        match self.scale {
            Scale::Linear => {
                let rough = (high - low) / 6.0;
                let power = 10f64.powf(rough.log10().floor());
                let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power);
                let step = step.into_iter().find(|step| *step >= rough).unwrap_or(10.0 * power);
                let first = (low / step).ceil() as i64;
                (first..)
                    .map(|count| count as f64 * step)
                    .take_while(|tick| *tick <= high * 1.001)
                    .collect()
            }
            Scale::Log => {
                let factors: &[f64] = if high / low > 300.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
                let powers = (low.log10().floor() as i32)..=(high.log10().ceil() as i32);
                let ticks = powers
                    .flat_map(|power| factors.iter().map(move |factor| factor * 10f64.powi(power)));
                ticks.filter(inside).collect()
            }
        }
    }
}

/// A number for people. Below 100 it has about three significant digits, without trailing zeros;
/// from 100 on it is rounded to a whole number, with a comma between thousands. At 0.01 and below,
/// except for 0, it is a power of ten or in scientific notation. A negative number has the form of
/// its absolute value.
pub(super) fn number(value: f64) -> String {
    let decimals = match value.abs() {
        0.0 => 0,
        small if small <= 0.01 => return power_of_ten(value),
        small if small < 1.0 => 3,
        small if small < 10.0 => 2,
        small if small < 100.0 => 1,
        _ => 0,
    };
    let text = format!("{value:.decimals$}");
    if decimals > 0 {
        return text.trim_end_matches('0').trim_end_matches('.').to_owned();
    }
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", &text[..]),
    };
    let mut grouped = sign.to_owned();
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

fn power_of_ten(value: f64) -> String {
    let text = format!("{value:e}");
    match text.strip_prefix("1e") {
        Some(power) => format!("10^{power}"),
        None => text,
    }
}

/// A rectangle of the picture that holds a plot.
struct Frame {
    left: f64,
    top: f64,
    width: f64,
    height: f64,
}

impl Frame {
    fn x(&self, axis: &Axis, value: f64) -> f64 {
        self.left + axis.part(value) * self.width
    }

    fn y(&self, axis: &Axis, value: f64) -> f64 {
        self.top + (1.0 - axis.part(value)) * self.height
    }

    fn bottom(&self) -> f64 {
        self.top + self.height
    }

    /// Vertical grid lines.
    fn draw_grid(&self, svg: &mut Svg, axis: &Axis) {
        for tick in axis.ticks() {
            let x = self.x(axis, tick);
            svg.path("grid", false, &[(x, self.top), (x, self.bottom())]);
        }
    }

    /// Numbers under the grid lines, and the label under them.
    fn draw_x(&self, svg: &mut Svg, axis: &Axis) {
        for tick in axis.ticks() {
            let at = (self.x(axis, tick), self.bottom() + 16.0);
            svg.text(at, "q", "middle", &number(tick));
        }
        let middle = self.left + self.width / 2.0;
        svg.text((middle, self.bottom() + 36.0), "", "middle", axis.label);
    }

    /// Horizontal grid lines with numbers, and the label left of them.
    fn draw_y(&self, svg: &mut Svg, axis: &Axis) {
        for tick in axis.ticks() {
            let y = self.y(axis, tick);
            svg.path("grid", false, &[(self.left, y), (self.left + self.width, y)]);
            svg.text((self.left - 6.0, y + 4.0), "q", "end", &number(tick));
        }
        svg.upward((self.left - 50.0, self.top + self.height / 2.0), axis.label);
    }

    fn draw_axes(&self, svg: &mut Svg) {
        let corners = [
            (self.left, self.top),
            (self.left, self.bottom()),
            (self.left + self.width, self.bottom()),
        ];
        svg.path("axis", false, &corners);
    }
}

/// Draws panels under a legend: one panel over the full width, several in rows of two. Returns the
/// height of the picture.
fn lines(svg: &mut Svg, top: f64, (x, y): (&Axis, &Axis), panels: &[Panel]) -> f64 {
    let mut named: Vec<&Series> = Vec::new();
    for series in panels.iter().flat_map(|panel| &panel.series) {
        if !named.iter().any(|other| other.name == series.name) {
            named.push(series);
        }
    }
    let (mut left, mut legend) = (MARGIN, top + 6.0);
    for series in named {
        let width = 42.0 + series.name.len() as f64 * CHARACTER;
        if left + width > WIDTH - MARGIN && left > MARGIN {
            (left, legend) = (MARGIN, legend + LINE);
        }
        let class = format!("c{} l", series.style % COLORS.len());
        svg.path(&class, series.dashed, &[(left, legend - 4.0), (left + 26.0, legend - 4.0)]);
        if series.points.len() <= MAX_MARKERS {
            svg.marker(series.style, (left + 13.0, legend - 4.0));
        }
        svg.text((left + 32.0, legend), "", "start", series.name);
        left += width + 8.0;
    }
    let columns = if panels.len() == 1 { 1 } else { 2 };
    let (width, first) = (WIDTH / columns as f64, legend + 8.0);
    for (at, panel) in panels.iter().enumerate() {
        let (column, row) = ((at % columns) as f64, (at / columns) as f64);
        let frame = Frame {
            left: column * width + 70.0,
            top: first + row * (PANEL_HEIGHT + 16.0) + 26.0,
            width: width - 70.0 - MARGIN - 6.0,
            height: PANEL_HEIGHT - 26.0 - 44.0,
        };
        svg.text((frame.left, frame.top - 8.0), "b", "start", &panel.title);
        frame.draw_grid(svg, x);
        frame.draw_x(svg, x);
        frame.draw_y(svg, y);
        frame.draw_axes(svg);
        for series in &panel.series {
            let points: Vec<(f64, f64)> = series
                .points
                .iter()
                .map(|point| (frame.x(x, point.0), frame.y(y, point.1)))
                .collect();
            if points.is_empty() {
                continue;
            }
            svg.path(&format!("c{} l", series.style % COLORS.len()), series.dashed, &points);
            if points.len() <= MAX_MARKERS {
                points.iter().for_each(|point| svg.marker(series.style, *point));
            }
        }
    }
    first + panels.len().div_ceil(columns) as f64 * (PANEL_HEIGHT + 16.0) + 4.0
}

/// Where bars begin, right of their labels.
fn right_of_labels(groups: &[Group]) -> f64 {
    let labels = groups.iter().flat_map(|group| &group.bars).map(|bar| bar.label.len());
    MARGIN + labels.max().unwrap_or_default() as f64 * CHARACTER + 8.0
}

/// Draws groups of bars, one below the other. Returns the height of the picture.
fn bars(svg: &mut Svg, top: f64, x: &Axis, groups: &[Group]) -> f64 {
    let left = right_of_labels(groups);
    let frame = Frame { left, top, width: WIDTH - left - NUMBERS, height: 0.0 };
    bars_in(svg, frame, x, groups, true)
}

/// Draws columns of bars beside each other. The labels are left of the first. Returns the height of the
/// picture.
fn bar_columns(svg: &mut Svg, top: f64, columns: &[(Axis, Vec<Group>)]) -> f64 {
    let first = columns.first().map_or(MARGIN, |(_, groups)| right_of_labels(groups));
    let width = (WIDTH - first) / columns.len().max(1) as f64;
    let mut height = top;
    for (at, (x, groups)) in columns.iter().enumerate() {
        let left = first + at as f64 * width;
        let frame = Frame { left, top, width: width - COLUMN_NUMBERS, height: 0.0 };
        height = bars_in(svg, frame, x, groups, at == 0).max(height);
    }
    height
}

/// Draws groups of bars at the left edge of a frame, and if `named` their labels left of it. Returns
/// the height of the picture.
fn bars_in(svg: &mut Svg, mut frame: Frame, x: &Axis, groups: &[Group], named: bool) -> f64 {
    let (left, top) = (frame.left, frame.top);
    let mut middle = top + ROW / 2.0;
    for group in groups {
        if !group.title.is_empty() {
            if named {
                svg.text((MARGIN, middle + 4.0), "b", "start", &group.title);
            }
            middle += ROW;
        }
        // The grid leaves out the heading.
        frame.top = middle - ROW / 2.0;
        frame.height = group.bars.len() as f64 * ROW;
        frame.draw_grid(svg, x);
        for bar in &group.bars {
            if named {
                svg.text((left - 8.0, middle + 4.0), "", "end", &bar.label);
            }
            let (from, to) = (frame.x(x, bar.value), frame.x(x, bar.upper.unwrap_or(bar.value)));
            let style = bar.style % COLORS.len();
            let shown = match bar.upper {
                Some(upper) => {
                    svg.path(&format!("c{style} l"), false, &[(from, middle), (to, middle)]);
                    svg.path(
                        &format!("c{style} l"),
                        false,
                        &[(to, middle - 5.0), (to, middle + 5.0)],
                    );
                    svg.marker(style, (from, middle));
                    format!("{} to {}", number(bar.value), number(upper))
                }
                None => {
                    let (x, y, width) = (px(left), px(middle - 7.0), px((from - left).max(1.0)));
                    let _ = writeln!(
                        svg.0,
                        "<rect class=\"c{style}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"14\"/>"
                    );
                    number(bar.value)
                }
            };
            svg.text((to + 10.0, middle + 4.0), "", "start", &shown);
            middle += ROW;
        }
        svg.path("axis", false, &[(left, frame.top), (left, frame.bottom())]);
    }
    svg.path("axis", false, &[(left, frame.bottom()), (left + frame.width, frame.bottom())]);
    frame.draw_x(svg, x);
    frame.bottom() + 52.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(scale: Scale, range: (f64, f64)) -> Axis {
        Axis { label: "time, us", scale, range }
    }

    #[test]
    fn values_become_positions_within_the_axis() {
        let linear = axis(Scale::Linear, (0.0, 8.0));
        assert_eq!(
            [0.0, 2.0, 8.0, 9.0, -1.0].map(|value| linear.part(value)),
            [0.0, 0.25, 1.0, 1.0, 0.0]
        );
        let log = axis(Scale::Log, (1.0, 100.0));
        assert_eq!(
            [0.0, 1.0, 10.0, 100.0, 1e3].map(|value| log.part(value)),
            [0.0, 0.0, 0.5, 1.0, 1.0]
        );
    }

    #[test]
    fn ticks_are_round_numbers_within_the_axis() {
        assert_eq!(axis(Scale::Linear, (0.0, 10.5)).ticks(), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(axis(Scale::Log, (5.0, 60.0)).ticks(), [5.0, 10.0, 20.0, 50.0]);
        assert_eq!(axis(Scale::Log, (5.0, 60_000.0)).ticks(), [10.0, 100.0, 1e3, 1e4]);
        let parts = axis(Scale::Linear, (0.0, 1.05)).ticks();
        assert_eq!(
            parts.into_iter().map(number).collect::<Vec<_>>(),
            ["0", "0.2", "0.4", "0.6", "0.8", "1"]
        );
    }

    #[test]
    fn numbers_have_a_comma_between_thousands_and_no_needless_digits() {
        let cases = [
            (0.0, "0"),
            (1e-5, "10^-5"),
            (0.01, "10^-2"),
            (0.31, "0.31"),
            (0.5, "0.5"),
            (5.4, "5.4"),
            (48.0, "48"),
            (99.96, "100"),
            (562.4, "562"),
            (1_124.0, "1,124"),
            (12_500_000.0, "12,500,000"),
            (-1_234.0, "-1,234"),
        ];
        for (value, text) in cases {
            assert_eq!(number(value), text);
        }
    }

    fn chart(plot: Plot) -> Chart {
        Chart { title: "Calls < 1 & more", subtitle: "how to read", plot }
    }

    #[test]
    fn a_chart_of_lines_has_a_legend_entry_per_name_and_a_marker_per_point() {
        let series = |name, style, points: &[(f64, f64)]| Series {
            name,
            style,
            dashed: style == 1,
            points: points.to_vec(),
        };
        let panel = |title: &str| Panel {
            title: title.to_owned(),
            series: vec![
                series("one", 0, &[(1.0, 2.0), (10.0, 4.0)]),
                series("two", 1, &[(1.0, 8.0)]),
            ],
        };
        let axes = (axis(Scale::Log, (1.0, 100.0)), axis(Scale::Linear, (0.0, 8.0)));
        let svg = chart(Plot::Lines { x: axes.0, y: axes.1, panels: vec![panel("A"), panel("B")] });
        let svg = svg.svg("test");
        assert_eq!(svg.matches(">one</text>").count(), 1);
        assert_eq!(svg.matches("<circle").count(), 2 * 2 + 1, "two points in two panels, legend");
        assert_eq!(svg.matches("stroke-dasharray").count(), 2 + 1);
        assert_eq!(svg.matches(">time, us</text>").count(), 2 * 2, "both axes of both panels");
        assert!(svg.contains(">A</text>") && svg.contains(">B</text>"));
        assert!(svg.contains("<!-- Drawn by: erpc-bench figures test -->"));
    }

    #[test]
    fn a_chart_of_bars_shows_each_value_and_its_upper_value() {
        let bar =
            |label: &str, value, upper| Bar { label: label.to_owned(), style: 0, value, upper };
        let groups = vec![Group {
            title: "20 ways".to_owned(),
            bars: vec![bar("swift", 4.0, None), bar("none", 2.0, Some(1_225.0))],
        }];
        let svg = chart(Plot::Bars { x: axis(Scale::Linear, (0.0, 8.0)), groups }).svg("test");
        assert!(svg.contains(">4</text>") && svg.contains(">2 to 1,225</text>"), "{svg}");
        assert_eq!(svg.matches("<rect").count(), 2, "the background and one bar");
        assert!(svg.contains("<title>Calls &lt; 1 &amp; more</title>"));
    }

    #[test]
    fn columns_share_their_labels() {
        let group = |value| {
            let bar = Bar { label: "a store".to_owned(), style: 0, value, upper: None };
            vec![Group { title: "SmallBank".to_owned(), bars: vec![bar] }]
        };
        let columns = [4.0, 7.0].map(|value| (axis(Scale::Linear, (0.0, 8.0)), group(value)));
        let svg = chart(Plot::Columns(columns.into())).svg("test");
        for (text, count) in [("SmallBank", 1), ("a store", 1), ("time, us", 2), ("7", 1)] {
            assert_eq!(svg.matches(&format!(">{text}</text>")).count(), count, "{text}: {svg}");
        }
        assert_eq!(svg.matches("<rect").count(), 3, "the background and two bars");
    }

    #[test]
    fn every_color_is_defined_for_light_and_dark() {
        let style = style();
        for number in 0..COLORS.len() {
            assert_eq!(style.matches(&format!(".c{number}{{")).count(), 2);
        }
    }
}
