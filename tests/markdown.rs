//! What tests need of a Markdown document: its code blocks, headings and links.

use std::path::{Path, PathBuf};

use crate::binary::repository;

/// A fenced block.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    /// The language, and what the words behind it say.
    pub(crate) language: String,
    pub(crate) words: Vec<String>,
    /// Number of its first line of content, from 0.
    pub(crate) first: usize,
    pub(crate) lines: Vec<String>,
}

impl Block {
    pub(crate) fn text(&self) -> String {
        self.lines.iter().map(|line| line.clone() + "\n").collect()
    }

    pub(crate) fn has(&self, word: &str) -> bool {
        self.words.iter().any(|known| known == word)
    }

    /// The value of `name=value` among the words.
    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        self.words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    }
}

/// A document of the repository.
pub(crate) struct Document {
    /// From the root of the repository.
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

impl Document {
    pub(crate) fn read(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        let text = std::fs::read_to_string(repository().join(&path))
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Self { path, text }
    }

    /// `file:line` of a line that is numbered from 0.
    pub(crate) fn place(&self, line: usize) -> String {
        format!("{}:{}", self.path.display(), line + 1)
    }

    /// The fenced blocks. Text that is indented like code is one, too, so that none is overlooked.
    pub(crate) fn blocks(&self) -> Vec<Block> {
        let mut blocks: Vec<Block> = Vec::new();
        let mut open: Option<(usize, Block)> = None;
        let (mut after_blank, mut in_list) = (true, false);
        for (number, line) in self.text.lines().enumerate() {
            let trimmed = line.trim_start();
            let indent = line.len() - trimmed.len();
            if let Some((at, block)) = &mut open {
                if trimmed.trim_end() == "```" {
                    blocks.extend(open.take().map(|(_, block)| block));
                } else {
                    block.lines.push(line.get(*at..).unwrap_or(trimmed).to_owned());
                }
                continue;
            }
            if let Some(info) = trimmed.strip_prefix("```") {
                let mut words = info.split_whitespace().map(str::to_owned);
                let language = words.next().unwrap_or_default();
                let words = words.collect();
                open = Some((indent, Block { language, words, first: number + 1, lines: Vec::new() }));
            } else if indent >= 4 && after_blank && !in_list && !trimmed.is_empty() {
                blocks.push(Block {
                    language: "indented".to_owned(),
                    words: Vec::new(),
                    first: number,
                    lines: vec![trimmed.to_owned()],
                });
            } else if !trimmed.is_empty() && indent == 0 {
                in_list =
                    trimmed.starts_with(['-', '*']) || trimmed.starts_with(|c: char| c.is_ascii_digit());
            }
            after_blank = trimmed.is_empty();
        }
        assert!(open.is_none(), "{}: a code block does not end", self.path.display());
        blocks
    }

    /// Its lines without code blocks, with their numbers from 0.
    pub(crate) fn prose(&self) -> impl Iterator<Item = (usize, &str)> {
        let mut in_code = false;
        self.text.lines().enumerate().filter(move |(_, line)| {
            let fence = line.trim_start().starts_with("```");
            in_code ^= fence;
            !fence && !in_code
        })
    }

    /// The anchors that links may name: those of headings, as GitHub and mdBook make them, and explicit ones.
    pub(crate) fn anchors(&self) -> Vec<String> {
        let mut anchors = Vec::new();
        for (_, line) in self.prose() {
            if let Some(heading) = line.strip_prefix('#') {
                let heading = heading.trim_start_matches('#').trim();
                let kept = heading.chars().filter_map(|c| match c {
                    ' ' => Some('-'),
                    c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c.to_ascii_lowercase()),
                    _ => None,
                });
                anchors.push(kept.collect());
            }
            for part in line.split("<a id=\"").skip(1) {
                anchors.extend(part.split('"').next().map(str::to_owned));
            }
        }
        anchors
    }

    /// The targets of its links with their lines.
    pub(crate) fn links(&self) -> Vec<(usize, String)> {
        let mut links = Vec::new();
        for (number, line) in self.prose() {
            let without_code: String = line.split('`').step_by(2).collect::<Vec<_>>().join("`");
            for rest in without_code.split("](").skip(1) {
                links.extend(rest.split(')').next().map(|target| (number, target.to_owned())));
            }
        }
        links
    }
}

/// All documents that readers get: the README, `docs/`, and those of examples and packages.
pub(crate) fn documents() -> Vec<Document> {
    let mut paths = vec![PathBuf::from("README.md"), PathBuf::from("cli/npm/README.md")];
    walk(Path::new("docs"), &mut paths);
    walk(Path::new("examples"), &mut paths);
    paths.sort();
    paths.into_iter().map(Document::read).collect()
}

fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(repository().join(folder)).unwrap() {
        let entry = entry.unwrap();
        let path = folder.join(entry.file_name());
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type().unwrap().is_dir() {
            walk(&path, found);
        } else if name.ends_with(".md") {
            found.push(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(text: &str) -> Document {
        Document { path: PathBuf::from("x.md"), text: text.to_owned() }
    }

    #[test]
    fn blocks_have_their_kind_and_their_lines() {
        let text = "# A `b` c!\n\n```yaml workflow file=a.lobster\nsteps: []\n```\n\n- item\n\n      in a list\n\n  ```\n  x\n  ```\n\nText\n\n    indented\n";
        let document = document(text);
        let blocks = document.blocks();
        let kinds: Vec<_> = blocks.iter().map(|block| (block.language.as_str(), block.first)).collect();
        assert_eq!(kinds, [("yaml", 3), ("", 11), ("indented", 16)]);
        assert_eq!((blocks[0].value("file"), blocks[0].has("workflow")), (Some("a.lobster"), true));
        assert_eq!(blocks[1].lines, ["x"]);
        assert_eq!(document.anchors(), ["a-b-c"]);
    }
}
