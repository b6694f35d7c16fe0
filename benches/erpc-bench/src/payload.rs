//! The messages of calls. The bytes of an answer show whether it is complete and belongs to its
//! call.
//!
//! ```text
//!  echo request and answer             sink request                     sink answer, 32 bytes
//! +--------+--------+---------+       +--------+----------------+      +------+--------+-----+---+
//! | number | length | pattern |       | number | pattern        |      | num- | length | sum | 0 |
//! | u64    | wanted | ..      |       | u64    | ..             |      | ber  | u64    | u64 |   |
//! +--------+--------+---------+       +--------+----------------+      +------+--------+-----+---+
//! ```
//!
//! In an echo, each word of the pattern depends on the call's number and on the word's position. So
//! a request and its answer start with the same bytes, and the answer of another call is detected.
//! In a sink request, the words of the pattern depend only on their positions. A mirror request
//! looks like a sink request; its answer has the same bytes. A request to the source looks like an
//! echo request; its answer looks like a sink request.

/// Smallest request and smallest answer of an echo, in bytes.
pub(crate) const MIN_ECHO: usize = 2 * WORD;
/// Bytes in front of an echo's pattern.
const HEAD: usize = MIN_ECHO;
const WORD: usize = size_of::<u64>();
/// Largest request and answer, in bytes: the default limit of endpoints.
pub(crate) const MAX_MESSAGE: usize = 8 << 20;

/// Parses the size of a message, in bytes, for the command line.
pub(crate) fn message(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(bytes) if bytes <= MAX_MESSAGE => Ok(bytes),
        _ => Err(format!("a number of bytes, 0 to {MAX_MESSAGE}, is wanted")),
    }
}

/// The lengths of the messages of a mixed load, in bytes. Calls in flight have them in turn.
#[derive(Clone)]
pub(crate) struct Lengths(Vec<usize>);

impl Lengths {
    /// The powers of two from 32 to 4,096 bytes.
    pub(crate) fn mixed() -> Self {
        Self((5..=12).map(|exponent| 1 << exponent).collect())
    }

    /// Parses a range, such as `32-288`, for the command line: 64 lengths, spread evenly.
    pub(crate) fn spread(text: &str) -> Result<Self, String> {
        const COUNT: usize = 64;
        let parsed = text.split_once('-').and_then(|(from, to)| {
            let (from, to) = (from.parse().ok()?, to.parse().ok()?);
            (MIN_ECHO <= from && from <= to && to <= MAX_MESSAGE).then_some((from, to))
        });
        let Some((from, to)) = parsed else {
            return Err(format!(
                "two numbers of bytes, {MIN_ECHO} to {MAX_MESSAGE}, are wanted, such as 32-288"
            ));
        };
        // 37 and 64 have no common divisor, so each length occurs once. The large step makes
        // neighbours differ.
        Ok(Self((0..COUNT).map(|i| from + (to - from) * (i * 37 % COUNT) / (COUNT - 1)).collect()))
    }

    /// The length of the messages of the call in flight with this number.
    #[inline]
    pub(crate) fn of(&self, call: usize) -> usize {
        self.0[call % self.0.len()]
    }

    pub(crate) fn longest(&self) -> usize {
        self.0.iter().copied().max().unwrap_or(0)
    }

    pub(crate) fn average(&self) -> usize {
        self.0.iter().sum::<usize>() / self.0.len()
    }
}

/// Bytes of a sink's answer, and of a request to the source.
pub(crate) const SINK_ANSWER: usize = 32;
/// The sum of a sink includes one word of each block of this many bytes. So the sum detects missing
/// parts of a large message, although the server does not read all of the message.
const SUM_STEP: usize = 1_024;

/// Writes an echo request that fills `out` and asks for `answer` bytes.
#[inline]
pub(crate) fn write_echo(out: &mut [u8], number: u64, answer: usize) {
    let (head, pattern) = out.split_at_mut(HEAD);
    head[..WORD].copy_from_slice(&number.to_le_bytes());
    head[WORD..].copy_from_slice(&(answer as u64).to_le_bytes());
    write_pattern(pattern, number, 0);
}

/// Size of the answer that an echo request asks for. `None` if this is not an echo request.
#[inline]
pub(crate) fn wanted(request: &[u8]) -> Option<usize> {
    let len = number_of(request.get(WORD..)?);
    (MIN_ECHO as u64..=MAX_MESSAGE as u64).contains(&len).then_some(len as usize)
}

/// Writes the answer to an echo request. `out` has the size that the request asks for.
#[inline]
pub(crate) fn answer_echo(request: &[u8], out: &mut [u8]) {
    let common = request.len().min(out.len());
    out[..common].copy_from_slice(&request[..common]);
    if common < out.len() {
        // Writes the pattern again from the word in which the request ends.
        let first = (common - HEAD) / WORD;
        write_pattern(&mut out[HEAD + first * WORD..], number_of(request), first as u64);
    }
}

/// Whether this is the answer of `len` bytes to echo request `number`.
#[inline]
pub(crate) fn is_echo(answer: &[u8], number: u64, len: usize) -> bool {
    let Some((head, pattern)) = answer.split_at_checked(HEAD) else { return false };
    let wrong = number_of(head) ^ number | number_of(&head[WORD..]) ^ len as u64;
    wrong == 0 && answer.len() == len && is_pattern(pattern, number)
}

/// Fills a mirror or a sink request; [`number_request`] then gives it a number.
pub(crate) fn fill(out: &mut [u8]) {
    write_pattern(out, 0, 0);
}

/// Whether two messages are equal. Two comparisons of 16 bytes for small messages, because a call of
/// `memcmp` takes a tenth of the client's time.
#[inline(always)]
pub(crate) fn is_equal(a: &[u8], b: &[u8]) -> bool {
    const HALF: usize = 16;
    let words = |bytes: &[u8]| {
        let (first, last) = (bytes.first_chunk::<HALF>()?, bytes.last_chunk::<HALF>()?);
        Some((u128::from_ne_bytes(*first), u128::from_ne_bytes(*last)))
    };
    if a.len() != b.len() || a.len() > 2 * HALF {
        return a == b;
    }
    match (words(a), words(b)) {
        (Some(a), Some(b)) => a == b,
        _ => a == b,
    }
}

/// Gives a request its number. A request of less than 8 bytes is filled with the number's lowest
/// byte.
#[inline]
pub(crate) fn number_request(request: &mut [u8], number: u64) {
    match request.first_chunk_mut::<WORD>() {
        Some(front) => *front = number.to_le_bytes(),
        None => request.fill(number as u8),
    }
}

/// The answer to a sink request.
pub(crate) fn answer_sink(request: &[u8]) -> [u8; SINK_ANSWER] {
    sink_answer(number_of(request), request.len(), sum(request))
}

/// The expected answers to sink requests that differ only in their number.
pub(crate) struct SinkAnswers {
    len: usize,
    sum_without_number: u64,
}

impl SinkAnswers {
    /// The answers to requests that differ from `request` only in their number.
    pub(crate) fn to(request: &[u8]) -> Self {
        Self {
            len: request.len(),
            sum_without_number: sum(request).wrapping_sub(number_of(request)),
        }
    }

    /// Whether this is the answer to request `number`.
    pub(crate) fn is_answer(&self, answer: &[u8], number: u64) -> bool {
        answer == sink_answer(number, self.len, self.sum_without_number.wrapping_add(number))
    }
}

fn sink_answer(number: u64, len: usize, sum: u64) -> [u8; SINK_ANSWER] {
    let mut answer = [0; SINK_ANSWER];
    answer[..8].copy_from_slice(&number.to_le_bytes());
    answer[8..16].copy_from_slice(&(len as u64).to_le_bytes());
    answer[16..24].copy_from_slice(&sum.to_le_bytes());
    answer
}

/// The number at the front of a message; 0 if the message has less than 8 bytes.
#[inline]
pub(crate) fn number_of(message: &[u8]) -> u64 {
    message.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// Writes the source's answer `number`. Memory that already holds an answer of the source gets
/// only its number: a server that answers again in the same memory need not write all of it, as a
/// client that calls again with the same request does not.
pub(crate) fn source(out: &mut [u8], number: u64) {
    if !is_sampled(out) {
        fill(out);
    }
    number_request(out, number);
}

/// Whether this is the source's answer `number`, of `len` bytes. Reads one word of each KiB.
pub(crate) fn is_sourced(answer: &[u8], number: u64, len: usize) -> bool {
    answer.len() == len && number_of(answer) == number && is_sampled(answer)
}

/// Whether the last word, and one word of each KiB except the first, are those of the pattern.
fn is_sampled(message: &[u8]) -> bool {
    let is_word = |at: usize| number_of(&message[at..]) == word(0, (at / WORD) as u64);
    let Some(last) = (message.len() / WORD).checked_sub(1) else { return false };
    (SUM_STEP..=last * WORD).step_by(SUM_STEP).chain([last * WORD]).all(is_word)
}

fn sum(message: &[u8]) -> u64 {
    message.chunks(SUM_STEP).map(number_of).fold(0, u64::wrapping_add)
}

/// Word `index` of the pattern.
#[inline]
fn word(number: u64, index: u64) -> u64 {
    // No byte of the factor is 00 or FF, so the words of neighbouring numbers differ in every byte.
    number.wrapping_add(index).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// Fills `out`, which begins with word `first` of the pattern.
#[inline]
fn write_pattern(out: &mut [u8], number: u64, first: u64) {
    let mut words = out.chunks_exact_mut(WORD);
    let mut index = first;
    for out in &mut words {
        out.copy_from_slice(&word(number, index).to_le_bytes());
        index += 1;
    }
    let rest = words.into_remainder();
    if !rest.is_empty() {
        rest.copy_from_slice(&word(number, index).to_le_bytes()[..rest.len()]);
    }
}

/// Whether `bytes` are the start of the pattern.
#[inline]
fn is_pattern(bytes: &[u8], number: u64) -> bool {
    let mut words = bytes.chunks_exact(WORD);
    let (mut index, mut wrong) = (0, 0);
    for bytes in &mut words {
        wrong |= number_of(bytes) ^ word(number, index);
        index += 1;
    }
    let rest = words.remainder();
    wrong == 0 && (rest.is_empty() || *rest == word(number, index).to_le_bytes()[..rest.len()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn echoes_of_all_sizes_are_recognised_and_corruption_is_detected() {
        for (request, answer) in [(16, 16), (32, 32), (32, 16), (19, 700), (700, 64), (703, 701)] {
            let (mut asked, mut answered) = (vec![0; request], vec![0; answer]);
            write_echo(&mut asked, 0x1234_5678_9ABC, answer);
            assert_eq!(wanted(&asked), Some(answer));
            answer_echo(&asked, &mut answered);
            assert!(is_echo(&answered, 0x1234_5678_9ABC, answer));
            assert!(!is_echo(&answered, 0x1234_5678_9ABD, answer));
            for at in 0..answer {
                answered[at] ^= 0x10;
                assert!(!is_echo(&answered, 0x1234_5678_9ABC, answer), "byte {at}");
                answered[at] ^= 0x10;
            }
        }
        assert_eq!(wanted(&[0; 15]), None);
        assert_eq!(wanted(&[0; 16]), None);
    }

    #[test]
    fn a_sourced_answer_is_whole_and_belongs_to_its_call() {
        let mut answer = vec![0; 100_000];
        source(&mut answer, 77);
        assert!(is_sourced(&answer, 77, 100_000));
        assert!(!is_sourced(&answer, 78, 100_000));
        assert!(!is_sourced(&answer[..99_000], 77, 100_000));
        source(&mut answer, 78);
        assert!(is_sourced(&answer, 78, 100_000));
        answer[50_000..52_000].fill(0);
        assert!(!is_sourced(&answer, 78, 100_000));
        source(&mut answer, 79);
        assert!(is_sourced(&answer, 79, 100_000), "the damaged memory is filled again");
    }

    #[test]
    fn a_sink_answer_detects_missing_parts() {
        let mut request = vec![0; 100_000];
        fill(&mut request);
        let answers = SinkAnswers::to(&request);
        number_request(&mut request, 77);
        assert!(answers.is_answer(&answer_sink(&request), 77));
        assert!(!answers.is_answer(&answer_sink(&request), 78));
        assert!(!answers.is_answer(&answer_sink(&request[..99_999]), 77));
        request[50_000..60_000].fill(0);
        assert!(!answers.is_answer(&answer_sink(&request), 77));
    }
}
