//! The name under which a file is sent. A receiver writes only below its folder.

/// A Linux file name has at most 255 bytes, and a partial file's name is longer by its ending.
pub const NAME_BYTES_MAX: usize = 255 - PARTIAL_ENDING.len();
/// The ending of the name of a file that has not arrived whole.
pub const PARTIAL_ENDING: &str = ".part";

/// A name of one file, without a folder. `check` is the only way to make one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileName(String);

impl FileName {
    /// Check a name. The error states what is wrong with it, and does not repeat the name.
    pub fn check(bytes: &[u8]) -> Result<FileName, &'static str> {
        let name = std::str::from_utf8(bytes).map_err(|_| "its name is not UTF-8")?;
        if name.is_empty() {
            return Err("its name is empty");
        }
        if name.len() > NAME_BYTES_MAX {
            return Err("its name is longer than 250 bytes");
        }
        if name.contains('/') || name.contains('\\') {
            return Err("its name holds a slash: a name may not lead to another folder");
        }
        if name.chars().any(char::is_control) {
            return Err("its name holds a control character");
        }
        if name.starts_with('.') {
            return Err("its name begins with a dot");
        }
        if name.ends_with(PARTIAL_ENDING) {
            return Err("its name ends with .part, which marks partial files");
        }
        Ok(FileName(name.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn partial(&self) -> String {
        format!("{}{PARTIAL_ENDING}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_one_file_are_allowed() {
        for name in ["a", "report.pdf", "a b", "ä", "-rf", "a..b", &"n".repeat(NAME_BYTES_MAX)] {
            assert_eq!(FileName::check(name.as_bytes()).unwrap().as_str(), name);
        }
    }

    #[test]
    fn other_names_are_refused_with_the_reason() {
        let long = "n".repeat(NAME_BYTES_MAX + 1);
        for (name, why) in [
            ("", "empty"),
            (".", "dot"),
            ("..", "dot"),
            (".bashrc", "dot"),
            ("/etc/passwd", "slash"),
            ("../a", "slash"),
            ("a/b", "slash"),
            ("a\\b", "slash"),
            ("a\0b", "control"),
            ("a\nb", "control"),
            ("a\u{9b}b", "control"),
            ("a.part", ".part"),
            (long.as_str(), "longer"),
        ] {
            assert!(FileName::check(name.as_bytes()).unwrap_err().contains(why), "{name:?}");
        }
        assert!(FileName::check(&[b'a', 0xff]).unwrap_err().contains("UTF-8"));
    }
}
