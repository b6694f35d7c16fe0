#[derive(erpc::FixedLayout)]
#[repr(u8)]
enum Side {
    Buy,
    Sell,
}

fn main() {}
