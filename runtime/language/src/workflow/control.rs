//! `repeat` and `switch`: steps that decide which steps run.

use super::super::codes;
use super::super::diagnostic::Checked;
use super::super::plan::{Case, Step, Work};
use super::super::source::Node;
use super::super::template;
use super::super::wait;
use super::Lowering;
use super::step::whole_milliseconds;

/// Steps inside a step, one level down.
pub(super) fn steps_inside(step: &Node) -> Vec<&Node> {
    let branches = step.get("parallel").and_then(|parallel| parallel.get("branches"));
    let cases = step.get("cases").and_then(Node::as_map).unwrap_or_default();
    let lists = [step.get("steps"), branches, step.get("default")].into_iter().flatten();
    let lists = lists.chain(cases.iter().map(|case| &case.value));
    lists.filter_map(Node::as_list).flatten().collect()
}

impl Lowering<'_> {
    /// `repeat: {until: CONDITION, every: DURATION, max: N}` with `steps`.
    pub(super) fn lower_repeat(
        &mut self,
        node: &Node,
        repeat: &Node,
        prefix: &str,
        secrets: &[String],
        fatal: bool,
    ) -> Checked<Work> {
        let every = repeat.get_some("every").and_then(Node::as_text).map(str::to_owned);
        if let Some((every, text)) = repeat.get_some("every").zip(every.as_deref())
            && template::is_constant(text)
            && let Err(why) = wait::deadline_after(text, 0)
        {
            return self.reject_type(every, format!("{prefix}repeat.every: {why}"));
        }
        let index_var = node.get("index_var").and_then(Node::as_text).unwrap_or("index").to_owned();
        let mark = self.known.current_mark();
        self.known.add_id(&index_var);
        let mut steps = Vec::new();
        for sub in node.get("steps").and_then(Node::as_list).unwrap_or_default() {
            // There is always a first round, before the condition is evaluated.
            steps.push(self.lower_step(sub, secrets, fatal)?);
        }
        // The condition can refer to the steps of the round.
        let until = self.condition_of(repeat.get_some("until"), fatal)?;
        if let Some(until) = repeat.get_some("until").filter(|_| self.lint.is_some() && !self.is_full()) {
            self.lint_condition(until);
        }
        self.known.forget_since(mark);
        Ok(Work::Repeat {
            until,
            every,
            max: whole_milliseconds(repeat.get("max")).unwrap_or(1),
            index_var,
            steps,
        })
    }

    /// `switch: REFERENCE` with `cases` and `default`.
    pub(super) fn lower_switch(
        &mut self,
        node: &Node,
        switch: &Node,
        prefix: &str,
        secrets: &[String],
        fatal: bool,
    ) -> Checked<Work> {
        let on = switch.as_text().unwrap_or_default().to_owned();
        if template::is_constant(&on) {
            let message = format!("{prefix}switch names no value: it is always {on:?}");
            let help = match on.trim().strip_prefix('$').filter(|name| self.known.contains(name)) {
                Some(name) => format!("write `${name}.json`, or a field of it"),
                None => "write a reference such as `$classify.json.kind`".to_owned(),
            };
            return self.reject_with_help(codes::FIELD_TYPE, switch.span, message, help);
        }
        if let Some(reference) = template::strict_reference(&on) {
            self.must_be_known(switch, &reference, &format!("{prefix}switch: "), fatal);
        }
        let mut visible = Vec::new();
        let mut cases = Vec::new();
        for case in node.get("cases").and_then(Node::as_map).unwrap_or_default() {
            let steps = self.lower_case(&case.value, secrets, &mut visible)?;
            cases.push(Case { value: case.key.clone(), steps });
        }
        let default = match node.get_some("default") {
            Some(default) => Some(self.lower_case(default, secrets, &mut visible)?),
            None => None,
        };
        visible.iter().for_each(|id| self.known.add_id(id));
        Ok(Work::Switch { on, cases, default })
    }

    /// Steps of one case. Steps of other cases are not visible there; after the switch, all of them
    /// are.
    fn lower_case(
        &mut self,
        list: &Node,
        secrets: &[String],
        visible: &mut Vec<String>,
    ) -> Checked<Vec<Step>> {
        let mark = self.known.current_mark();
        let mut steps = Vec::new();
        for step in list.as_list().unwrap_or_default() {
            // Another case may be chosen.
            steps.push(self.lower_step(step, secrets, false)?);
        }
        visible.extend(self.known.forget_since(mark));
        Ok(steps)
    }
}
