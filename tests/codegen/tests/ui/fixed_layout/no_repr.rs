#[derive(erpc::FixedLayout)]
struct Quote {
    symbol: [u8; 8],
}

fn main() {}
