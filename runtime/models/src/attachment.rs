//! Files that go to a model with the prompt.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

/// Most bytes of one file: the providers' limit for one request.
pub const MAX_FILE: u64 = 20 << 20;

/// One file: an image, a PDF document, or text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Attachment {
    /// The last part of its path.
    pub name: String,
    /// The media type, detected from the content.
    pub media_type: String,
    /// The content of a file that is text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The content of any other file, in Base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
}

impl Attachment {
    /// The file of this content.
    ///
    /// # Errors
    /// No model reads content of this kind.
    pub fn of_bytes(name: &str, bytes: Vec<u8>) -> Result<Self, String> {
        if let Some(media_type) = media_type(&bytes) {
            let data = Some(STANDARD.encode(&bytes));
            return Ok(Self { name: name.to_owned(), media_type: media_type.to_owned(), text: None, data });
        }
        match String::from_utf8(bytes) {
            Ok(text) if !text.contains('\0') => Ok(Self {
                name: name.to_owned(),
                media_type: "text/plain".to_owned(),
                text: Some(text),
                data: None,
            }),
            _ => Err("is neither an image (PNG, JPEG, GIF or WebP) nor a PDF nor text".to_owned()),
        }
    }

    pub(crate) fn is_image(&self) -> bool {
        self.media_type.starts_with("image/")
    }

    /// The Base64 content of a file that is not text.
    pub(crate) fn base64(&self) -> &str {
        self.data.as_deref().unwrap_or_default()
    }

    /// A text file as part of the prompt.
    pub(crate) fn as_prompt(&self) -> Option<String> {
        self.text.as_ref().map(|text| format!("[file {}]\n{text}", self.name))
    }

    /// The content as a `data:` address (RFC 2397).
    pub(crate) fn data_url(&self) -> String {
        format!("data:{};base64,{}", self.media_type, self.base64())
    }
}

/// The kind of a file that is not text, by its first bytes.
fn media_type(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0x89, b'P', b'N', b'G', 0x0d, 0x0a, 0x1a, 0x0a, ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        [b'%', b'P', b'D', b'F', b'-', ..] => Some("application/pdf"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_says_what_a_file_is() {
        for (bytes, kind) in [
            (&b"\x89PNG\r\n\x1a\n..."[..], Some("image/png")),
            (b"\xff\xd8\xff\xe0", Some("image/jpeg")),
            (b"GIF89a", Some("image/gif")),
            (b"RIFF\x01\x02\x03\x04WEBPVP8 ", Some("image/webp")),
            (b"%PDF-1.7", Some("application/pdf")),
            ("Grüße".as_bytes(), Some("text/plain")),
            (b"", Some("text/plain")),
            (b"\x7fELF\0", None),
            (b"\xff\xfe", None),
        ] {
            let found = Attachment::of_bytes("a.png", bytes.to_vec());
            assert_eq!(found.as_ref().ok().map(|file| file.media_type.as_str()), kind, "{found:?}");
        }
    }

    #[test]
    fn text_is_sent_as_text_and_everything_else_as_base64() {
        let text = Attachment::of_bytes("n.txt", b"hi".to_vec()).unwrap();
        assert_eq!(text.as_prompt().as_deref(), Some("[file n.txt]\nhi"));
        let image = Attachment::of_bytes("g", b"GIF87a".to_vec()).unwrap();
        assert!(image.is_image() && image.as_prompt().is_none());
        assert_eq!(image.data_url(), "data:image/gif;base64,R0lGODdh");
        assert_eq!(
            serde_json::to_value(&image).unwrap(),
            serde_json::json!({"name": "g", "mediaType": "image/gif", "data": "R0lGODdh"})
        );
    }
}
