//! Random messages of any type, built from its descriptor.

use std::collections::HashMap;

use bytes::Bytes;
use erpc_test_tools::random::Random;
use prost_reflect::{
    DynamicMessage, FieldDescriptor, Kind, MapKey, MessageDescriptor, ReflectMessage, Syntax, Value,
};

/// Maximum depth of nested messages; required fields can be deeper.
const DEPTH: u32 = 5;
/// Maximum number of fields of a message, including those of nested messages. Required fields and
/// the fields of the outermost message are set even beyond this number.
const FIELDS: u32 = 300;
/// A large field of type `bytes` has 0.2 to 1.2 times this number of bytes, often more than fit
/// into the largest datagram (65,507 bytes).
const LARGE: u64 = 100_000;

/// The kind of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// Only required fields.
    Empty,
    /// Every field of the outer two levels (of a oneof, one field), and half of the deeper ones, up
    /// to the maximum number.
    Full,
    /// Some fields. The first field of type `string` or `bytes`, if there is one, is large: see
    /// `LARGE`.
    Large,
    /// Some fields.
    Some,
}

/// Builds a message; the same arguments always give the same message.
pub fn message(descriptor: &MessageDescriptor, shape: Shape, seed: u64) -> DynamicMessage {
    let mut maker = Maker { random: Random::new(seed), left: FIELDS };
    let mut message = maker.message(descriptor, shape, 0);
    if shape == Shape::Large {
        maker.enlarge(&mut message);
    }
    message
}

struct Maker {
    random: Random,
    /// The number of fields that can still be set.
    left: u32,
}

impl Maker {
    fn message(
        &mut self,
        descriptor: &MessageDescriptor,
        shape: Shape,
        depth: u32,
    ) -> DynamicMessage {
        let mut message = DynamicMessage::new(descriptor.clone());
        for field in descriptor.fields().filter(|field| field.containing_oneof().is_none()) {
            if field.is_required() || self.wanted(&field, shape, depth) {
                let value = self.field(&field, shape, depth);
                message.set_field(&field, value);
            }
        }
        for oneof in descriptor.oneofs() {
            let fields: Vec<_> = oneof.fields().collect();
            let field = &fields[self.random.below(fields.len() as u64) as usize];
            if self.wanted(field, shape, depth) {
                let value = self.field(field, shape, depth);
                message.set_field(field, value);
            }
        }
        message
    }

    fn wanted(&mut self, field: &FieldDescriptor, shape: Shape, depth: u32) -> bool {
        let wanted = match shape {
            Shape::Empty => false,
            Shape::Full => depth <= 1 || self.random.below(2) == 0,
            Shape::Large | Shape::Some => self.random.below(3) > 0,
        };
        let nested = matches!(field.kind(), Kind::Message(_));
        let space = (self.left > 0 && (depth < DEPTH || !nested)) || depth == 0;
        if wanted && space {
            self.left = self.left.saturating_sub(1);
        }
        wanted && space
    }

    fn field(&mut self, field: &FieldDescriptor, shape: Shape, depth: u32) -> Value {
        if field.is_map() {
            let Kind::Message(entry) = field.kind() else {
                unreachable!("a map field has entry messages")
            };
            let (key, value) = (entry.map_entry_key_field(), entry.map_entry_value_field());
            let len = self.len(depth);
            let entry = |_| (self.key(&key.kind()), self.value(&value, shape, depth));
            let entries: HashMap<_, _> = (0..len).map(entry).collect();
            Value::Map(entries)
        } else if field.is_list() {
            Value::List((0..self.len(depth)).map(|_| self.value(field, shape, depth)).collect())
        } else {
            self.value(field, shape, depth)
        }
    }

    fn len(&mut self, depth: u32) -> u64 {
        if depth == 0 { 1 + self.random.below(4) } else { 1 + self.random.below(2) }
    }

    fn value(&mut self, field: &FieldDescriptor, shape: Shape, depth: u32) -> Value {
        let random = &mut self.random;
        match field.kind() {
            Kind::Bool => Value::Bool(random.below(2) == 1),
            Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => Value::I32(integer(random) as i32),
            Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => Value::I64(integer(random) as i64),
            Kind::Uint32 | Kind::Fixed32 => Value::U32(integer(random) as u32),
            Kind::Uint64 | Kind::Fixed64 => Value::U64(integer(random)),
            Kind::Float => Value::F32(float(random)),
            Kind::Double => Value::F64(double(random)),
            Kind::String => Value::String(text(random)),
            Kind::Bytes => Value::Bytes(blob(random)),
            Kind::Message(message) => Value::Message(self.message(&message, shape, depth + 1)),
            Kind::Enum(description) => {
                let open = description.parent_file().syntax() != Syntax::Proto2;
                if open && random.below(4) == 0 {
                    return Value::EnumNumber(integer(random) as i32);
                }
                let values: Vec<_> = description.values().map(|value| value.number()).collect();
                Value::EnumNumber(*random.pick(&values))
            }
        }
    }

    fn key(&mut self, kind: &Kind) -> MapKey {
        let random = &mut self.random;
        match kind {
            Kind::Bool => MapKey::Bool(random.below(2) == 1),
            Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => MapKey::I32(integer(random) as i32),
            Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => MapKey::I64(integer(random) as i64),
            Kind::Uint32 | Kind::Fixed32 => MapKey::U32(integer(random) as u32),
            Kind::Uint64 | Kind::Fixed64 => MapKey::U64(integer(random)),
            Kind::String => MapKey::String(text(random)),
            other => unreachable!("{other:?} cannot be the type of a key"),
        }
    }

    /// Makes the first field of type `string` or `bytes` large.
    fn enlarge(&mut self, message: &mut DynamicMessage) {
        let len = (LARGE / 5 + self.random.below(LARGE)) as usize;
        let can_be_large = |field: &FieldDescriptor| {
            !field.is_map() && matches!(field.kind(), Kind::String | Kind::Bytes)
        };
        let descriptor = message.descriptor();
        let Some(field) = descriptor.fields().find(can_be_large) else { return };
        let value = match field.kind() {
            Kind::Bytes => Value::Bytes((0..len).map(|_| self.random.word() as u8).collect()),
            _ => Value::String((0..len / 3).map(|_| letter(&mut self.random)).collect()),
        };
        let value = if field.is_list() { Value::List(vec![value]) } else { value };
        message.set_field(&field, value);
    }
}

fn integer(random: &mut Random) -> u64 {
    match random.below(4) {
        0 => {
            let extremes = [
                0,
                1,
                u64::MAX,
                i64::MAX as u64,
                i64::MIN as u64,
                u64::from(u32::MAX),
                i32::MAX as u64,
                i32::MIN as i64 as u64,
            ];
            *random.pick(&extremes)
        }
        // A shift by up to 63 bits gives varints of every length.
        _ => random.word() >> random.below(64),
    }
}

/// A random number. Never NaN, because NaN does not equal itself. Never -0.0, because -0.0 equals
/// the default value, which is not sent.
fn float(random: &mut Random) -> f32 {
    let extremes = [0.0, f32::MIN, f32::MAX, f32::MIN_POSITIVE, f32::INFINITY, f32::NEG_INFINITY];
    let any = f32::from_bits(random.word() as u32);
    if random.below(3) == 0 || any.is_nan() || any == 0.0 { *random.pick(&extremes) } else { any }
}

fn double(random: &mut Random) -> f64 {
    let extremes = [0.0, f64::MIN, f64::MAX, f64::MIN_POSITIVE, f64::INFINITY, f64::NEG_INFINITY];
    let any = f64::from_bits(random.word());
    if random.below(3) == 0 || any.is_nan() || any == 0.0 { *random.pick(&extremes) } else { any }
}

fn letter(random: &mut Random) -> char {
    let (first, count) = *random.pick(&[
        (0x00, 0x80),
        (0x61, 26),
        (0x80, 0x780),
        (0x800, 0xd000),
        (0xe000, 0x2000),
        (0x1_f300, 0x300),
        (0x10_ff00, 0x100),
    ]);
    char::from_u32(first + random.below(count) as u32).unwrap_or(char::REPLACEMENT_CHARACTER)
}

fn text(random: &mut Random) -> String {
    let len = *random.pick(&[0, 1, 3, 8, 40]);
    (0..len).map(|_| letter(random)).collect()
}

fn blob(random: &mut Random) -> Bytes {
    let len = *random.pick(&[0, 1, 7, 64, 300]);
    (0..len).map(|_| random.word() as u8).collect()
}
