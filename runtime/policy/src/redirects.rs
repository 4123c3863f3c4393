//! Redirects: which files and connections a command gets.

use brush_parser::ast;

use super::analysis::{Analysis, Arg, Flow, Input};

impl Analysis<'_> {
    pub(crate) fn redirects(
        &mut self,
        redirects: Option<&ast::RedirectList>,
        input: &Input,
        text: &str,
    ) -> Redirected {
        let mut redirected = Redirected { input: input.clone(), ..Redirected::default() };
        for redirect in redirects.iter().flat_map(|list| &list.0) {
            self.redirect(redirect, &mut redirected, text);
        }
        redirected
    }

    pub(crate) fn redirect(&mut self, redirect: &ast::IoRedirect, to: &mut Redirected, text: &str) {
        match redirect {
            ast::IoRedirect::File(fd, kind, target) => {
                if let Some(fd) = fd {
                    self.scope.opened.push(*fd);
                }
                self.redirect_file(*fd, kind, target, to, text);
            }
            ast::IoRedirect::HereDocument(_, document) => {
                let body = if document.requires_expansion {
                    self.expand_here_document(&document.doc.value)
                } else {
                    Arg::literal(document.doc.value.clone())
                };
                self.mention_word(&body);
                to.input = Input::Text((!body.unknown).then_some(body.text), body.taint);
            }
            ast::IoRedirect::HereString(_, word) => {
                let body = self.expand_whole(&word.value);
                self.mention_word(&body);
                to.input = Input::Text((!body.unknown).then(|| format!("{}\n", body.text)), body.taint);
            }
            ast::IoRedirect::OutputAndError(word, _) => {
                let target = self.expand_target(&word.value);
                to.network |= self.write_redirect(&target);
                to.output = true;
            }
        }
    }

    fn expand_target(&mut self, raw: &str) -> Arg {
        let mut words = self.expand(raw);
        if words.len() == 1 { words.swap_remove(0) } else { Arg::unknown() }
    }

    fn redirect_file(
        &mut self,
        fd: Option<i32>,
        kind: &ast::IoFileRedirectKind,
        target: &ast::IoFileRedirectTarget,
        to: &mut Redirected,
        text: &str,
    ) {
        use ast::IoFileRedirectKind as Kind;
        let target = match target {
            ast::IoFileRedirectTarget::Filename(word) => self.expand_target(&word.value),
            ast::IoFileRedirectTarget::Fd(n) => {
                self.duplicate(*n);
                return;
            }
            ast::IoFileRedirectTarget::Duplicate(word) => {
                let target = self.expand_target(&word.value);
                let digits = target.text.trim_end_matches('-');
                if target.text == "-" {
                    return;
                }
                if let Ok(n) = digits.parse::<i32>() {
                    self.duplicate(n);
                    return;
                }
                target
            }
            ast::IoFileRedirectTarget::ProcessSubstitution(_, inner) => {
                let arg = self.process_substitution(inner, &Input::Empty, text);
                if matches!(kind, Kind::Read | Kind::ReadAndWrite) {
                    to.input = Input::Pipe(Flow { taint: arg.taint, ..Flow::default() });
                }
                return;
            }
        };
        let duplicates = matches!(kind, Kind::DuplicateInput | Kind::DuplicateOutput);
        if duplicates && target.text.starts_with('-') {
            // For bash `<&-` ends there, and what follows is a command.
            self.ambiguous_text(&target.text, "a redirect target or as a command after <&-");
        }
        match kind {
            Kind::Read => {
                to.network |= self.read_redirect(&target);
                if fd.unwrap_or(0) == 0 {
                    to.input = Input::File;
                }
            }
            Kind::Write | Kind::Append | Kind::Clobber | Kind::DuplicateOutput => {
                to.network |= self.write_redirect(&target);
                to.output |= fd.unwrap_or(1) == 1;
            }
            Kind::ReadAndWrite => {
                to.network |= self.write_redirect(&target);
                if fd.unwrap_or(0) == 0 {
                    to.input = Input::File;
                }
            }
            Kind::DuplicateInput => {
                to.network |= self.read_redirect(&target);
                to.input = Input::File;
            }
        }
    }

    fn duplicate(&mut self, fd: i32) {
        if fd > 2 && !self.scope.opened.contains(&fd) {
            self.ask("descriptor", format!("descriptor {fd} was not opened by this command"));
        }
    }
}

/// What the redirects of one command did.
#[derive(Default)]
pub(crate) struct Redirected {
    pub(crate) input: Input,
    /// Some redirect is a network connection.
    pub(crate) network: bool,
    /// Standard output goes elsewhere.
    pub(crate) output: bool,
}
