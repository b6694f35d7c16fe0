//! `figures`: queues and rates over time, and how long calls take, to look at.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use erpc_sim::lab::incast::{self, Incast, Moment};
use erpc_sim::lab::paths::{self, Paths};
use erpc_sim::lab::scale::{self, Scale};
use plotters::prelude::*;

use super::Control;
use crate::failure::Failure;
use crate::report::Line;

#[derive(Args)]
pub(crate) struct FiguresArgs {
    /// Folder that the figures go to; made if there is none
    #[arg(long)]
    out: PathBuf,
    /// Threads per node up to which the scale experiment is run; each more takes longer
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=14))]
    threads: u16,
    /// Where everything random comes from
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

const SIZE: (u32, u32) = (900, 500);
const CONTROLS: [(Control, RGBColor); 4] = [
    (Control::None, RED),
    (Control::Timely, BLUE),
    (Control::Swift, MAGENTA),
    (Control::Dcqcn, GREEN),
];
/// Round trips of the paths that are drawn, in microseconds, and their clients and rate.
const PATHS: [u64; 11] = [6, 10, 25, 40, 60, 100, 200, 300, 600, 1_000, 2_000];
const PATH_FLOWS: usize = 20;
const PATH_MBPS: u64 = 25_000;
/// Incasts are drawn for so long.
const TIME: Duration = Duration::from_millis(60);
/// Points of a distribution.
const POINTS: usize = 200;

/// A line and its name.
struct Curve {
    name: String,
    color: RGBColor,
    points: Vec<(f64, f64)>,
}

/// What stands at the axes.
struct Axes<'a> {
    title: &'a str,
    x: &'a str,
    y: &'a str,
}

pub(crate) fn figures(args: &FiguresArgs) -> Result<(), Failure> {
    std::fs::create_dir_all(&args.out).map_err(Failure::of("cannot make the folder"))?;
    let mut count = path_figures(args)?;
    for ways in [20, 50, 100] {
        count += incast_figures(args, ways)?;
    }
    let mut curves = Vec::new();
    for (threads, color) in (1..=args.threads).zip([BLUE, RED, GREEN, MAGENTA, CYAN].iter().cycle())
    {
        let scale = Scale { seed: args.seed, ..Scale::new(threads, Control::Swift.config()) };
        let mut report = scale::run(&scale);
        let points = report.latencies.distribution(POINTS).into_iter();
        let points = points.map(|(micros, part)| (micros, 1.0 - part)).collect();
        let name = match threads {
            1 => "1 thread per node".to_owned(),
            _ => format!("{threads} threads per node"),
        };
        curves.push(Curve { name, color: *color, points });
    }
    let axes = Axes {
        title: "100 nodes, 60 calls under way per thread",
        x: "latency, us",
        y: "part of the calls that takes longer",
    };
    draw_tail(&args.out.join("scale-latency.svg"), &axes, &curves)
        .map_err(Failure::of("cannot draw"))?;
    Line::new().int("figures", count + 1).print();
    Ok(())
}

/// What many clients get of paths of any length, and how long their packets queue.
fn path_figures(args: &FiguresArgs) -> Result<u64, Failure> {
    let controls = [(Control::Timely, BLUE), (Control::Swift, MAGENTA)];
    let [shares, queues] = [0, 1].map(|_| {
        controls.map(|(control, color)| Curve {
            name: control.name().to_owned(),
            color,
            points: Vec::new(),
        })
    });
    let mut curves = [shares, queues];
    for (at, (control, _)) in controls.into_iter().enumerate() {
        for micros in PATHS {
            let rtt = Duration::from_micros(micros);
            let path = Paths::new(PATH_FLOWS, rtt, PATH_MBPS, control.config());
            let mut report = paths::run(&Paths { seed: args.seed, ..path });
            let queue = report.queue.micros(0.5).unwrap_or_default();
            let values = [report.gbps / report.achievable_gbps, queue];
            for (curves, value) in curves.iter_mut().zip(values) {
                curves[at].points.push((micros as f64, value));
            }
        }
    }
    let title = format!("{PATH_FLOWS} clients, {} Gb/s", PATH_MBPS / 1_000);
    let kinds =
        [("throughput", "part of the link that is used"), ("queue", "median queueing delay, us")];
    for ((name, y), curves) in kinds.into_iter().zip(&curves) {
        let axes = Axes { title: &title, x: "round trip through empty queues, us", y };
        draw_paths(&args.out.join(format!("paths-{name}.svg")), &axes, curves)
            .map_err(Failure::of("cannot draw"))?;
    }
    Ok(kinds.len() as u64)
}

/// Queue, throughput and a client's rate with each controller.
fn incast_figures(args: &FiguresArgs, ways: u32) -> Result<u64, Failure> {
    let runs = CONTROLS.map(|(control, color)| {
        let incast = Incast {
            warm_up: Duration::ZERO,
            time: TIME,
            seed: args.seed,
            ..Incast::new(ways, control.config())
        };
        (control.name(), color, incast::run(&incast).moments)
    });
    type Value = fn(&Moment) -> f64;
    let kinds: [(&str, &str, Value); 3] = [
        ("queue", "bytes that wait for the receiver's cable, kB", |moment| {
            moment.queue as f64 / 1e3
        }),
        ("throughput", "arriving at the receiver, Gb/s", |moment| moment.gbps),
        ("rate", "rate of the first client's session, Gb/s", |moment| moment.rate),
    ];
    for (name, y, value) in kinds {
        let curves = runs.each_ref().map(|(name, color, moments)| Curve {
            name: (*name).to_owned(),
            color: *color,
            points: smoothed(moments, value),
        });
        let title = format!("{ways}-way incast");
        let axes = Axes { title: &title, x: "ms", y };
        draw(&args.out.join(format!("incast-{ways}-{name}.svg")), &axes, &curves)
            .map_err(Failure::of("cannot draw"))?;
    }
    Ok(kinds.len() as u64)
}

/// Means of five moments each, a tenth of a millisecond.
fn smoothed(moments: &[Moment], value: fn(&Moment) -> f64) -> Vec<(f64, f64)> {
    let mean = |moments: &[Moment]| {
        let sum: f64 = moments.iter().map(value).sum();
        (moments[0].at.as_secs_f64() * 1e3, sum / moments.len() as f64)
    };
    moments.chunks(5).map(mean).collect()
}

fn range(values: impl Iterator<Item = f64>) -> Range<f64> {
    0.0..values.fold(0.0, f64::max).max(f64::MIN_POSITIVE) * 1.05
}

type Drawn = Result<(), Box<dyn std::error::Error>>;

fn draw(path: &Path, axes: &Axes<'_>, curves: &[Curve]) -> Drawn {
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let (x, y) = (range(points().map(|point| point.0)), range(points().map(|point| point.1)));
    let mut chart = ChartBuilder::on(&root)
        .caption(axes.title, ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(70)
        .build_cartesian_2d(x, y)?;
    chart.configure_mesh().x_desc(axes.x).y_desc(axes.y).light_line_style(TRANSPARENT).draw()?;
    for Curve { name, color, points } in curves {
        let series = LineSeries::new(points.iter().copied(), color);
        chart.draw_series(series)?.label(name).legend(swatch(*color));
    }
    chart.configure_series_labels().background_style(WHITE).border_style(BLACK).draw()?;
    root.present()?;
    Ok(())
}

/// The same with a logarithmic axis of round trips.
fn draw_paths(path: &Path, axes: &Axes<'_>, curves: &[Curve]) -> Drawn {
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let y = range(curves.iter().flat_map(|curve| &curve.points).map(|point| point.1));
    let x = PATHS[0] as f64..PATHS[PATHS.len() - 1] as f64;
    let mut chart = ChartBuilder::on(&root)
        .caption(axes.title, ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(70)
        .build_cartesian_2d(x.log_scale(), y)?;
    chart.configure_mesh().x_desc(axes.x).y_desc(axes.y).light_line_style(TRANSPARENT).draw()?;
    for Curve { name, color, points } in curves {
        let series = LineSeries::new(points.iter().copied(), color).point_size(3);
        chart.draw_series(series)?.label(name).legend(swatch(*color));
    }
    chart.configure_series_labels().background_style(WHITE).border_style(BLACK).draw()?;
    root.present()?;
    Ok(())
}

/// The same with a logarithmic axis of what is above each value.
fn draw_tail(path: &Path, axes: &Axes<'_>, curves: &[Curve]) -> Drawn {
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let x = range(curves.iter().flat_map(|curve| &curve.points).map(|point| point.0));
    let mut chart = ChartBuilder::on(&root)
        .caption(axes.title, ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(70)
        .build_cartesian_2d(x, (1e-5..1.0).log_scale())?;
    let label = |part: &f64| format!("{part:.0e}");
    chart
        .configure_mesh()
        .x_desc(axes.x)
        .y_desc(axes.y)
        .y_label_formatter(&label)
        .light_line_style(TRANSPARENT)
        .draw()?;
    for Curve { name, color, points } in curves {
        let shown = points.iter().copied().filter(|point| point.1 >= 1e-5);
        chart.draw_series(LineSeries::new(shown, color))?.label(name).legend(swatch(*color));
    }
    chart.configure_series_labels().background_style(WHITE).border_style(BLACK).draw()?;
    root.present()?;
    Ok(())
}

/// A piece of line for the legend.
fn swatch(color: RGBColor) -> impl Fn((i32, i32)) -> PathElement<(i32, i32)> {
    move |(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], color)
}
