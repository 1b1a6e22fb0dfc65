//! Feeds seeded hostile datagrams to both ends of a connection (`tests/common/fuzz.rs`).
//!
//! `cargo run --release --example dcudp_fuzz -- COUNT [SEED]`

#[path = "../tests/common/mod.rs"]
mod common;

fn main() {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<u64>());
    let (count, seed) = match (arguments.next(), arguments.next()) {
        (Some(Ok(count)), None) => (count, 1),
        (Some(Ok(count)), Some(Ok(seed))) => (count, seed),
        _ => {
            eprintln!("usage: dcudp_fuzz COUNT [SEED]");
            std::process::exit(2);
        }
    };
    println!("{}", common::fuzz::run(count, seed));
}
