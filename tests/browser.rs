//! A browser without scripts: what it sends, and pages taken apart.

use std::collections::BTreeSet;

use crate::home::Home;
use crate::served::{Reply, Served};

/// A browser that is logged in.
pub(crate) struct Browser<'s> {
    pub(crate) served: &'s Served,
    pub(crate) cookie: String,
}

impl<'s> Browser<'s> {
    /// Follows a one-time link.
    pub(crate) fn log_in(home: &Home, served: &'s Served, role: &str) -> Self {
        let link = home.lobster(["serve", "link", "--name", role, "--role", role]).run().stdout;
        let body = format!("link={}&next=%2Fruns", encoded(link.trim()));
        let reply = send(served, "POST", "/login", None, &body);
        assert_eq!(reply.status, 303, "{reply:?}");
        assert_eq!(header(&reply, "location"), Some("/runs"));
        let cookie = header(&reply, "set-cookie").unwrap();
        assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
        Self { served, cookie: cookie.split(';').next().unwrap().to_owned() }
    }

    pub(crate) fn get(&self, path: &str) -> Reply {
        self.served.send("GET", path, &[("Cookie", &self.cookie), ("Accept", "text/html")], b"")
    }

    /// A page that is there.
    pub(crate) fn page(&self, path: &str) -> Page {
        let reply = self.get(path);
        assert_eq!(reply.status, 200, "{path}: {reply:?}");
        Page::parse(&reply)
    }

    pub(crate) fn post(&self, path: &str, fields: &[(&str, &str)]) -> Reply {
        let body: Vec<String> =
            fields.iter().map(|(name, value)| format!("{}={}", encoded(name), encoded(value))).collect();
        send(self.served, "POST", path, Some(&self.cookie), &body.join("&"))
    }
}

pub(crate) fn send(served: &Served, method: &str, path: &str, cookie: Option<&str>, body: &str) -> Reply {
    let origin = format!("http://{}", served.address);
    let mut headers = vec![
        ("Origin", origin.as_str()),
        ("Sec-Fetch-Site", "same-origin"),
        ("Content-Type", "application/x-www-form-urlencoded"),
    ];
    headers.extend(cookie.map(|cookie| ("Cookie", cookie)));
    served.send(method, path, &headers, body.as_bytes())
}

pub(crate) fn header<'r>(reply: &'r Reply, name: &str) -> Option<&'r str> {
    let lines = reply.head.lines().filter_map(|line| line.split_once(": "));
    lines.into_iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

pub(crate) fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// A page, taken apart by the rules of HTML that an attacker would use: every `<` that begins a tag.
#[derive(Debug)]
pub(crate) struct Page {
    /// The names of elements, with their attributes.
    pub(crate) tags: Vec<(String, Vec<(String, String)>)>,
    /// What is read.
    pub(crate) text: String,
}

impl Page {
    pub(crate) fn parse(reply: &Reply) -> Self {
        let policy = header(reply, "content-security-policy").unwrap_or_default();
        for part in [
            "default-src 'none'",
            "script-src 'self'",
            "require-trusted-types-for 'script'",
            "frame-ancestors 'none'",
        ] {
            assert!(policy.contains(part), "{policy}");
        }
        assert!(!policy.contains("unsafe"), "{policy}");
        Self::of(&reply.body)
    }

    pub(crate) fn of(html: &str) -> Self {
        let (mut tags, mut text, mut rest) = (Vec::new(), String::new(), html);
        while let Some(at) = rest.find('<') {
            text.push_str(&unescaped(&rest[..at]));
            rest = &rest[at + 1..];
            if !rest.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/' || c == '!') {
                panic!("a bare < stands before {:?}", &rest.chars().take(60).collect::<String>());
            }
            let end = rest.find(|c: char| c.is_whitespace() || c == '>').unwrap();
            let name = rest[..end].to_ascii_lowercase();
            rest = &rest[end..];
            let mut attributes = Vec::new();
            loop {
                rest = rest.trim_start();
                if let Some(after) = rest.strip_prefix('>').or_else(|| rest.strip_prefix("/>")) {
                    rest = after;
                    break;
                }
                let end = rest.find(|c: char| c == '=' || c == '>' || c.is_whitespace()).unwrap();
                let key = rest[..end].to_owned();
                rest = &rest[end..];
                let mut value = String::new();
                if let Some(after) = rest.strip_prefix("=\"") {
                    let end = after.find('"').unwrap();
                    value = unescaped(&after[..end]);
                    rest = &after[end + 1..];
                }
                attributes.push((key, value));
            }
            tags.push((name, attributes));
        }
        text.push_str(&unescaped(rest));
        Self { tags, text }
    }

    /// Nothing that runs or leads away, whatever the page quotes.
    pub(crate) fn assert_tame(&self, path: &str) {
        const KNOWN: [&str; 63] = [
            "!doctype", "html", "head", "meta", "title", "link", "script", "body", "a", "header", "nav",
            "ul", "ol", "li", "main", "section", "aside", "footer", "div", "span", "p", "h1", "h2", "h3",
            "dl", "dt", "dd", "table", "thead", "tbody", "tr", "th", "td", "form", "input", "button",
            "label", "select", "option", "textarea", "fieldset", "legend", "details", "summary", "pre",
            "code", "strong", "small", "em", "b", "i", "br", "kbd", "time", "dialog", "svg", "path", "line",
            "rect", "text", "g", "circle", "caption",
        ];
        let known: BTreeSet<&str> = KNOWN.into_iter().collect();
        let mut scripts = 0;
        for (name, attributes) in &self.tags {
            let bare = name.trim_start_matches('/');
            assert!(known.contains(bare), "{path}: <{name}>");
            scripts += usize::from(name == "script");
            for (key, value) in attributes {
                let is_plain = key.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
                assert!(
                    is_plain && !key.starts_with("on") && key != "style" && key != "srcdoc",
                    "{path}: <{name} {key}>"
                );
                if ["href", "src", "action", "formaction"].contains(&key.as_str()) {
                    let is_ours =
                        (value.starts_with('/') && !value.starts_with("//")) || value.starts_with('#');
                    assert!(is_ours, "{path}: <{name} {key}={value:?}>");
                }
            }
        }
        assert_eq!(scripts, 1, "{path}");
    }

    pub(crate) fn links(&self) -> Vec<&str> {
        let of_links =
            self.tags.iter().filter(|(name, _)| name == "a").flat_map(|(_, attributes)| attributes);
        of_links.filter(|(key, _)| key == "href").map(|(_, value)| value.as_str()).collect()
    }

    /// The value of a hidden field, if there is one.
    pub(crate) fn hidden(&self, name: &str) -> Option<&str> {
        let of = |attributes: &'_ [(String, String)], key: &str| {
            attributes.iter().position(|(known, _)| known == key)
        };
        self.tags.iter().filter(|(tag, _)| tag == "input").find_map(|(_, attributes)| {
            let is_it = of(attributes, "name").is_some_and(|at| attributes[at].1 == name);
            is_it.then(|| of(attributes, "value").map_or("", |at| attributes[at].1.as_str()))
        })
    }

    pub(crate) fn field(&self, name: &str) -> &str {
        let is_it = |attributes: &[(String, String)]| {
            attributes.iter().any(|(key, value)| key == "name" && value == name)
        };
        let input = self.tags.iter().find(|(tag, attributes)| tag == "input" && is_it(attributes));
        let (_, attributes) = input.unwrap_or_else(|| panic!("no field {name}"));
        attributes.iter().find(|(key, _)| key == "value").map_or("", |(_, value)| value)
    }
}

pub(crate) fn unescaped(text: &str) -> String {
    text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&")
}

/// Without blanks, since each screen breaks lines elsewhere.
pub(crate) fn bare(text: &str) -> String {
    text.chars().filter(|c| !c.is_whitespace()).collect()
}
