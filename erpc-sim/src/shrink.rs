//! Reduces a failing run to a smaller failing run.

use erpc_core::time::Instant;

use crate::oracle::Violation;
use crate::plan::{Cut, Plan};
use crate::runner::run_plan;
use crate::{Feature, Features, Scenario};

/// The beginning of a command with planted bugs. The target directory is the one that the script
/// `.ci/mutants` uses.
pub const WITH_BUGS: &str = "RUSTFLAGS='--cfg erpc_mutants' CARGO_TARGET_DIR=target/mutants";

/// The smallest failing cut of a seed that was found, and its violation.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// The parts that are left out.
    pub cut: Cut,
    /// The violation of the smaller run.
    pub violation: Violation,
    /// The number of runs that shrinking needed.
    pub runs: u32,
}

/// Removes parts of a failing run without which it still fails: first features, one by one, until
/// none can be removed; then events, first half of them at a time, at the end one at a time.
#[must_use]
pub fn shrink(seed: u64, scenario: Option<Scenario>, cut: &Cut, violation: Violation) -> Shrunk {
    let scenario = scenario.unwrap_or_else(|| Scenario::of_seed(seed));
    shrink_by(
        |cut| Plan::draw(seed, scenario, cut),
        |plan| run_plan(plan).violation(),
        cut,
        violation,
    )
}

/// As [`shrink`], with functions that draw a plan and run it.
fn shrink_by(
    draw: impl Fn(&Cut) -> Plan,
    fails: impl Fn(&Plan) -> Option<Violation>,
    cut: &Cut,
    violation: Violation,
) -> Shrunk {
    let cut = Cut { prints: false, ..cut.clone() };
    let mut shrunk = Shrunk { cut, violation, runs: 0 };
    let attempt = |shrunk: &mut Shrunk, cut: Cut| shrunk.attempt(fails(&draw(&cut)), cut);
    while {
        let features = draw(&shrunk.cut).features;
        features.iter().any(|feature| {
            let without = shrunk.cut.without.with(feature);
            let skip = renumbered(&draw, &shrunk.cut, without);
            attempt(&mut shrunk, Cut { without, skip, prints: false })
        })
    } {}
    let all = Cut { skip: Vec::new(), ..shrunk.cut.clone() };
    let events = draw(&all).events.len();
    let mut piece = events.div_ceil(2);
    while piece > 0 {
        for from in (0..events).step_by(piece) {
            let mut cut = shrunk.cut.clone();
            cut.skip.extend(from..(from + piece).min(events));
            cut.skip.sort_unstable();
            cut.skip.dedup();
            if cut.skip.len() > shrunk.cut.skip.len() {
                attempt(&mut shrunk, cut);
            }
        }
        piece /= 2;
    }
    shrunk
}

/// The numbers of the events that `cut` skips, after the features in `without` are removed.
/// `without` includes the features that `cut` removes.
fn renumbered(draw: impl Fn(&Cut) -> Plan, cut: &Cut, without: Features) -> Vec<usize> {
    if cut.skip.is_empty() {
        return Vec::new();
    }
    let [before, after] = [cut.without, without]
        .map(|without| draw(&Cut { without, skip: Vec::new(), prints: false }).events);
    let mut skip = Vec::new();
    // The remaining events keep their order.
    let mut number = 0;
    for (at, event) in before.iter().enumerate() {
        if after.get(number) == Some(event) {
            if cut.skip.contains(&at) {
                skip.push(number);
            }
            number += 1;
        }
    }
    skip
}

/// The command that runs a seed again, with the same cut and the same planted bug.
#[must_use]
pub fn command(seed: u64, scenario: Option<Scenario>, cut: &Cut) -> String {
    let mut command = format!("cargo run --release -p erpc-sim -- run --seeds 1 --from {seed}");
    #[cfg(erpc_mutants)]
    if let Some(bug) = crate::mutants::chosen() {
        command = format!("{WITH_BUGS} {command} --bug {bug:?}");
    }
    if let Some(scenario) = scenario {
        command += &format!(" --scenario {}", scenario.name());
    }
    if cut.without != Features::none() {
        command += &format!(" --without {}", cut.without);
    }
    if !cut.skip.is_empty() {
        let skipped: Vec<_> = cut.skip.iter().map(ToString::to_string).collect();
        command += &format!(" --skip {}", skipped.join(","));
    }
    command
}

/// The text of a violation without its numbers. Two violations with the same text count as the
/// same.
fn kind(violation: &Violation) -> String {
    violation.what.chars().filter(|letter| !letter.is_ascii_digit()).take(120).collect()
}

impl Shrunk {
    /// Accepts `cut` if the run still fails in the same way.
    fn attempt(&mut self, violation: Option<Violation>, cut: Cut) -> bool {
        self.runs += 1;
        let Some(violation) = violation else { return false };
        if kind(&violation) != kind(&self.violation) {
            return false;
        }
        (self.cut, self.violation) = (cut, violation);
        true
    }

    /// Whether the run is smaller than the run with `cut`.
    #[must_use]
    pub fn is_smaller(&self, cut: &Cut) -> bool {
        (self.cut.without, &self.cut.skip) != (cut.without, &cut.skip)
    }

    /// What remains in the reduced run, in words: one line with all features, then one line per
    /// event.
    #[must_use]
    pub fn rest(&self, seed: u64, scenario: Option<Scenario>) -> Vec<String> {
        let scenario = scenario.unwrap_or_else(|| Scenario::of_seed(seed));
        let plan = Plan::draw(seed, scenario, &self.cut);
        let features: Vec<_> = plan.features.iter().map(Feature::name).collect();
        let features = match features.is_empty() {
            true => "no feature remains".to_owned(),
            false => format!("features that remain: {}", features.join(", ")),
        };
        let events = plan.events.iter().enumerate();
        let event = |(index, (at, _)): (usize, &(Instant, _))| {
            format!("at {} ns, {}", at.as_nanos(), plan.event_in_words(index))
        };
        std::iter::once(features).chain(events.map(event)).collect()
    }

    /// The command that runs the reduced seed again.
    #[must_use]
    pub fn command(&self, seed: u64, scenario: Option<Scenario>) -> String {
        command(seed, scenario, &self.cut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::PlannedEvent;

    const SCENARIO: Scenario = Scenario::Star;

    /// Fails if the plan has losses, a jumping clock, and both of these events.
    fn fails(plan: &Plan, both: &[(Instant, PlannedEvent)]) -> Option<Violation> {
        let features = [Feature::Loss, Feature::ClockLeap];
        let fails = features.iter().all(|&feature| plan.features.has(feature))
            && both.iter().all(|event| plan.events.contains(event));
        // The number in this text varies from plan to plan. `kind` ignores it.
        let what = format!("{} events are too many", plan.events.len());
        fails.then_some(Violation { at: plan.heal_at, place: None, what })
    }

    /// Shrinks a run that fails because of two events: the `first`-th and the `last`-th from
    /// the end.
    fn shrunk(seed: u64, cut: &Cut, first: usize, last: usize) -> (Shrunk, Plan) {
        let draw = |cut: &Cut| Plan::draw(seed, SCENARIO, cut);
        let events = draw(cut).events;
        let both = [first, last].map(|at| events[events.len() - 1 - at].clone());
        let failure = fails(&draw(cut), &both).expect("the run fails before shrinking");
        let shrunk = shrink_by(draw, |plan| fails(plan, &both), cut, failure);
        let plan = draw(&shrunk.cut);
        assert_eq!(fails(&plan, &both), Some(shrunk.violation.clone()), "it still fails");
        (shrunk, plan)
    }

    /// Seeds whose plans have the features and enough events for `fails`.
    fn seeds(count: usize) -> impl Iterator<Item = u64> {
        let is_rich = |seed: &u64| {
            let plan = Plan::draw(*seed, SCENARIO, &Cut::default());
            let wanted = [Feature::Loss, Feature::ClockLeap].into_iter();
            wanted.into_iter().all(|feature| plan.features.has(feature)) && plan.events.len() >= 12
        };
        (0..).filter(is_rich).take(count)
    }

    #[test]
    fn every_part_of_a_shrunk_run_is_needed() {
        for seed in seeds(20) {
            let (shrunk, plan) = shrunk(seed, &Cut::default(), 2, 7);
            assert_eq!(plan.events.len(), 2, "seed {seed}: {:?}", shrunk.cut);
            for feature in plan.features.iter() {
                let cut = Cut { without: shrunk.cut.without.with(feature), ..Cut::default() };
                let all = Plan::draw(seed, SCENARIO, &cut);
                let both = &plan.events;
                assert_eq!(fails(&all, both), None, "seed {seed} needs no {}", feature.name());
            }
            assert!(shrunk.runs < 500, "seed {seed} takes {} runs", shrunk.runs);
        }
    }

    #[test]
    fn skipped_events_stay_skipped_when_their_numbers_change() {
        for seed in seeds(20) {
            let all = Plan::draw(seed, SCENARIO, &Cut::default()).events;
            let cut = Cut { skip: vec![0, 3, all.len() - 1], ..Cut::default() };
            let (shrunk, plan) = shrunk(seed, &cut, 1, 4);
            assert_eq!(plan.events.len(), 2, "seed {seed}: {:?}", shrunk.cut);
            let without = Cut { skip: Vec::new(), ..shrunk.cut.clone() };
            let most = Plan::draw(seed, SCENARIO, &without).events.len();
            assert!(shrunk.cut.skip.iter().all(|&at| at < most), "seed {seed}: {:?}", shrunk.cut);
            assert!(shrunk.cut.skip.is_sorted());
        }
    }

    #[test]
    fn the_rest_of_a_shrunk_run_is_told_with_the_numbers_of_its_events() {
        let seed = seeds(1).next().expect("there is always another seed");
        let (shrunk, plan) = shrunk(seed, &Cut::default(), 2, 7);
        assert!(shrunk.is_smaller(&Cut::default()) && !shrunk.is_smaller(&shrunk.cut));
        let rest = shrunk.rest(seed, Some(SCENARIO));
        let features: Vec<_> = plan.features.iter().map(Feature::name).collect();
        assert_eq!(rest[0], format!("features that remain: {}", features.join(", ")));
        assert_eq!(rest.len(), 1 + plan.events.len());
        // The number in an event's line is the one that `skip` takes: with this number skipped,
        // only this event is gone.
        let number = rest[1].split("event ").nth(1).and_then(|text| text.split(':').next());
        let number = number.and_then(|text| text.parse().ok()).expect("a number");
        let mut skip = shrunk.cut.skip.clone();
        assert!(!skip.contains(&number), "{rest:?}");
        skip.push(number);
        let without = Plan::draw(seed, SCENARIO, &Cut { skip, ..shrunk.cut.clone() });
        assert_eq!(without.events, plan.events[1..]);
    }

    #[test]
    fn the_command_names_all_cut_features_and_events() {
        let cut = Cut {
            without: Features::of(&[Feature::Loss, Feature::OneWay]),
            skip: vec![1, 12],
            prints: true,
        };
        let said = command(7, Some(Scenario::TwoTier), &cut);
        let wanted =
            "-- run --seeds 1 --from 7 --scenario two-tier --without loss,one-way --skip 1,12";
        assert!(said.ends_with(wanted), "{said}");
        assert!(command(7, None, &Cut::default()).ends_with("-- run --seeds 1 --from 7"));
    }
}
