//! Origin of a limit, and the advice in its error.

use std::time::Duration;

use super::{fixture, load, run};
use crate::{Ceilings, Component, Limits, SetBy};

const SPIN: &str = "(loop $again (br $again)) unreachable";
const GROW: &str =
    "(loop $again (br_if $again (i32.ne (memory.grow (i32.const 16)) (i32.const -1)))) unreachable";
const FLOOD: &str = "(loop $again
    (call $write (local.get $output) (i32.const 0) (i32.const 65536) (i32.const 64)) (br $again)) unreachable";

/// A step whose description sets fuel, memory, output and time.
fn described(limits: [Option<u64>; 4], body: &str) -> Component {
    let data = limits.map(|limit| {
        let bytes = [u64::from(limit.is_some()), limit.unwrap_or(0)].map(u64::to_le_bytes).concat();
        bytes.iter().map(|byte| format!("\\{byte:02x}")).collect::<String>()
    });
    // Position of the limits in the fixture's description.
    load(&fixture::step_with(&format!("(data (i32.const 576) \"{}\")", data.concat()), body))
}

fn says(component: &Component, limits: Limits) -> String {
    let ran = run(component, "{}", |i| i.limits = limits);
    ran.result.err().map(|error| error.to_string()).unwrap_or_default()
}

/// Message about a limit of 1 MiB, or 100 ms for time.
fn advice(component: &Component, set: Ceilings, by: SetBy) -> String {
    let limits = match by {
        SetBy::Step => Limits::of_step(set),
        SetBy::Default | SetBy::Policy | SetBy::Description | SetBy::Host => {
            Limits::default().lowered_to(set, by)
        }
    };
    let said = says(component, limits);
    said.split_once("; ").map(|(_, advice)| advice.to_owned()).unwrap_or(said)
}

#[test]
fn a_limit_that_was_reached_is_traced_to_who_set_it() {
    let mib = Some(1 << 20);
    let wall = Some(Duration::from_millis(100));
    let none = Ceilings::default();
    for (body, set, own, [field, option, policy]) in [
        (
            SPIN,
            Ceilings { fuel: mib, ..none },
            [mib, None, None, None],
            ["limits.fuel", "--fuel", "`fuel` in its [components.limits]"],
        ),
        (
            GROW,
            Ceilings { memory: mib, ..none },
            [None, mib, None, None],
            ["limits.memory", "--memory", "`memory` in its [limits] or [components.limits]"],
        ),
        (
            FLOOD,
            Ceilings { output: mib, ..none },
            [None, None, mib, None],
            ["limits.output", "--output", "`output` in its [components.limits]"],
        ),
        (
            SPIN,
            Ceilings { wall, ..none },
            [None, None, None, Some(100)],
            ["timeout_ms", "--timeout", "`timeout` in its [limits] or [components.limits]"],
        ),
    ] {
        let silent = described([None; 4], body);
        assert_eq!(
            advice(&silent, set, SetBy::Default),
            format!(
                "this is the default: give the step {field} (`step run`: {option}) if it should have more"
            )
        );
        assert_eq!(
            advice(&silent, set, SetBy::Step),
            format!("the step sets this: raise its {field} (`step run`: {option}) if it should have more")
        );
        assert_eq!(
            advice(&silent, set, SetBy::Policy),
            format!("the policy sets this limit; its owner can raise {policy}")
        );
        let authors = "the component's description sets this, and the lowest limit applies: only its author can raise it";
        assert_eq!(advice(&described(own, body), none, SetBy::Step), authors);
    }
}

#[test]
fn the_lowest_limit_counts_and_a_step_may_go_beyond_the_default() {
    let fuel = |fuel| Ceilings { fuel: Some(fuel), ..Ceilings::default() };
    let whose = |limits: Limits| (limits.fuel, limits.set_by.fuel);
    let usual = Limits::default().fuel;
    assert_eq!(whose(Limits::of_step(Ceilings::default())), (usual, SetBy::Default));
    let beyond = Limits::of_step(fuel(2 * usual));
    assert_eq!(whose(beyond), (2 * usual, SetBy::Step));
    assert_eq!(whose(beyond.lowered_to(fuel(7), SetBy::Policy)), (7, SetBy::Policy));
    assert_eq!(whose(beyond.lowered_to(fuel(3 * usual), SetBy::Policy)), (2 * usual, SetBy::Step));
    // A description never raises anything.
    let eager = described([Some(u64::MAX), None, None, None], SPIN);
    assert!(says(&eager, Limits::of_step(fuel(1000))).contains("(1000); the step sets this"));
}

#[test]
fn a_description_that_takes_too_long_is_told_so() {
    let start = "(func $start (loop $again (br $again))) (start $start)";
    let said = says(&load(&fixture::step_with(start, "(call $ok)")), Limits::default());
    assert!(said.starts_with("the step's description is not usable: the step "), "{said}");
    assert!(said.ends_with("; this limit is the same for every program"), "{said}");
}

/// A compiler for a functional language puts all functions into one table: pandoc has 700 000 there.
#[test]
fn a_large_table_from_the_start_is_not_in_the_way() {
    let grow = |more: u32| {
        let body = format!(
            "(call $exit (i32.eq (table.grow $t (ref.null func) (i32.const {more})) (i32.const -1)))"
        );
        load(&fixture::command("(table $t 700000 funcref)", &body))
    };
    for (more, refused) in [(200_000, 0), (200_001, 1)] {
        let ran = run(&grow(more), "{}", |_| {});
        assert_eq!(ran.outcome().exit_code, refused, "{more}");
    }
    // Another table of that size is not allowed.
    let twice = load(&fixture::command("(table 700000 funcref) (table 700000 funcref)", ""));
    assert_eq!(run(&twice, "{}", |_| {}).name(), "table-limit");
}
