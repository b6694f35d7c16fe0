//! `figures`: draws pictures of results from the lines of JSON that the other commands print. So a
//! picture can be drawn again without a measurement.

mod bars;
mod catalogue;
mod chart;
mod data;
mod transactions;

use std::fs;
use std::path::PathBuf;

use clap::Args;
use clap::builder::PossibleValuesParser;

use catalogue::FIGURES;
pub(crate) use data::{Row, rows};

use crate::failure::Failure;
use crate::report::Line;

#[derive(Args)]
pub(crate) struct FiguresArgs {
    /// Pictures to draw [default: all]
    #[arg(value_name = "NAME", value_parser = PossibleValuesParser::new(FIGURES.iter().map(|figure| figure.name)))]
    names: Vec<String>,
    /// Folder with the results, one line of JSON per run
    #[arg(long, default_value = "docs/figures")]
    data: PathBuf,
    /// Folder for the pictures; created if it does not exist
    #[arg(long, default_value = "docs/figures")]
    out: PathBuf,
}

pub(crate) fn run(args: &FiguresArgs) -> Result<(), Failure> {
    fs::create_dir_all(&args.out).map_err(Failure::of("cannot make the folder"))?;
    let mut drawn = 0;
    for figure in &FIGURES {
        if !args.names.is_empty() && !args.names.iter().any(|name| name == figure.name) {
            continue;
        }
        let svg = figure.svg(&args.data)?;
        let path = args.out.join(format!("{}.svg", figure.name));
        fs::write(&path, svg).map_err(Failure::of("cannot write the picture"))?;
        eprintln!("{} from {}", path.display(), args.data.join(figure.data).display());
        drawn += 1;
    }
    Line::new().int("figures", drawn).print();
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_committed_pictures_are_drawn_from_the_committed_data() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/figures");
        for figure in &FIGURES {
            let drawn = figure.svg(&folder).expect("the data is complete");
            let path = folder.join(format!("{}.svg", figure.name));
            let committed = fs::read_to_string(&path).expect("the picture is committed");
            assert!(committed == drawn, "run `erpc-bench figures {}`", figure.name);
        }
    }
}
