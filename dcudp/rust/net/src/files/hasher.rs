//! The SHA-256 of a file, as far as it was read.

use std::fmt;

use ring::digest::{Context, SHA256};

use super::record::Hash;

#[derive(Clone)]
pub struct Hasher(Context);

impl Hasher {
    pub fn new() -> Hasher {
        Hasher(Context::new(&SHA256))
    }

    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The hash of the bytes so far. More bytes may follow.
    pub fn hash(&self) -> Hash {
        let digest = self.0.clone().finish();
        digest.as_ref().try_into().expect("SHA-256 has 32 bytes")
    }
}

impl fmt::Debug for Hasher {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Hasher")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_that_of_fips_180() {
        let mut hasher = Hasher::new();
        let hex = |hasher: &Hasher| -> String { hasher.hash().iter().map(|b| format!("{b:02x}")).collect() };
        assert_eq!(hex(&hasher), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        hasher.update(b"ab");
        hasher.update(b"c");
        assert_eq!(hex(&hasher), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}
