//! Reads the lines of JSON that this tool prints: one flat object per line.

use std::fs;
use std::path::Path;

use crate::failure::Failure;

#[derive(Clone, PartialEq, Debug)]
enum Value {
    Null,
    Number(f64),
    Text(String),
}

/// One line: the result of a run.
#[derive(Clone, Debug)]
pub(crate) struct Row(Vec<(String, Value)>);

impl Row {
    fn value(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|(of, _)| of == name).map(|(_, value)| value)
    }

    /// `None` if the field is missing, `null` or a text.
    pub(crate) fn number(&self, name: &str) -> Option<f64> {
        match self.value(name) {
            Some(Value::Number(number)) => Some(*number),
            _ => None,
        }
    }

    /// `None` if the field is missing, `null` or a number.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        match self.value(name) {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// Whether a field is this text.
    pub(super) fn is(&self, name: &str, text: &str) -> bool {
        self.text(name) == Some(text)
    }

    /// Whether a field is this number, exactly.
    pub(super) fn has(&self, name: &str, number: f64) -> bool {
        self.number(name) == Some(number)
    }
}

/// Reads a file of lines. Empty lines are skipped.
pub(super) fn read(path: &Path) -> Result<Vec<Row>, Failure> {
    let failed = |why: String| Failure::new(format!("{}: {why}", path.display()));
    let text = fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
    rows(&text).map_err(failed)
}

/// Parses lines. The error names the line.
pub(crate) fn rows(text: &str) -> Result<Vec<Row>, String> {
    let lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
    let parsed = lines.map(|(number, line)| {
        Parser(line.trim())
            .object()
            .ok_or_else(|| format!("line {number} is not a flat JSON object"))
    });
    parsed.collect()
}

/// The median of a field over all rows that `wanted` accepts and that have a number in the field;
/// `None` if there are none.
pub(super) fn median_of<'a>(
    rows: &'a [Row],
    field: &str,
    wanted: impl Fn(&Row) -> bool + 'a,
) -> Option<f64> {
    median(rows.iter().filter(|row| wanted(row)).filter_map(|row| row.number(field)).collect())
}

/// Values of `field`, in increasing order, without duplicates.
pub(super) fn distinct(rows: &[Row], field: &str) -> Vec<f64> {
    let mut values: Vec<f64> = rows.iter().filter_map(|row| row.number(field)).collect();
    values.sort_by(f64::total_cmp);
    values.dedup();
    values
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// The part of a line that is not parsed yet.
struct Parser<'a>(&'a str);

impl<'a> Parser<'a> {
    /// Takes `token`, and white space around it.
    fn take(&mut self, token: &str) -> Option<()> {
        self.0 = self.0.trim_start().strip_prefix(token)?.trim_start();
        Some(())
    }

    fn object(mut self) -> Option<Row> {
        let mut fields = Vec::new();
        self.take("{")?;
        while self.take("}").is_none() {
            if !fields.is_empty() {
                self.take(",")?;
            }
            let name = self.string()?.to_owned();
            self.take(":")?;
            fields.push((name, self.value()?));
        }
        self.0.is_empty().then_some(Row(fields))
    }

    /// A text without escapes: the tool prints none.
    fn string(&mut self) -> Option<&'a str> {
        let (text, rest) = self.0.trim_start().strip_prefix('"')?.split_once('"')?;
        self.0 = rest;
        (!text.contains('\\')).then_some(text)
    }

    fn value(&mut self) -> Option<Value> {
        if self.0.starts_with('"') {
            return self.string().map(|text| Value::Text(text.to_owned()));
        }
        if self.take("null").is_some() {
            return Some(Value::Null);
        }
        let end = self.0.find([',', '}', ' '])?;
        let (number, rest) = self.0.split_at(end);
        self.0 = rest;
        number.parse().ok().filter(|number: &f64| number.is_finite()).map(Value::Number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_printed_line_is_read() {
        let read = rows("\n{\"cc\":\"swift\",\"ways\":50,\"ratio\":9.5e-1,\"pp_ns\":null}\n{ }\n");
        let read = read.expect("both lines are objects");
        assert_eq!(read.len(), 2);
        let row = &read[0];
        assert!(row.is("cc", "swift") && row.has("ways", 50.0));
        assert_eq!(row.number("ratio"), Some(0.95));
        assert_eq!((row.number("pp_ns"), row.number("cc"), row.number("gbps")), (None, None, None));
        assert_eq!(row.text("ways"), None);
    }

    #[test]
    fn an_error_names_the_line() {
        for line in [
            "{",
            "{}}",
            "[]",
            "{\"a\" 1}",
            "{\"a\":1 \"b\":2}",
            "{\"a\":x}",
            "{\"a\":{}}",
            "{\"a\":\"\\n\"}",
        ] {
            let error = rows(&format!("{{}}\n{line}\n")).expect_err(line);
            assert_eq!(error, "line 2 is not a flat JSON object", "{line}");
        }
    }
}
