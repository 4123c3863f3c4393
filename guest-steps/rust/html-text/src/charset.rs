//! Bytes to text: by their byte order mark, by what the page says, else as UTF-8.

use encoding_rs::{Encoding, UTF_8};
use lobster_step::host;

/// How far the page is searched for its character set, as browsers do.
const SEARCHED: usize = 1024;

/// What cannot be decoded is replaced, and the log says so.
pub(crate) fn decode(bytes: &[u8]) -> String {
    let encoding = named(bytes).unwrap_or(UTF_8);
    // A byte order mark says more than the page.
    let (text, encoding, replaced) = encoding.decode(bytes);
    if replaced {
        host::warn(&format!("the input is not all {}: what is not is replaced by \u{fffd}", encoding.name()));
    }
    text.into_owned()
}

/// The character set of `<meta charset=…>` or `<meta … content="…; charset=…">`.
fn named(bytes: &[u8]) -> Option<&'static Encoding> {
    let start = String::from_utf8_lossy(&bytes[..bytes.len().min(SEARCHED)]).to_ascii_lowercase();
    start.split("<meta").skip(1).find_map(|meta| {
        let meta = meta.split('>').next()?;
        let value = meta[meta.find("charset")? + "charset".len()..].trim_start().strip_prefix('=')?;
        let value = value.trim_start().trim_start_matches(['"', '\'']);
        let label = value.split(|c: char| c.is_whitespace() || "\"';/".contains(c)).next()?;
        let encoding = Encoding::for_label(label.as_bytes())?;
        // A page that could be read up to here is not UTF-16, whatever it says.
        Some(if encoding.is_ascii_compatible() { encoding } else { UTF_8 })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_page_says_decides() {
        assert_eq!(decode(b"<meta charset=iso-8859-1>caf\xe9"), "<meta charset=iso-8859-1>caf\u{e9}");
        assert!(
            decode(b"<META http-equiv=x content=\"text/html; charset='windows-1251'\">\xef")
                .ends_with('\u{43f}')
        );
        assert_eq!(decode("<meta charset=iso-8859-1>\u{feff}".as_bytes()).chars().count(), 28);
        assert_eq!(decode("\u{feff}caf\u{e9}".as_bytes()), "caf\u{e9}");
        assert_eq!(decode(&[0xff, 0xfe, b'a', 0]), "a");
        assert_eq!(decode(b"caf\xe9"), "caf\u{fffd}");
    }
}
