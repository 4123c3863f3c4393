//! Text of the host: words, variables and paths need not be UTF-8.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A word, a variable or a path of the host. In JSON it is a string, or `{"bytes": […]}` if it is not UTF-8.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostText(OsString);

#[derive(Serialize, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
enum Form {
    Text(String),
    Raw { bytes: Vec<u8> },
}

impl HostText {
    /// The text.
    #[must_use]
    pub fn as_os_str(&self) -> &OsStr {
        &self.0
    }

    /// The text as a path.
    #[must_use]
    pub fn as_path(&self) -> &Path {
        Path::new(&self.0)
    }
}

impl From<OsString> for HostText {
    fn from(text: OsString) -> Self {
        Self(text)
    }
}

impl From<PathBuf> for HostText {
    fn from(path: PathBuf) -> Self {
        Self(path.into_os_string())
    }
}

/// A path on the host that gave the order. It has no meaning on another host.
pub type HostPath = HostText;

impl Serialize for HostText {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.0.to_str() {
            Some(text) => to.serialize_str(text),
            None => Form::Raw { bytes: self.0.as_bytes().to_vec() }.serialize(to),
        }
    }
}

impl<'de> Deserialize<'de> for HostText {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(Self(match Form::deserialize(from)? {
            Form::Text(text) => text.into(),
            Form::Raw { bytes } => OsString::from_vec(bytes),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_travel() {
        for bytes in [&b"plain"[..], b"", "ünï".as_bytes(), b"\xff\xfe", b"a\xc3"] {
            let text = HostText::from(OsString::from_vec(bytes.to_vec()));
            let json = serde_json::to_string(&text).unwrap();
            assert_eq!(serde_json::from_str::<HostText>(&json).unwrap(), text, "{json}");
        }
    }
}
