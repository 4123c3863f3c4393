//! A value that must be nowhere, searched for byte by byte in every form that it could have.

use std::path::Path;

use base64::Engine as _;

/// The value.
#[derive(Clone, Copy)]
pub(crate) struct Canary(pub(crate) &'static str);

impl Canary {
    /// The forms in which it could lie somewhere.
    fn traces(self) -> Vec<String> {
        let Self(key) = self;
        let json = serde_json::to_string(key).unwrap();
        let hex: String = key.bytes().map(|byte| format!("{byte:02x}")).collect();
        let mut traces = vec![
            key.to_owned(),
            key[..20].to_owned(),
            key[key.len() - 16..].to_owned(),
            json[1..json.len() - 1].to_owned(),
            hex,
            "t0p%2FS3cret".to_owned(),
            "t0p%2fS3cret".to_owned(),
        ];
        // Base64 at each of three places; its ends belong to what stands beside it.
        traces.extend((0..3).map(|before| {
            let text = format!("{}{key}", &"xyz"[..before]);
            base64::engine::general_purpose::STANDARD.encode(text)[4..40].to_owned()
        }));
        traces
    }

    pub(crate) fn assert_not_in(self, what: &str, bytes: &[u8]) {
        for trace in self.traces() {
            let found = bytes.windows(trace.len()).any(|window| window == trace.as_bytes());
            assert!(!found, "{what} holds {trace:?}");
        }
    }

    /// Gives how many files were looked at.
    pub(crate) fn assert_not_below(self, dir: &Path) -> usize {
        let mut files = 0;
        for entry in std::fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            // The compiled code of a component has such digits in a table, and nothing of a run.
            if entry.path().ends_with("store/code") {
                continue;
            }
            if entry.file_type().unwrap().is_dir() {
                files += self.assert_not_below(&entry.path());
            } else if entry.file_type().unwrap().is_file() {
                self.assert_not_in(
                    &entry.path().display().to_string(),
                    &std::fs::read(entry.path()).unwrap(),
                );
                files += 1;
            }
        }
        files
    }
}
