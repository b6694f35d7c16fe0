//! Random messages of any type, by its description.

use std::collections::HashMap;

use bytes::Bytes;
use prost_reflect::{
    DynamicMessage, FieldDescriptor, Kind, MapKey, MessageDescriptor, ReflectMessage, Syntax, Value,
};

/// Messages are nested to this depth, or deeper where fields are required.
const DEPTH: u32 = 5;
/// Fields that a message has, its nested ones' included; beyond them there are only required ones.
const FIELDS: u32 = 300;
/// A large field has more bytes than a datagram.
const LARGE: u64 = 100_000;

/// What a message is like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// No fields but required ones.
    Empty,
    /// Every field, and in nested messages as many as there is space for.
    Full,
    /// Some fields, one of them with more bytes than a datagram if there is one of such a type.
    Large,
    /// Some fields.
    Some,
}

/// A generator of numbers that look random and are the same for the same seed (`SplitMix64`).
#[derive(Debug)]
pub struct Dice {
    state: u64,
}

impl Dice {
    /// A generator.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.draw() % bound
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

/// The message of that type, shape and seed.
pub fn message(descriptor: &MessageDescriptor, shape: Shape, seed: u64) -> DynamicMessage {
    let mut maker = Maker { dice: Dice::new(seed), left: FIELDS };
    let mut message = maker.message(descriptor, shape, 0);
    if shape == Shape::Large {
        maker.enlarge(&mut message);
    }
    message
}

struct Maker {
    dice: Dice,
    /// Fields that may still be set.
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
            let field = &fields[self.dice.below(fields.len() as u64) as usize];
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
            Shape::Full => depth <= 1 || self.dice.below(2) == 0,
            Shape::Large | Shape::Some => self.dice.below(3) > 0,
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
            let Kind::Message(entry) = field.kind() else { unreachable!("maps are of messages") };
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
        if depth == 0 { 1 + self.dice.below(4) } else { 1 + self.dice.below(2) }
    }

    fn value(&mut self, field: &FieldDescriptor, shape: Shape, depth: u32) -> Value {
        let dice = &mut self.dice;
        match field.kind() {
            Kind::Bool => Value::Bool(dice.below(2) == 1),
            Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => Value::I32(integer(dice) as i32),
            Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => Value::I64(integer(dice) as i64),
            Kind::Uint32 | Kind::Fixed32 => Value::U32(integer(dice) as u32),
            Kind::Uint64 | Kind::Fixed64 => Value::U64(integer(dice)),
            Kind::Float => Value::F32(float(dice)),
            Kind::Double => Value::F64(double(dice)),
            Kind::String => Value::String(text(dice)),
            Kind::Bytes => Value::Bytes(blob(dice)),
            Kind::Message(message) => Value::Message(self.message(&message, shape, depth + 1)),
            Kind::Enum(description) => {
                let open = description.parent_file().syntax() != Syntax::Proto2;
                if open && dice.below(4) == 0 {
                    return Value::EnumNumber(integer(dice) as i32);
                }
                let values: Vec<_> = description.values().map(|value| value.number()).collect();
                Value::EnumNumber(dice.pick(&values))
            }
        }
    }

    fn key(&mut self, kind: &Kind) -> MapKey {
        let dice = &mut self.dice;
        match kind {
            Kind::Bool => MapKey::Bool(dice.below(2) == 1),
            Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => MapKey::I32(integer(dice) as i32),
            Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => MapKey::I64(integer(dice) as i64),
            Kind::Uint32 | Kind::Fixed32 => MapKey::U32(integer(dice) as u32),
            Kind::Uint64 | Kind::Fixed64 => MapKey::U64(integer(dice)),
            Kind::String => MapKey::String(text(dice)),
            other => unreachable!("{other:?} is no type for keys"),
        }
    }

    /// Gives the first field that can be large many bytes.
    fn enlarge(&mut self, message: &mut DynamicMessage) {
        let len = (LARGE / 5 + self.dice.below(LARGE)) as usize;
        let can_be_large = |field: &FieldDescriptor| {
            !field.is_map() && matches!(field.kind(), Kind::String | Kind::Bytes)
        };
        let descriptor = message.descriptor();
        let Some(field) = descriptor.fields().find(can_be_large) else { return };
        let value = match field.kind() {
            Kind::Bytes => Value::Bytes((0..len).map(|_| self.dice.draw() as u8).collect()),
            _ => Value::String((0..len / 3).map(|_| letter(&mut self.dice)).collect()),
        };
        let value = if field.is_list() { Value::List(vec![value]) } else { value };
        message.set_field(&field, value);
    }
}

fn integer(dice: &mut Dice) -> u64 {
    match dice.below(4) {
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
            dice.pick(&extremes)
        }
        // Every length on the wire.
        _ => dice.draw() >> dice.below(64),
    }
}

/// Never NaN, which does not equal itself, and never -0.0, which equals the default that is not sent.
fn float(dice: &mut Dice) -> f32 {
    let extremes = [0.0, f32::MIN, f32::MAX, f32::MIN_POSITIVE, f32::INFINITY, f32::NEG_INFINITY];
    let any = f32::from_bits(dice.draw() as u32);
    if dice.below(3) == 0 || any.is_nan() || any == 0.0 { dice.pick(&extremes) } else { any }
}

fn double(dice: &mut Dice) -> f64 {
    let extremes = [0.0, f64::MIN, f64::MAX, f64::MIN_POSITIVE, f64::INFINITY, f64::NEG_INFINITY];
    let any = f64::from_bits(dice.draw());
    if dice.below(3) == 0 || any.is_nan() || any == 0.0 { dice.pick(&extremes) } else { any }
}

fn letter(dice: &mut Dice) -> char {
    let (first, count) = dice.pick(&[
        (0x00, 0x80),
        (0x61, 26),
        (0x80, 0x780),
        (0x800, 0xd000),
        (0xe000, 0x2000),
        (0x1_f300, 0x300),
        (0x10_ff00, 0x100),
    ]);
    char::from_u32(first + dice.below(count) as u32).unwrap_or(char::REPLACEMENT_CHARACTER)
}

fn text(dice: &mut Dice) -> String {
    let len = dice.pick(&[0, 1, 3, 8, 40]);
    (0..len).map(|_| letter(dice)).collect()
}

fn blob(dice: &mut Dice) -> Bytes {
    let len = dice.pick(&[0, 1, 7, 64, 300]);
    (0..len).map(|_| dice.draw() as u8).collect()
}
