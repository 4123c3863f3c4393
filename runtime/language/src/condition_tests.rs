use proptest::prelude::*;
use serde_json::json;

use super::super::template::tests::Results;
use super::*;

fn sample_scope() -> Results {
    Results(json!({
        "a": {"id": "a", "json": {"n": 5, "s": "5", "str": "hello", "e": "", "z": 0, "nul": null, "t": true, "f": false,
              "arr": [1, {"x": 1}], "o": {"p": 1, "q": 2}, "o2": {"q": 2, "p": 1}, "ea": [], "neg": -1.5,
              "sp": " 7 ", "hex": "0x10", "nan": "NaN"}},
        "sk": {"id": "sk", "skipped": true},
        "err": {"id": "err", "error": true, "errorMessage": "boom"},
    }))
}

fn evaluate_text(text: &str) -> Result<bool, String> {
    let condition = Condition::parse(text).map_err(|e| e.to_string())?;
    condition.evaluate(&sample_scope()).map_err(|e| e.to_string())
}

#[test]
fn recorded_truths() {
    let run = [
        "true",
        " true ",
        "$a.json.n == 5",
        "$a.json.s == '5'",
        "$a.json.str == hello",
        "$a.json.str",
        "$a.json.ea",
        "$a.json.o == $a.json.o2",
        "!$a.json.missing",
        "$a.json.nul == null",
        "$a.json.missing != null",
        "$a.json.missing == $a.json.missing2",
        "$a.json.n > 4 && $a.json.n < 6",
        "$a.json.sp > 6",
        "$a.json.hex > 15",
        "$a.json.s >= 5",
        "$a.json.neg < -1.4",
        "!$a.json.f == true",
        "$a.json.n == (5)",
        "($a.json.n == 5) == true",
        "$sk.skipped",
        "!$a.skipped",
        "$err.error",
        "$a.approved != true",
        "00 == 0",
        "5",
        "'x'",
        "!!true",
        "true || false && false",
        "!true || true",
        "$a.json.str == \"h\\ello\"",
        "1==1&&\n2\t<3",
        "$a.json.t == !false",
        "$a.json.str != !hello",
        "5 == 5.0",
        "'10' > '9'",
    ];
    for text in run {
        assert_eq!(evaluate_text(text), Ok(true), "{text}");
    }
    let skip = [
        "false",
        "$a.json.n == \"5\"",
        "$a.json.s == 5",
        "$a.json.e",
        "$a.json.z",
        "$a.json.nul",
        "$a.json.missing",
        "$a.json.missing == null",
        "$a.json.t == \"true\"",
        "$a.json.t > 0",
        "$a.json.nul < 1",
        "$a.json.nan > 0",
        "$a.json.str > 1",
        "$sk.json",
        "$sk.stdout == \"\"",
        "$a.skipped == false",
        "$a.approved == false",
        "-0 == 0",
        "$a.json.arr.length == 2",
        "$a.json.arr.9 == null",
        "(true || false) && false",
        "''",
        "0",
        "!(true || true)",
        "$a.json.e < 1",
        "'  ' < 1",
        "$a.json.arr > 0",
        "$a.json.n == five",
        "$a.json.__proto__",
    ];
    for text in skip {
        assert_eq!(evaluate_text(text), Ok(false), "{text}");
    }
}

#[test]
fn recorded_refusals_keep_the_text() {
    for text in [
        "TRUE",
        "",
        "  ",
        "yes",
        "hello == $a.json.str",
        "1 < 2 < 3",
        "$a",
        "$",
        "$a.json.n === 5",
        "$a.json.n = 5",
        "$a.json.n + 1",
        "1e3 == 1000",
        ".5 == 0.5",
        "+1 == 1",
        "'unclosed",
        "(true | true)",
        "()",
        "!",
        "true true",
        "not $a.json.f",
        "$a.json.n == 5 // c",
        "${x} == 1",
        "true &&",
        "(true",
        "true)",
        "true ? 1 : 2",
        "true & true",
        "true and true",
        "$a.json.items[0].x == 1",
        "$a.json.n == (hello)",
        "$a.json.str == two words",
        "5.",
        "- 1",
        "$a.json. == 1",
        "1 == 1 == 1",
        "true && yes",
        "$a.json.n !== 5",
    ] {
        assert_eq!(evaluate_text(text), Err(format!("Unsupported condition: {}", text.trim())), "{text}");
    }
}

#[test]
fn both_sides_are_evaluated_so_that_misspelt_ids_fail() {
    for text in ["$nope.json", "true || $nope.json", "false && $nope.json", "!($nope.json == 1)"] {
        assert_eq!(evaluate_text(text), Err("Unknown step reference: nope.json".to_owned()), "{text}");
    }
}

#[test]
fn refusals_point_at_the_place() {
    for (text, at) in
        [("  true && ", 9), ("$a.json.items[0]", 13), ("$a.json.n = 5", 10), ("'x", 0), ("1 < 2 < 3", 6)]
    {
        assert_eq!(Condition::parse(text).expect_err(text).at, at, "{text}");
    }
}

#[test]
fn nesting_and_length_are_bounded() {
    for deep in
        ["(".repeat(20_000), "!".repeat(20_000), format!("{}true{}", "(".repeat(150), ")".repeat(150))]
    {
        assert!(Condition::parse(&deep).is_err());
    }
    let deep = format!("{}true{}", "(".repeat(90), ")".repeat(90));
    assert_eq!(evaluate_text(&deep), Ok(true));
    assert!(Condition::parse(&format!("'{}'", "x".repeat(1 << 20))).is_err());
}

#[test]
fn json_form_round_trips() {
    for text in ["true", "false", "$a.json.n > 1 && !($sk.skipped)"] {
        let condition = Condition::parse(text).unwrap();
        let written = serde_json::to_string(&condition).unwrap();
        assert_eq!(serde_json::from_str::<Condition>(&written).unwrap(), condition);
        assert_eq!(condition.source_text(), text);
    }
    assert_eq!(serde_json::from_str::<Condition>("null").ok(), Some(Condition::Always));
    assert!(serde_json::from_str::<Condition>("[1]").is_err());
    let ids: Vec<_> = Condition::parse("$b.x == $a.y || !$c.z")
        .unwrap()
        .all_references()
        .iter()
        .map(|r| r.id.clone())
        .collect();
    assert_eq!(ids, ["b", "a", "c"]);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(10_000) })]

    #[test]
    fn any_text_is_read_or_refused_at_a_place_inside(
        text in r#"( |\$a\.json\.n|\$|==|!=|<=|>=|<|>|&&|\|\||!|\(|\)|'x'|"|'|\\|5|-1\.5|\.|true|null|word|é|=|\[0\]){0,14}"#
    ) {
        match Condition::parse(&text) {
            Ok(condition) => {
                let again = Condition::parse(condition.source_text());
                prop_assert_eq!(again.as_ref(), Ok(&condition));
                let known = condition.all_references().iter().all(|r| r.id == "a");
                prop_assert_eq!(condition.evaluate(&sample_scope()).is_ok(), known);
            }
            Err(error) => {
                prop_assert!(text.is_char_boundary(error.at));
                prop_assert_eq!(error.text, text.trim());
                prop_assert!(!error.reason.is_empty());
            }
        }
    }
}
