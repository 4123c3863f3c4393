//! Turns what Markdown cannot say into what it can, before it is written.

use std::cell::RefCell;
use std::rc::Rc;

use htmd::Node;
use markup5ever_rcdom::NodeData;

/// Where a line break would end the line of Markdown: there it is a space.
const ONE_LINE: [&str; 8] = ["td", "th", "h1", "h2", "h3", "h4", "h5", "h6"];

pub(crate) fn tidy(tree: &Rc<Node>) {
    walk(tree, false);
}

fn walk(node: &Rc<Node>, one_line: bool) {
    let tag = tag(node);
    if tag == Some("pre") {
        return block_of_code(node);
    }
    let one_line = one_line || tag.is_some_and(|tag| ONE_LINE.contains(&tag));
    let children = node.children.borrow().clone();
    for (at, child) in children.iter().enumerate() {
        if one_line && self::tag(child) == Some("br") {
            node.children.borrow_mut()[at] = new(node, text_node(" "));
        } else {
            walk(child, one_line);
        }
    }
}

/// `<pre>` becomes `<pre><code>`, which is what is fenced.
fn block_of_code(pre: &Rc<Node>) {
    let NodeData::Element { name, .. } = &pre.data else { return };
    let is_code = pre.children.borrow().iter().any(|child| tag(child) == Some("code"));
    if is_code {
        return;
    }
    let mut text = String::new();
    written(pre, &mut text);
    let mut name = name.clone();
    name.local = "code".into();
    let code = new(
        pre,
        NodeData::Element {
            name,
            attrs: RefCell::default(),
            template_contents: RefCell::default(),
            mathml_annotation_xml_integration_point: false,
        },
    );
    let text = new(&code, text_node(text.trim_matches('\n')));
    code.children.borrow_mut().push(text);
    *pre.children.borrow_mut() = vec![code];
}

/// The text below a node, line breaks as such.
fn written(node: &Rc<Node>, text: &mut String) {
    match &node.data {
        NodeData::Text { contents } => text.push_str(&contents.borrow()),
        _ if tag(node) == Some("br") => text.push('\n'),
        _ => node.children.borrow().iter().for_each(|child| written(child, text)),
    }
}

fn tag(node: &Node) -> Option<&str> {
    match &node.data {
        NodeData::Element { name, .. } => Some(&name.local),
        _ => None,
    }
}

fn text_node(text: &str) -> NodeData {
    NodeData::Text { contents: RefCell::new(text.into()) }
}

fn new(parent: &Rc<Node>, data: NodeData) -> Rc<Node> {
    let node = Node::new(data);
    node.parent.set(Some(Rc::downgrade(parent)));
    node
}
