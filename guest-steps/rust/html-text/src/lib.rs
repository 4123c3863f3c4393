//! HTML to Markdown (htmd) or to plain text, parsed as browsers do (html5ever).

mod charset;
mod text;
mod tidy;

use std::io::Write;
use std::rc::Rc;

use htmd::options::{BrStyle, HrStyle, LinkStyle, Options};
use htmd::{HtmlToMarkdown, Node};
use lobster_step::{Any, Description, Input, JsonSchema, Output, Step, StepError, host};
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// Elements nested deeper than this are refused: no page needs them, and a
/// converter that recurses would run out of stack.
const DEPTH: usize = 512;

/// What never is text.
const SKIPPED: [&str; 8] = ["head", "script", "style", "template", "noscript", "iframe", "object", "svg"];

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(crate = "lobster_step::schemars")]
pub struct Args {
    pub to: To,
    /// Whether links keep their targets.
    pub links: bool,
    /// Whether images are mentioned.
    pub images: bool,
    /// Items: the field that holds the HTML; an item without it gets an empty text, but
    /// some must have it. Items that are texts are the lines of one page.
    pub field: String,
    /// Items: the field that gets the result. The same as `field` replaces it.
    pub into: String,
}

impl Default for Args {
    fn default() -> Self {
        Self {
            to: To::Markdown,
            links: true,
            images: false,
            field: "html".to_owned(),
            into: "text".to_owned(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(crate = "lobster_step::schemars")]
pub enum To {
    Markdown,
    Text,
}

pub struct HtmlText;

impl Step for HtmlText {
    type Args = Args;
    type In = Any;
    type Out = Any;

    fn describe() -> Description {
        Description::new("html-text", env!("CARGO_PKG_VERSION"), "HTML to Markdown or plain text")
            .memory(256 << 20)
            .example("a page", json!({}), "<h1>Hi</h1><p>a <b>b</b>", "# Hi\n\na **b**\n")
            .example(
                "a field of items",
                json!({ "to": "text" }),
                "{\"id\":1,\"html\":\"<p>a</p>\"}\n",
                "{\"id\":1,\"html\":\"<p>a</p>\",\"text\":\"a\\n\"}\n",
            )
    }

    fn run(args: Args, input: &mut Input<Any>, output: &mut Output<Any>) -> Result<(), StepError> {
        let converter = Converter::new(&args);
        if !input.is_items() {
            let text = converter.convert(&charset::decode(&input.bytes()?))?;
            return Ok(output.write_all(text.as_bytes())?);
        }
        let mut items = input.items::<Item>().peekable();
        if matches!(items.peek(), Some(Ok(Item::Line(_)))) {
            let text = converter.convert(&page(items)?)?;
            return Ok(output.write_all(text.as_bytes())?);
        }
        let (mut found, mut missing) = (false, None);
        for (at, item) in items.enumerate() {
            let Item::Object(mut item) = item? else {
                return Err(StepError::bad_input(format!(
                    "item {} is a text, the items before are not",
                    at + 1
                )));
            };
            let html = match item.get(&args.field) {
                Some(Value::String(html)) => {
                    found = true;
                    html.as_str()
                }
                Some(Value::Null) => {
                    found = true;
                    ""
                }
                None => {
                    missing.get_or_insert(at + 1);
                    ""
                }
                Some(_) => {
                    return Err(StepError::bad_input(format!(
                        "item {}: `{}` is not text",
                        at + 1,
                        args.field
                    )));
                }
            };
            let text = converter.convert(html)?;
            item.insert(args.into.clone(), text.into());
            output.item(&item)?;
        }
        match missing {
            Some(_) if !found => Err(StepError::bad_input(format!(
                "no item has `{}`; `field` names the field that holds the HTML",
                args.field
            ))),
            Some(number) => {
                host::warn(&format!("not every item has `{}`: item {number} has none", args.field));
                Ok(())
            }
            None => Ok(()),
        }
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Item {
    Line(String),
    Object(Map<String, Value>),
}

/// The page whose lines the items are, as a command gives them.
fn page(items: impl Iterator<Item = Result<Item, StepError>>) -> Result<String, StepError> {
    let mut page = String::new();
    for (at, item) in items.enumerate() {
        let Item::Line(line) = item? else {
            let message = format!("item {} is no text, where the items before are lines of a page", at + 1);
            return Err(StepError::bad_input(message));
        };
        page.push_str(&line);
        page.push('\n');
    }
    Ok(page)
}

struct Converter {
    to: To,
    links: bool,
    images: bool,
    markdown: HtmlToMarkdown,
}

impl Converter {
    fn new(args: &Args) -> Self {
        let mut skipped = SKIPPED.to_vec();
        if !args.images {
            skipped.push("img");
        }
        let options = Options {
            hr_style: HrStyle::Dashes,
            br_style: BrStyle::Backslash,
            link_style: LinkStyle::InlinedPreferAutolinks,
            ul_bullet_spacing: 1,
            ol_number_spacing: 1,
            ..Options::default()
        };
        let mut builder = HtmlToMarkdown::builder().options(options).skip_tags(skipped);
        if !args.links {
            builder = builder.add_handler(
                vec!["a"],
                |handlers: &dyn htmd::element_handler::Handlers, element: htmd::Element<'_>| {
                    Some(handlers.walk_children(element.node))
                },
            );
        }
        Self { to: args.to, links: args.links, images: args.images, markdown: builder.build() }
    }

    fn convert(&self, html: &str) -> Result<String, StepError> {
        let tree = self.markdown.html_to_tree(html)?;
        check_depth(&tree)?;
        let text = match self.to {
            To::Text => text::render(&tree, self.links, self.images),
            To::Markdown => {
                tidy::tidy(&tree);
                self.markdown.tree_to_markdown(&tree)
            }
        };
        let text = text.trim();
        Ok(if text.is_empty() { String::new() } else { format!("{text}\n") })
    }
}

fn check_depth(tree: &Rc<Node>) -> Result<(), StepError> {
    let mut level: Vec<Rc<Node>> = vec![Rc::clone(tree)];
    for _ in 0..DEPTH {
        level = level.iter().flat_map(|node| node.children.borrow().clone()).collect();
        if level.is_empty() {
            return Ok(());
        }
    }
    Err(StepError::new("too-deep", format!("elements are nested more than {DEPTH} deep")))
}

lobster_step::export_step!(HtmlText);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases() {
        lobster_step::testing::run_cases::<HtmlText>(concat!(env!("CARGO_MANIFEST_DIR"), "/cases"));
    }

    #[test]
    fn deep_nesting_is_refused() {
        let html = "<div>".repeat(2 * DEPTH);
        let converter = Converter::new(&Args::default());
        assert_eq!(converter.convert(&html).map_err(|error| error.code), Err("too-deep".to_owned()));
    }
}
