//! Plain text: blocks become lines, tables become columns, links keep their
//! target in angle brackets.

use std::rc::Rc;

use htmd::Node;
use markup5ever_rcdom::NodeData;

use crate::SKIPPED;

pub(crate) fn render(tree: &Rc<Node>, links: bool, images: bool) -> String {
    let mut page = Page { text: String::new(), links, images, lists: Vec::new(), preformatted: 0, quoted: 0 };
    page.children(tree);
    page.text
}

struct Page {
    text: String,
    links: bool,
    images: bool,
    /// The lists around the current item: the next number, or none for bullets.
    lists: Vec<Option<u32>>,
    preformatted: usize,
    quoted: usize,
}

impl Page {
    fn children(&mut self, node: &Rc<Node>) {
        for child in node.children.borrow().iter() {
            self.node(child);
        }
    }

    fn node(&mut self, node: &Rc<Node>) {
        match &node.data {
            NodeData::Text { contents } => self.words(&contents.borrow()),
            NodeData::Element { name, .. } => self.element(node, &name.local),
            NodeData::Document => self.children(node),
            NodeData::Doctype { .. } | NodeData::Comment { .. } | NodeData::ProcessingInstruction { .. } => {}
        }
    }

    fn element(&mut self, node: &Rc<Node>, tag: &str) {
        match tag {
            _ if SKIPPED.contains(&tag) => {}
            "br" => self.line(),
            "hr" => {
                self.paragraph();
                self.text.push_str("---");
                self.paragraph();
            }
            "img" => {
                if let (true, Some(alt)) = (self.images, attribute(node, "alt").filter(|alt| !alt.is_empty()))
                {
                    self.words(&format!("[{alt}]"));
                }
            }
            "a" => self.link(node),
            "ul" | "ol" => {
                let start = attribute(node, "start").and_then(|start| start.parse().ok()).unwrap_or(1);
                let outer = self.lists.is_empty();
                if outer {
                    self.paragraph()
                } else {
                    self.line()
                }
                self.lists.push((tag == "ol").then_some(start));
                self.children(node);
                self.lists.pop();
                if outer { self.paragraph() } else { self.line() }
            }
            "li" => {
                self.line();
                let depth = self.lists.len().saturating_sub(1);
                let mark = match self.lists.last_mut() {
                    Some(Some(number)) => {
                        *number += 1;
                        format!("{}. ", *number - 1)
                    }
                    _ => "- ".to_owned(),
                };
                self.text.push_str(&"  ".repeat(depth));
                self.text.push_str(&mark);
                self.children(node);
                self.line();
            }
            "tr" => {
                self.line();
                self.children(node);
                self.line();
            }
            "td" | "th" => {
                if !self.at_line_start() {
                    self.text.push('\t');
                }
                self.children(node);
            }
            "pre" => {
                self.paragraph();
                self.preformatted += 1;
                self.children(node);
                self.preformatted -= 1;
                self.paragraph();
            }
            "blockquote" => {
                self.paragraph();
                self.quoted += 1;
                self.children(node);
                self.quoted -= 1;
                self.paragraph();
            }
            "p" | "h1" | "h2" | "h3" | "h4" | "h5" | "h6" | "table" | "dl" | "figure" => {
                self.paragraph();
                self.children(node);
                self.paragraph();
            }
            "div" | "section" | "article" | "header" | "footer" | "main" | "nav" | "aside" | "address"
            | "form" | "fieldset" | "dt" | "dd" | "figcaption" | "details" | "summary" | "caption" => {
                self.line();
                self.children(node);
                self.line();
            }
            _ => self.children(node),
        }
    }

    fn link(&mut self, node: &Rc<Node>) {
        let start = self.text.len();
        self.children(node);
        let target = attribute(node, "href").unwrap_or_default();
        let shown = self.text[start.min(self.text.len())..].trim().to_owned();
        let leads_out =
            ["http://", "https://", "mailto:", "tel:"].iter().any(|scheme| target.starts_with(scheme));
        let says_it = shown == target || target.strip_prefix("mailto:") == Some(&shown);
        if self.links && leads_out && !says_it {
            let space = if shown.is_empty() || self.text.ends_with(char::is_whitespace) { "" } else { " " };
            self.text.push_str(&format!("{space}<{target}>"));
        }
    }

    /// Text with its white space made one space, as a browser shows it.
    fn words(&mut self, text: &str) {
        if self.preformatted > 0 {
            self.open_line();
            self.text.push_str(text);
            return;
        }
        for (at, word) in text.split([' ', '\t', '\n', '\r', '\u{c}']).enumerate() {
            if at > 0 && !self.text.is_empty() && !self.text.ends_with([' ', '\n', '\t']) {
                self.text.push(' ');
            }
            if !word.is_empty() {
                self.open_line();
                self.text.push_str(&word.replace('\u{a0}', " "));
            }
        }
    }

    fn open_line(&mut self) {
        if self.quoted > 0 && self.at_line_start() {
            self.text.push_str(&"> ".repeat(self.quoted));
        }
    }

    fn at_line_start(&self) -> bool {
        self.text.is_empty() || self.text.ends_with('\n')
    }

    /// Ends the line, if one has begun.
    fn line(&mut self) {
        self.text.truncate(self.text.trim_end_matches([' ', '\t']).len());
        if !self.at_line_start() {
            self.text.push('\n');
        }
    }

    /// Ends the line and leaves one empty.
    fn paragraph(&mut self) {
        self.line();
        if !self.text.is_empty() && !self.text.ends_with("\n\n") {
            self.text.push('\n');
        }
    }
}

fn attribute(node: &Node, wanted: &str) -> Option<String> {
    let NodeData::Element { attrs, .. } = &node.data else { return None };
    let attrs = attrs.borrow();
    attrs.iter().find(|attr| &*attr.name.local == wanted).map(|attr| attr.value.trim().to_owned())
}
