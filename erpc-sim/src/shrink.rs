//! From a run that fails to a smaller one that fails.

use crate::Scenario;
use crate::oracle::Violation;
use crate::plan::{Cut, Plan};
use crate::runner::run_seed;

/// The smallest cut that was found of a seed that fails, and how it fails.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// What can be left out.
    pub cut: Cut,
    /// How it fails then.
    pub violation: Violation,
    /// Runs that it took.
    pub runs: u32,
}

/// Leaves out of a failing run what it fails without: features one by one, until none can be left out;
/// then single happenings, from halves of them down to one.
#[must_use]
pub fn shrink(seed: u64, scenario: Option<Scenario>, cut: &Cut, violation: Violation) -> Shrunk {
    let cut = Cut { prints: false, ..cut.clone() };
    let mut shrunk = Shrunk { cut, violation, runs: 0 };
    let of = scenario.unwrap_or_else(|| Scenario::of_seed(seed));
    while {
        let features = Plan::draw(seed, of, &shrunk.cut).features;
        features.iter().any(|feature| {
            let cut = Cut { without: shrunk.cut.without.with(feature), ..shrunk.cut.clone() };
            shrunk.attempt(seed, scenario, cut)
        })
    } {}
    let all = Cut { skip: Vec::new(), ..shrunk.cut.clone() };
    let happenings = Plan::draw(seed, of, &all).events.len();
    let mut piece = happenings.div_ceil(2);
    while piece > 0 {
        for from in (0..happenings).step_by(piece) {
            let mut cut = shrunk.cut.clone();
            cut.skip.extend(from..(from + piece).min(happenings));
            cut.skip.sort_unstable();
            cut.skip.dedup();
            if cut.skip.len() > shrunk.cut.skip.len() {
                let _ = shrunk.attempt(seed, scenario, cut);
            }
        }
        piece /= 2;
    }
    shrunk
}

/// What a violation says, but for its numbers: whether two are the same one.
fn kind(violation: &Violation) -> String {
    violation.what.chars().filter(|letter| !letter.is_ascii_digit()).take(120).collect()
}

impl Shrunk {
    /// Takes `cut` if the run fails with it in the same way.
    fn attempt(&mut self, seed: u64, scenario: Option<Scenario>, cut: Cut) -> bool {
        self.runs += 1;
        let Some(violation) = run_seed(seed, scenario, &cut).violation() else { return false };
        if kind(&violation) != kind(&self.violation) {
            return false;
        }
        (self.cut, self.violation) = (cut, violation);
        true
    }

    /// The command that runs it again.
    #[must_use]
    pub fn command(&self, seed: u64, scenario: Option<Scenario>) -> String {
        let mut command = format!("cargo run --release -p erpc-sim -- run --seeds 1 --from {seed}");
        if let Some(scenario) = scenario {
            command += &format!(" --scenario {}", scenario.name());
        }
        if self.cut.without != crate::Features::none() {
            command += &format!(" --without {}", self.cut.without);
        }
        if !self.cut.skip.is_empty() {
            let skipped: Vec<_> = self.cut.skip.iter().map(ToString::to_string).collect();
            command += &format!(" --skip {}", skipped.join(","));
        }
        command
    }
}
