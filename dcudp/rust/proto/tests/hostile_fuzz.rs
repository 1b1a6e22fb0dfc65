//! A short run of the fuzz; `examples/dcudp_fuzz.rs` runs it as long as one wants.

mod common;

#[test]
fn half_a_million_hostile_datagrams() {
    println!("{}", common::fuzz::run(500_000, 7));
}
