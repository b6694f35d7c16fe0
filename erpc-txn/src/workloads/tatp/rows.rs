//! The rows of TATP, to the byte, and their keys. Numbers are little-endian.

use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::codec::{Key, TypedTable, Value};

/// Subscribers by number.
pub const SUBSCRIBER: TypedTable<u32, Subscriber> = TypedTable::new(1);
/// Numbers of subscribers by their telephone number.
pub const SEC_SUBSCRIBER: TypedTable<SubNbr, SecSubscriber> = TypedTable::new(2);
/// Up to four per subscriber.
pub const ACCESS_INFO: TypedTable<Typed, AccessInfo> = TypedTable::new(3);
/// Up to four per subscriber.
pub const SPECIAL_FACILITY: TypedTable<Typed, SpecialFacility> = TypedTable::new(4);
/// Up to three per special facility.
pub const CALL_FORWARDING: TypedTable<Start, CallForwarding> = TypedTable::new(5);

/// In [`SecSubscriber::magic`].
pub const MAGIC: u8 = 97;

/// A telephone number: 15 decimal digits of a subscriber's number, the last one first, with four
/// bits each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SubNbr(u64);

impl SubNbr {
    /// The telephone number of a subscriber.
    #[must_use]
    pub fn of(s_id: u32) -> Self {
        let mut rest = s_id;
        let mut number = 0;
        // A number of 32 bits has at most 10 digits. The others are 0.
        for digit in 0..10 {
            number |= u64::from(rest % 10) << (4 * digit);
            rest /= 10;
        }
        Self(number)
    }
}

/// A subscriber and a type, 1 to 4.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Typed {
    /// The subscriber.
    pub s_id: u32,
    /// The type.
    pub of: u8,
}

/// A special facility and an hour: 0, 8 or 16.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Start {
    /// The subscriber.
    pub s_id: u32,
    /// The facility's type.
    pub sf_type: u8,
    /// The hour.
    pub start_time: u8,
}

impl Key for SubNbr {
    fn number(&self) -> u64 {
        self.0
    }
}

impl Key for Typed {
    fn number(&self) -> u64 {
        u64::from(self.s_id) | u64::from(self.of) << 32
    }
}

impl Key for Start {
    fn number(&self) -> u64 {
        u64::from(self.s_id) | u64::from(self.sf_type) << 32 | u64::from(self.start_time) << 40
    }
}

/// Defines a row with its length in bytes.
macro_rules! row {
    ($(#[$doc:meta])* $row:ident, $len:literal { $($(#[$of:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
        )]
        #[repr(C)]
        pub struct $row {
            $($(#[$of])* pub $field: $type,)*
        }

        const _: () = assert!(size_of::<$row>() == $len);

        impl Value for $row {
            type Error = std::array::TryFromSliceError;

            fn encode(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(self.as_bytes());
            }

            fn decode(bytes: &[u8]) -> Result<Self, Self::Error> {
                <[u8; $len]>::try_from(bytes).map(|bytes| zerocopy::transmute!(bytes))
            }
        }
    };
}

row! {
    /// A row of SUBSCRIBER.
    Subscriber, 40 {
        /// The telephone number, see [`SubNbr`].
        sub_nbr: U64,
        /// Not used.
        sub_nbr_rest: [u8; 7],
        /// `hex_1` to `hex_10`, four bits each.
        hex: [u8; 5],
        /// `byte2_1` to `byte2_10`.
        bytes: [u8; 10],
        /// `bit_1` to `bit_10`.
        bits: U16,
        /// The location of the mobile switching centre.
        msc_location: U32,
        /// The location of the visitor location register.
        vlr_location: U32,
    }
}

row! {
    /// A row of SEC_SUBSCRIBER.
    SecSubscriber, 8 {
        /// The subscriber.
        s_id: U32,
        /// [`MAGIC`].
        magic: u8,
        /// Not used.
        rest: [u8; 3],
    }
}

row! {
    /// A row of ACCESS_INFO.
    AccessInfo, 16 {
        /// `data1`.
        data_1: u8,
        /// `data2`.
        data_2: u8,
        /// `data3`.
        data_3: [u8; 3],
        /// `data4`.
        data_4: [u8; 5],
        /// Not used.
        rest: [u8; 6],
    }
}

row! {
    /// A row of SPECIAL_FACILITY.
    SpecialFacility, 8 {
        /// 1 if it is active, or 0.
        is_active: u8,
        /// `error_cntrl`.
        error_cntl: u8,
        /// `data_a`.
        data_a: u8,
        /// `data_b`.
        data_b: [u8; 5],
    }
}

row! {
    /// A row of CALL_FORWARDING.
    CallForwarding, 16 {
        /// The hour at which it ends, 1 to 24.
        end_time: u8,
        /// Where calls go.
        numberx: [u8; 15],
    }
}
