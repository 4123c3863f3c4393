//! Writes jq's standard definitions down as syntax trees.
//!
//! The interpreter's crates hold them as text. A step is a new instance in each
//! call, so that reading some 200 definitions to use two was most of its price.

use std::collections::BTreeSet;
use std::path::PathBuf;

use jaq_core::load::lex::StrPart;
use jaq_core::load::parse;
use jaq_core::load::parse::{BinaryOp, Def, Pattern, Term};
use jaq_core::path::{Opt, Part, Path};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/own.jq");
    let own = parse(include_str!("src/own.jq"), |parser| parser.defs()).ok_or("own.jq cannot be parsed")?;
    let mut rows = String::new();
    for known in jaq_core::defs().chain(jaq_std::defs()).chain(jaq_json::defs()).chain(own) {
        let mut writer = Writer::default();
        let tree = writer.def(&known);
        let calls = Vec::from_iter(&writer.calls);
        rows += &format!("Standard {{ name: {:?}, calls: &{calls:?}, make: || {tree} }},\n", known.name);
    }
    let file = PathBuf::from(std::env::var("OUT_DIR")?).join("standard.rs");
    std::fs::write(file, format!("pub(crate) static STANDARD: &[Standard] = &[\n{rows}];\n"))?;
    Ok(())
}

/// Writes trees as Rust expressions, and notes what they call.
#[derive(Default)]
struct Writer<'s> {
    calls: BTreeSet<&'s str>,
}

type Tree<'s> = Term<&'s str>;

impl<'s> Writer<'s> {
    fn def(&mut self, def: &Def<&'s str>) -> String {
        let body = self.term(&def.body);
        format!("Def {{ name: {:?}, args: vec!{:?}, body: {body} }}", def.name, def.args)
    }

    fn term(&mut self, term: &Tree<'s>) -> String {
        let inside = match term {
            Term::Id => "Id".to_owned(),
            Term::Recurse => "Recurse".to_owned(),
            Term::Num(digits) => format!("Num({digits:?})"),
            Term::Str(format, parts) => {
                self.calls.extend(format);
                format!("Str({format:?}, {})", list(parts, |part| self.part(part)))
            }
            Term::Arr(of) => format!("Arr({})", option(of.as_deref(), |term| self.boxed(term))),
            Term::Obj(entries) => format!(
                "Obj({})",
                list(entries, |(key, value)| {
                    format!("({}, {})", self.term(key), option(value.as_ref(), |value| self.term(value)))
                })
            ),
            Term::Neg(of) => format!("Neg({})", self.boxed(of)),
            Term::BinOp(left, op, right) => {
                format!("BinOp({}, {}, {})", self.boxed(left), self.op(op), self.boxed(right))
            }
            Term::Label(name, of) => format!("Label({name:?}, {})", self.boxed(of)),
            Term::Break(name) => format!("Break({name:?})"),
            Term::Fold(name, of, pattern, args) => {
                let (of, pattern) = (self.boxed(of), self.pattern(pattern));
                format!("Fold({name:?}, {of}, {pattern}, {})", list(args, |term| self.term(term)))
            }
            Term::TryCatch(of, catch) => {
                let of = self.boxed(of);
                format!("TryCatch({of}, {})", option(catch.as_deref(), |term| self.boxed(term)))
            }
            Term::IfThenElse(cases, otherwise) => {
                let cases = list(cases, |(when, then)| format!("({}, {})", self.term(when), self.term(then)));
                format!("IfThenElse({cases}, {})", option(otherwise.as_deref(), |term| self.boxed(term)))
            }
            Term::Def(defs, of) => format!("Def({}, {})", list(defs, |def| self.def(def)), self.boxed(of)),
            Term::Call(name, args) => {
                self.calls.insert(name);
                format!("Call({name:?}, {})", list(args, |term| self.term(term)))
            }
            Term::Var(name) => format!("Var({name:?})"),
            Term::Path(of, Path(parts)) => {
                let of = self.boxed(of);
                format!("Path({of}, Path({}))", list(parts, |(part, opt)| self.step(part, *opt)))
            }
        };
        format!("Term::{inside}")
    }

    fn boxed(&mut self, term: &Tree<'s>) -> String {
        format!("Box::new({})", self.term(term))
    }

    fn part(&mut self, part: &StrPart<&'s str, Tree<'s>>) -> String {
        match part {
            StrPart::Str(text) => format!("StrPart::Str({text:?})"),
            StrPart::Term(term) => format!("StrPart::Term({})", self.term(term)),
            StrPart::Char(char) => format!("StrPart::Char({char:?})"),
        }
    }

    fn pattern(&mut self, pattern: &Pattern<&'s str>) -> String {
        match pattern {
            Pattern::Var(name) => format!("Pattern::Var({name:?})"),
            Pattern::Arr(of) => format!("Pattern::Arr({})", list(of, |pattern| self.pattern(pattern))),
            Pattern::Obj(of) => format!(
                "Pattern::Obj({})",
                list(of, |(key, pattern)| { format!("({}, {})", self.term(key), self.pattern(pattern)) })
            ),
        }
    }

    fn op(&mut self, op: &BinaryOp<&'s str>) -> String {
        let inside = match op {
            BinaryOp::Pipe(pattern) => {
                format!("Pipe({})", option(pattern.as_ref(), |pattern| self.pattern(pattern)))
            }
            BinaryOp::Math(math) => format!("Math(Math::{math:?})"),
            BinaryOp::UpdateMath(math) => format!("UpdateMath(Math::{math:?})"),
            BinaryOp::Cmp(cmp) => format!("Cmp(Cmp::{cmp:?})"),
            BinaryOp::Comma
            | BinaryOp::Alt
            | BinaryOp::Or
            | BinaryOp::And
            | BinaryOp::Assign
            | BinaryOp::Update
            | BinaryOp::UpdateAlt => format!("{op:?}"),
        };
        format!("BinaryOp::{inside}")
    }

    fn step(&mut self, part: &Part<Tree<'s>>, opt: Opt) -> String {
        let part = match part {
            Part::Index(term) => format!("Part::Index({})", self.term(term)),
            Part::Range(from, to) => {
                let from = option(from.as_ref(), |term| self.term(term));
                format!("Part::Range({from}, {})", option(to.as_ref(), |term| self.term(term)))
            }
        };
        format!("({part}, Opt::{opt:?})")
    }
}

fn list<T>(of: &[T], write: impl FnMut(&T) -> String) -> String {
    format!("vec![{}]", of.iter().map(write).collect::<Vec<_>>().join(", "))
}

fn option<T>(of: Option<T>, write: impl FnOnce(T) -> String) -> String {
    of.map_or_else(|| "None".to_owned(), |some| format!("Some({})", write(some)))
}
