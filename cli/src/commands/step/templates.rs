//! The project templates of `lobster step new`, embedded when lobster is built.

/// One file of a template.
pub(super) struct File {
    pub(super) language: &'static str,
    pub(super) path: &'static str,
    pub(super) bytes: &'static [u8],
}

include!(concat!(env!("OUT_DIR"), "/templates.rs"));

/// The languages that have templates.
pub(super) fn template_languages() -> Vec<&'static str> {
    let mut languages: Vec<_> = FILES.iter().map(|file| file.language).collect();
    languages.dedup();
    languages
}

/// The files of one language's template.
pub(super) fn template_files(language: &str) -> impl Iterator<Item = &'static File> {
    FILES.iter().filter(move |file| file.language == language)
}
