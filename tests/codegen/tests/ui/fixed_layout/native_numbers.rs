use erpc::zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, erpc::FixedLayout)]
#[zerocopy(crate = "erpc::zerocopy")]
#[repr(C)]
struct Quote {
    number: u64,
    prices: [f64; 2],
}

fn main() {}
