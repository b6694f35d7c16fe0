#[derive(erpc::FixedLayout)]
#[repr(C)]
struct Quote {
    symbol: String,
}

fn main() {}
