use super::*;
use lobster_base::code::Code;

fn action(kind: &str) -> EffectAction {
    EffectAction { kind: kind.into(), detail: Value::Null, idempotent: false }
}

fn call(id: &str, model: &str, usage: &Value) -> Value {
    json!({"spend": [{"call": id, "model": model, "usage": usage}], "answer": {}})
}

fn tracker(max_usd: f64, action: LimitAction) -> CostTracker {
    CostTracker::new(
        Pricing::default(),
        Some(CostLimit { max_usd, action, allows_unpriced: false }),
        Spending::default(),
    )
}

fn entries(tracker: &CostTracker) -> Value {
    tracker.summary().map_or(Value::Null, |s| s["byStep"].clone())
}

#[test]
fn a_call_is_billed_once_whatever_becomes_of_its_item() {
    let mut t = tracker(1.0, LimitAction::Stop);
    let usage = json!({"inputTokens": 1000, "outputTokens": 500});
    t.record_effect("a", &action(CALL), &call("c1", "gpt-4o", &usage));
    t.record_effect("a", &action(CALL), &call("c1", "gpt-4o", &usage));
    assert_eq!(t.summary(), None);
    assert!(
        t.step_done("a", Some(&json!([{"usage": usage, "model": "other"}, {"usage": usage}]))).is_empty()
    );
    // The item goes on to a later step; a failed step is retried.
    assert!(t.step_done("b", Some(&json!({"usage": {"outputTokens": 500, "inputTokens": 1000}}))).is_empty());
    t.record_effect("a", &action(CALL), &call("c1", "gpt-4o", &usage));
    t.step_done("a", None);
    assert_eq!(
        t.summary(),
        Some(json!({
            "totalInputTokens": 1000, "totalOutputTokens": 500, "estimatedCostUsd": 0.0075,
            "byStep": [{"stepId": "a", "model": "gpt-4o", "inputTokens": 1000, "outputTokens": 500, "costUsd": 0.0075}],
        }))
    );
    assert_eq!(t.check_limit(), BudgetVerdict::Within);
}

#[test]
fn every_attempt_counts_and_a_cached_answer_does_not() {
    let mut t = tracker(1.0, LimitAction::Stop);
    t.record_effect(
        "a",
        &action(CALL),
        &call("c1", "gpt-4o-mini", &json!({"inputTokens": 10, "outputTokens": 20})),
    );
    t.record_effect(
        "a",
        &action(CALL),
        &call("c2", "gpt-4o-mini", &json!({"inputTokens": 10, "outputTokens": 20})),
    );
    t.record_effect("a", &action(LOOKUP), &json!({"item": {"usage": {"inputTokens": 7}, "model": "gpt-4o"}}));
    t.record_effect("a", &action(LOOKUP), &json!({"item": null}));
    t.record_effect("a", &action("http"), &call("c3", "gpt-4o", &json!({"inputTokens": 9_000_000})));
    t.step_done("a", Some(&json!([{"usage": {"inputTokens": 7}, "model": "gpt-4o"}])));
    assert_eq!(entries(&t).as_array().map(Vec::len), Some(2));
    assert_eq!(entries(&t)[0]["costUsd"], json!(0.000_013_5));
}

#[test]
fn what_programs_print_counts() {
    let mut t = tracker(5.0, LimitAction::Stop);
    let printed = json!({"model": "gpt-4o", "usage": {"input_tokens": "1000000"}});
    t.step_done("a", Some(&printed));
    assert_eq!(t.check_limit(), BudgetVerdict::Within);
    t.step_done("b", Some(&json!([printed, 1, {"usage": null}, {"usage": 3}, {"nested": printed}])));
    assert_eq!(t.check_limit(), BudgetVerdict::Within);
    t.step_done(
        "c",
        Some(&json!({"model": "gpt-4o", "usage": {"prompt_tokens": 0, "completion_tokens": 1}})),
    );
    let BudgetVerdict::Stop(error) = t.check_limit() else { panic!("should stop") };
    assert_eq!(error.message, "Cost limit exceeded: $5.00001 > $5.00 limit");
    assert!(error.permanent);
}

fn worst(model: &str, input: u64, output: u64) -> WorstCase {
    WorstCase { model: Some(model.into()), input_tokens: input, output_tokens: Some(output) }
}

#[test]
fn calls_that_might_pass_the_limit_are_refused_before_they_are_made() {
    let mut t = tracker(1.0, LimitAction::Stop);
    // gpt-4o: 2.5 in, 10 out.
    t.reserve_cost("a", &worst("gpt-4o", 0, 60_000)).unwrap();
    let error = t.reserve_cost("b", &worst("gpt-4o", 0, 60_000)).unwrap_err();
    assert_eq!(error.known_code(), Some(Code::CostLimit));
    assert!(
        error.message.contains("up to $0.6000") && error.message.contains("$0.4000 of the limit of $1.00"),
        "{error}"
    );
    t.release_reservation("b");
    t.reserve_cost("b", &worst("gpt-4o", 0, 40_000)).unwrap();
    t.release_reservation("a");
    t.release_reservation("b");
    // Spending applies even before its step has ended.
    t.record_effect("a", &action(CALL), &call("c", "gpt-4o", &json!({"outputTokens": 50_000})));
    assert!(t.reserve_cost("b", &worst("gpt-4o", 0, 60_000)).is_err());
    t.step_done("a", None);
    assert!(t.reserve_cost("b", &worst("gpt-4o", 0, 60_000)).is_err());
    assert!(t.reserve_cost("b", &worst("gpt-4o", 0, 50_000)).is_ok());
    let mut warns = tracker(0.0, LimitAction::Warn);
    assert!(warns.reserve_cost("a", &worst("gpt-4o", 0, 60_000)).is_ok() && !warns.can_refuse_calls());
}

fn allowing(max_usd: f64) -> CostTracker {
    let limit = CostLimit { max_usd, action: LimitAction::Stop, allows_unpriced: true };
    CostTracker::new(Pricing::default(), Some(limit), Spending::default())
}

#[test]
fn a_model_without_a_price_is_refused_unless_the_file_allows_it() {
    let mut strict = tracker(1.0, LimitAction::Stop);
    let error = strict.reserve_cost("a", &worst("no price", 9, 9)).unwrap_err();
    assert_eq!(error.known_code(), Some(Code::CostLimit));
    assert!(error.permanent && error.message.contains("model \"no price\" has no price"), "{error}");
    assert_eq!(tracker(1.0, LimitAction::Warn).reserve_cost("a", &worst("no price", 9, 9)).unwrap().1, None);

    let mut t = allowing(1.0);
    let (_, line) = t.reserve_cost("a", &worst("no price", 9, 9)).unwrap();
    let line = line.unwrap();
    assert!(line.starts_with("[WARN] No LLM pricing configured for model \"no price\";"), "{line}");
    assert_eq!(t.reserve_cost("a", &worst("no price", 9, 9)).unwrap().1, None, "once");
    t.record_effect("a", &action(CALL), &call("c", "no price", &json!({"outputTokens": 5})));
    assert_eq!(t.step_done("a", None), [""; 0], "the bill does not say it again");
    t.release_reservation("a");

    // A refused call of a priced model does not go to a model without a price instead.
    t.reserve_cost("a", &worst("gpt-4o", 0, 100_001)).unwrap_err();
    let error = t.reserve_cost("a", &worst("no price", 9, 9)).unwrap_err();
    assert!(error.message.contains("has no price that could be lower"), "{error}");
    t.release_reservation("a");
    t.reserve_cost("a", &worst("no price", 9, 9)).unwrap();

    // An outer limit that does not allow it refuses it.
    let outer = Arc::new(Mutex::new(tracker(1.0, LimitAction::Stop)));
    let mut inner = allowing(1.0).nested_in(outer, "sub");
    assert!(inner.reserve_cost("x", &worst("no price", 1, 1)).is_err());
}

#[test]
fn what_an_adapter_chooses_is_counted_afterwards() {
    let unbounded = WorstCase { output_tokens: None, ..worst("gpt-4o", 9_000_000, 0) };
    let unnamed = WorstCase { model: None, ..worst("", 9_000_000, 9_000_000) };
    let mut t = tracker(1.0, LimitAction::Stop);
    t.reserve_cost("b", &unbounded).unwrap();
    t.reserve_cost("b", &unnamed).unwrap();
    t.reserve_cost("b", &worst("gpt-4o", 0, 100_000)).unwrap();
    t.release_reservation("b");
    // Until the limit is exceeded: a call whose answer was refused is not paid again.
    t.record_effect("b", &action(CALL), &call("d", "gpt-4o", &json!({"outputTokens": 100_001})));
    for worst in [&unbounded, &unnamed] {
        let error = t.reserve_cost("b", worst).unwrap_err();
        assert_eq!(error.known_code(), Some(Code::CostLimit));
        assert!(error.message.contains("was not made, since $0.0000 of the limit of $1.00"), "{error}");
    }
    // After an answer without a price, or a lost one, the rest of the limit is unknown.
    let small = WorstCase { output_tokens: None, ..worst("gpt-4o", 9, 0) };
    for (bound, answered) in [(&unnamed, Some("no price")), (&unnamed, None), (&small, None)] {
        let told = |t: &mut CostTracker| {
            let (reserved, _) = t.reserve_cost("a", bound).unwrap();
            let usage = json!({"outputTokens": 5}).as_object().unwrap().clone();
            let answered = answered.map(|model| Spend {
                call: "c".into(),
                model: Some(model.into()),
                usage,
                is_lost: false,
            });
            let spend = final_spend(&t.pricing, reserved, answered);
            t.record_payment("a", spend);
            t.release_reservation("a");
        };
        let mut t = tracker(1.0, LimitAction::Stop);
        told(&mut t);
        let error = t.reserve_cost("b", &worst("gpt-4o", 1, 1)).unwrap_err();
        assert!(error.message.contains("whose cost is not known"), "{error}");
        let mut t = allowing(1.0);
        told(&mut t);
        t.reserve_cost("b", &worst("gpt-4o", 1, 1)).unwrap();
    }
}

#[test]
fn a_lost_call_counts_with_all_that_it_may_cost() {
    let mut t = tracker(1.0, LimitAction::Stop);
    let (lost, _) = t.reserve_cost("a", &worst("gpt-4o", 0, 40_000)).unwrap();
    assert!(lost.is_lost);
    t.record_payment("a", lost.clone());
    t.record_payment("a", lost.clone());
    t.release_reservation("a");
    assert!(t.reserve_cost("a", &worst("gpt-4o", 0, 60_001)).is_err());
    let (refused, _) = t.reserve_cost("a", &worst("gpt-4o", 0, 60_000)).unwrap();
    t.give_back("a", &refused);
    t.reserve_cost("a", &worst("gpt-4o", 0, 60_000)).unwrap();
    t.release_reservation("a");
    t.step_done("a", None);
    assert_eq!(t.summary().unwrap()["estimatedCostUsd"], json!(0.4));

    // Another process: the call is billed once, even if no step reports it again.
    let limit = Some(CostLimit { max_usd: 1.0, action: LimitAction::Stop, allows_unpriced: false });
    let fresh = || CostTracker::new(Pricing::default(), limit, Spending::default());
    let mut t = fresh().with_earlier([("a".to_owned(), lost.clone())]);
    assert!(t.reserve_cost("b", &worst("gpt-4o", 0, 60_001)).is_err());
    assert_eq!(t.summary().unwrap()["estimatedCostUsd"], json!(0.4));
    t.record_payment("a", lost.clone());
    t.step_done("a", None);
    assert_eq!(t.summary().unwrap()["estimatedCostUsd"], json!(0.4));
    assert!(t.reserve_cost("b", &worst("gpt-4o", 0, 60_000)).is_ok());

    // Calls paid for within a sub-workflow are billed there first, and afterwards here.
    let outer = Arc::new(Mutex::new(fresh().with_earlier([("sub.x".to_owned(), lost)])));
    let earlier = lock(&outer).take_earlier(|place| place.starts_with("sub"));
    let mut inner = fresh().with_earlier(earlier).nested_in(Arc::clone(&outer), "sub");
    assert!(inner.reserve_cost("y", &worst("gpt-4o", 0, 60_001)).is_err());
    inner.reserve_cost("y", &worst("gpt-4o", 0, 60_000)).unwrap();
    assert!(lock(&outer).reserve_cost("z", &worst("gpt-4o", 0, 1)).is_err());
    inner.release_reservation("y");
    lock(&outer).absorb_child("sub", &inner);
    assert!(lock(&outer).reserve_cost("z", &worst("gpt-4o", 0, 60_001)).is_err());
    assert!(lock(&outer).reserve_cost("z", &worst("gpt-4o", 0, 60_000)).is_ok());
}

#[test]
fn an_answer_that_lies_about_its_usage_counts_with_all_that_it_may_cost() {
    let t = tracker(1.0, LimitAction::Stop);
    let reserved = || Spend::from_worst_case(&worst("gpt-4o", 10, 40));
    let answered = |model: &str, usage: Value| Spend {
        call: "c".into(),
        model: Some(model.into()),
        usage: usage.as_object().unwrap().clone(),
        is_lost: false,
    };
    for usage in [
        json!({}),
        json!({"inputTokens": 0, "outputTokens": 0}),
        json!({"prompt_tokens": 5, "completion_tokens": -7}),
        json!({"inputTokens": "many"}),
        json!({"inputTokens": [1]}),
    ] {
        let settled = final_spend(&t.pricing, reserved(), Some(answered("gpt-4o", usage.clone())));
        assert_eq!((settled.call.as_str(), used_tokens(&settled.usage)), ("c", (10, 40)), "{usage}");
    }
    assert!(final_spend(&t.pricing, reserved(), None).is_lost);
    let honest = json!({"prompt_tokens": 5, "completion_tokens": 7});
    for (said, billed) in [
        ("gpt-4o", "gpt-4o"),
        ("gpt-4-turbo", "gpt-4-turbo"),
        ("gpt-4o-mini", "gpt-4o"),
        ("no price", "gpt-4o"),
    ] {
        let settled = final_spend(&t.pricing, reserved(), Some(answered(said, honest.clone())));
        assert_eq!((settled.model.as_deref(), used_tokens(&settled.usage)), (Some(billed), (5, 7)), "{said}");
    }
}

#[test]
fn a_sub_workflow_spends_within_the_limits_around_it() {
    let outer = Arc::new(Mutex::new(tracker(1.0, LimitAction::Stop)));
    let child = || CostTracker::new(Pricing::default(), None, Spending::default());
    let mut inner = child().nested_in(Arc::clone(&outer), "sub");
    assert!(inner.can_refuse_calls());
    inner.reserve_cost("x", &worst("gpt-4o", 0, 60_000)).unwrap();
    assert!(lock(&outer).reserve_cost("beside", &worst("gpt-4o", 0, 60_000)).is_err());
    inner.record_effect("x", &action(CALL), &call("c", "gpt-4o", &json!({"outputTokens": 10_000})));
    inner.release_reservation("x");
    inner.step_done("x", None);
    lock(&outer).reserve_cost("beside", &worst("gpt-4o", 0, 90_000)).unwrap();
    assert!(inner.reserve_cost("x", &worst("gpt-4o", 0, 1_000)).is_err());
    let spent = inner.clone();
    lock(&outer).absorb_child("sub", &spent);
    lock(&outer).release_reservation("beside");
    assert!(lock(&outer).reserve_cost("b", &worst("gpt-4o", 0, 90_001)).is_err());
    assert!(lock(&outer).reserve_cost("b", &worst("gpt-4o", 0, 90_000)).is_ok());
}

#[test]
fn unknown_models_are_named_once() {
    let mut t = tracker(0.0, LimitAction::Stop);
    let record = |model: Value| json!({"model": model, "usage": {"inputTokens": 5}});
    let lines =
        t.step_done("a", Some(&json!([record(json!("m\"\n")), record(json!(null)), record(json!("m\"\n"))])));
    assert_eq!(lines.len(), 2);
    assert!(
        lines[0].starts_with(
            "[WARN] No LLM pricing configured for model \"m\\\"\\n\"; recording zero cost. Set "
        )
    );
    assert!(lines[1].contains("model \"<missing>\";"));
    assert_eq!(t.check_limit(), BudgetVerdict::Within);
    assert_eq!(entries(&t)[1]["model"], Value::Null);
}

#[test]
fn warning_repeats_and_spending_survives_a_pause() {
    let mut t = tracker(0.001, LimitAction::Warn);
    t.step_done("a", Some(&json!({"model": "gpt-4o", "usage": {"inputTokens": 1000, "outputTokens": 500}})));
    let line = BudgetVerdict::Warn("[WARN] Cost $0.0075 exceeds limit $0.001".into());
    assert_eq!((t.check_limit(), t.check_limit()), (line.clone(), line));
    t.record_effect("open", &action(CALL), &call("c9", "gpt-4o", &json!({"inputTokens": 1})));
    let kept = serde_json::to_string(t.spending()).unwrap();
    let restored: Spending = serde_json::from_str(&kept).unwrap();
    assert_eq!(&restored, t.spending());
    let limit = Some(CostLimit { max_usd: 0.01, action: LimitAction::Stop, allows_unpriced: false });
    let mut t = CostTracker::new(Pricing::default(), limit, restored);
    t.step_done("b", Some(&json!({"model": "gpt-4o", "usage": {"inputTokens": 1000, "outputTokens": 500}})));
    let BudgetVerdict::Stop(error) = t.check_limit() else { panic!("should stop") };
    assert_eq!(error.message, "Cost limit exceeded: $0.0150 > $0.01 limit");
}

#[test]
fn sub_workflows_are_billed_to_their_step() {
    let mut t = tracker(1.0, LimitAction::Stop);
    let usage = json!({"inputTokens": 1000});
    let mut child = CostTracker::new(Pricing::default(), None, Spending::default());
    child.record_effect("inner", &action(CALL), &call("c2", "gpt-4o", &usage));
    child.step_done("inner", None);
    assert_eq!(child.check_limit(), BudgetVerdict::Within);
    t.absorb_child("sub", &child);
    t.step_done("sub", None);
    t.step_done("later", Some(&json!({"usage": usage})));
    assert_eq!(
        entries(&t),
        json!([{"stepId": "sub", "model": "gpt-4o", "inputTokens": 1000, "outputTokens": 0, "costUsd": 0.0025}])
    );
}

#[test]
fn token_counts_of_all_kinds() {
    let read = |value: Value| {
        token_count(json!({"inputTokens": value}).as_object().unwrap(), ["inputTokens", "b", "c"])
    };
    for (value, count) in [
        (json!(1.9), 1),
        (json!(-3), 0),
        (json!("12"), 12),
        (json!("x"), 0),
        (json!(true), 1),
        (json!([5]), 0),
        (json!(1e300), 9_007_199_254_740_991),
        (json!("Infinity"), 0),
    ] {
        assert_eq!(read(value.clone()), count, "{value}");
    }
    let usage = json!({"a": null, "b": 4, "c": 5});
    assert_eq!(token_count(usage.as_object().unwrap(), ["a", "b", "c"]), 4);
}

#[test]
fn checks_do_not_grow_with_the_record() {
    let mut t = tracker(1e9, LimitAction::Stop);
    let since = std::time::Instant::now();
    for step in 0..20_000 {
        t.step_done("s", Some(&json!({"model": "gpt-4o", "usage": {"inputTokens": step}})));
        assert_eq!(t.check_limit(), BudgetVerdict::Within);
    }
    // Summing up at each check took the incumbent 9 s for 32 000 records; this bound is still loose.
    assert!(since.elapsed().as_secs() < 5, "{:?}", since.elapsed());
}

#[test]
fn amounts_print_as_in_ecmascript() {
    for (number, digits, text) in [
        (0.125, 2, "0.13"),
        (0.005, 2, "0.01"),
        (1.005, 2, "1.00"),
        (2.5, 4, "2.5000"),
        (1e21, 2, "1000000000000000000000.00"),
    ] {
        assert_eq!(to_fixed(number, digits), text);
    }
    assert_eq!(round_usd(2.507_513_5), 2.507_514);
}
