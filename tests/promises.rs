//! `docs/security.md` promises nothing that no test holds: each of its sentences names what
//! is tested, or says what is not promised.

use std::collections::BTreeMap;

use crate::binary;

/// How a sentence begins or what stands in it, and the tests that hold it: `file::name`.
const PROMISES: &[(&str, &[&str])] = &[
    (
        "files and pipelines run as before",
        &["tests/conformance.rs::the_recorded_cases_fail_only_where_we_differ_on_purpose"],
    ),
    (
        "are refused if the text shows them",
        &[
            "runtime/policy/src/hard.rs::without_a_policy_what_destroys_is_seen_through_data_too",
            "runtime/policy/src/metamorphic.rs::no_wrapping_of_a_dangerous_command_is_allowed",
        ],
    ),
    (
        "is judged as the shell that will run it",
        &["tests/policy.rs::text_beyond_the_common_language_asks_whatever_shell_runs_it"],
    ),
    (
        "Every process that a step started ends with it",
        &[
            "tests/children.rs::a_child_that_forks_away_is_found",
            "tests/children.rs::nothing_survives_when_lobster_itself_is_killed",
            "tests/children.rs::signals_end_the_run_and_its_children_with_one_envelope",
        ],
    ),
    ("output is capped", &["tests/children.rs::a_gigabyte_of_output_is_stopped_at_the_limit"]),
    ("descriptors are closed", &["runtime/sandbox/src/tests.rs::child_starts_clean"]),
    ("nothing is retried in another way", &["runtime/sandbox/src/tests.rs::says_why_nothing_started"]),
    (
        "is in the journal's hash chain",
        &["tests/record_damages.rs::random_damage_is_named_and_answers_no_gate_twice"],
    ),
    ("keeps its heads elsewhere", &["tests/audits.rs::a_cut_or_replaced_store_does_not_fit_its_anchor"]),
    (
        "does not inherit lobster's own tokens",
        &["tests/secrets.rs::lobsters_own_tokens_are_not_for_steps_that_do_not_name_them"],
    ),
    (
        "does not cover ask or are denied",
        &[
            "runtime/policy/src/corpus.rs::every_case_of_the_corpus_gets_its_verdict",
            "runtime/policy/src/corpus.rs::no_case_of_the_red_team_is_more_lenient_than_expected",
        ],
    ),
    ("its own mount, user, pid", &["runtime/sandbox/src/tests/confined.rs::a_jail_holds_what_it_promises"]),
    (
        "Shell text is read in the language",
        &["runtime/policy/src/shell_fuzz.rs::what_is_allowed_starts_nothing_that_was_not_judged"],
    ),
    (
        "the audit shows the parent processes",
        &["tests/who_answers.rs::answers_to_input_and_from_a_terminal_name_their_author"],
    ),
    (
        "only dash, busybox ash and bash are accepted",
        &["tests/policy.rs::a_shell_that_no_policy_reads_starts_nothing"],
    ),
    (
        "`lobster doctor --sandbox` attacks",
        &["runtime/sandbox/src/tests/confined.rs::the_doctor_finds_nothing_broken"],
    ),
    (
        "`mode = \"strict\"` refuses to run",
        &["runtime/sandbox/src/tests/confined.rs::strict_refuses_what_the_host_cannot_hold"],
    ),
    (
        "are hidden from every step",
        &[
            "tests/kernel_holds.rs::what_patterns_deny_is_printed_by_no_command",
            "tests/kernel_holds.rs::built_in_secrets_are_hidden_unless_granted_by_name",
        ],
    ),
    (
        "in the workspace are read-only",
        &["tests/kernel_holds.rs::a_step_changes_nothing_by_which_others_run_code"],
    ),
    (
        "a unix socket that is not its own",
        &[
            "tests/kernel_holds.rs::a_socket_in_the_workspace_is_out_of_reach_until_it_is_granted",
            "tests/kernel_holds.rs::a_step_has_sockets_terminals_and_users_of_its_own_and_sees_no_others",
            "tests/kernel_holds.rs::no_set_user_id_program_is_left_behind",
            "tests/kernel_holds.rs::the_disk_is_not_filled",
        ],
    ),
    (
        "The rights of one command never apply",
        &["runtime/policy/src/corpus.rs::no_case_of_the_red_team_is_more_lenient_than_expected"],
    ),
    (
        "refuses to run then",
        &["tests/lesser_kernels.rs::limits_of_the_tree_are_refused_to_who_may_not_make_control_groups"],
    ),
    ("A component sees nothing", &["tests/components.rs::nothing_outside_the_grant_can_be_read"]),
    (
        "Fuel, memory, tables, output and time",
        &[
            "tests/components.rs::a_loop_ends_with_its_fuel_or_its_time",
            "tests/components.rs::memory_ends_at_its_limit",
            "tests/components.rs::output_ends_at_its_limit",
        ],
    ),
    (
        "so is compiling, in a separate process",
        &["tests/compiling.rs::compile_bombs_end_in_time_and_in_bounded_memory"],
    ),
    (
        "handles that the host holds for a component are counted",
        &["tests/components.rs::a_memory_limit_bounds_the_whole_process"],
    ),
    (
        "A granted directory is opened once",
        &["tests/swapped_roots.rs::a_root_that_a_link_leads_to_is_not_granted"],
    ),
    ("A token names a question", &["tests/tokens.rs::a_token_carries_no_state"]),
    (
        "It is unguessable, works once",
        &[
            "tests/tokens.rs::made_up_tokens_and_ids_are_refused",
            "tests/tokens.rs::users_state_does_not_reach_gates",
        ],
    ),
    ("The answer is bound to a digest", &["tests/answers.rs::what_changed_since_is_not_what_was_approved"]),
    (
        "what a policy asks is bound to",
        &[
            "tests/approved_files.rs::swapped_files_never_run_and_unchanged_ones_do",
            "tests/bound_trees.rs::whatever_is_swapped_after_the_question_does_not_run",
        ],
    ),
    ("the question lists its gaps", &["tests/bound_trees.rs::what_no_approval_binds_is_named"]),
    (
        "are recorded, not prevented",
        &[
            "tests/bound_trees.rs::a_swap_while_the_command_runs_is_never_recorded_as_held",
            "tests/approved_files.rs::a_file_that_is_swapped_meanwhile_does_not_run_well",
        ],
    ),
    (
        "compare names that the resuming process gives",
        &["tests/gates.rs::who_may_answer_holds_for_gates_as_for_resume"],
    ),
    (
        "No agent answers its own question",
        &[
            "tests/who_answers.rs::whoever_may_answers_and_nobody_else",
            "tests/self_approval.rs::no_step_and_no_agent_answers_its_own_question",
        ],
    ),
    ("The state directory is private", &["tests/state.rs::state_is_the_owners_alone"]),
    (
        "mode 0700 and files with 0600",
        &["tests/state.rs::the_state_is_its_users_alone_whatever_the_umask_is"],
    ),
    (
        "are withheld from steps and hidden automatically",
        &["tests/secrets.rs::lobsters_own_tokens_are_not_for_steps_that_do_not_name_them"],
    ),
    (
        "Under a policy the store is hidden",
        &["tests/kernel_holds.rs::the_store_and_what_lobster_was_started_with_are_out_of_sight"],
    ),
    (
        "in the jail it cannot",
        &["tests/kernel_holds.rs::the_store_and_what_lobster_was_started_with_are_out_of_sight"],
    ),
    (
        "In a shared directory",
        &[
            "runtime/store/src/private.rs::a_directory_for_everybody_stays_one_and_the_store_in_it_is_closed",
            "runtime/store/src/private.rs::what_is_no_state_directory_keeps_its_mode",
        ],
    ),
    ("A collector", &["tests/telemetry.rs::a_run_and_its_steps_arrive_as_one_trace"]),
    ("a notify command", &["tests/agents.rs::an_operators_command_hears_of_a_question_and_how_to_answer_it"]),
    ("keys go to the channel", &["tests/models.rs::a_key_is_nowhere_but_on_the_wire"]),
    ("Logs hold neither", &["tests/agents.rs::logs_go_to_stderr_with_the_spans_around_them"]),
];

/// What the sentences say that promise nothing: who is trusted, what is not stopped, what to do.
const NO_PROMISES: &[&str] = &[
    "is linked at a fixed address",
    "stay at random addresses",
    "*Explanation.*",
    "is trusted",
    "are not",
    "For people who replace",
    "with the caller's rights",
    "These protections still apply",
    "directly, or behind wrappers",
    "This stops mistakes, not attacks",
    "it does not read scripts",
    "sh f`), code for",
    "Text that cannot be analysed runs",
    "false`",
    "This mode does **not**",
    "It does **not** hide",
    "a new repository",
    "It does **not** stop",
    "an allowed program from misusing",
    "a granted socket obeys",
    "attacks on the kernel",
    "a person who approves without reading",
    "memory limits hold for each process",
    "no file, variable, host, real clock",
    "writes become visible only",
    "A program of the same user that sets out to deceive can",
    "it can open a pseudo-terminal in a new session",
    "Run agents as another user",
    "It does not stop a component",
    "they keep honest people apart",
    "It refuses a directory of another user",
    "The store holds arguments",
    "name credentials as",
    "other variables are not",
    "Without a policy file a native step",
    "Nothing, unless a step",
];

fn sentences(page: &str) -> Vec<String> {
    let mut all = Vec::new();
    for block in page.replace("\n- ", "\n\n").split("\n\n").filter(|block| !block.starts_with('#')) {
        let text = block.split_whitespace().collect::<Vec<_>>().join(" ");
        let mut begin = 0;
        for (at, _) in text.match_indices(' ') {
            if text[..at].ends_with(['.', ';', ':']) {
                all.push(text[begin..at].to_owned());
                begin = at + 1;
            }
        }
        all.push(text[begin..].to_owned());
    }
    all.retain(|sentence| !sentence.is_empty());
    all
}

#[test]
fn every_sentence_about_security_names_its_tests_or_promises_nothing() {
    let root = binary::repository();
    let page = std::fs::read_to_string(root.join("docs/security.md")).unwrap();
    let sentences = sentences(&page);
    let known: Vec<&str> =
        PROMISES.iter().map(|(part, _)| *part).chain(NO_PROMISES.iter().copied()).collect();
    for sentence in &sentences {
        assert!(
            known.iter().any(|part| sentence.contains(part)),
            "name the test that holds this sentence of security.md in tests/promises.rs: {sentence}"
        );
    }
    for part in known {
        assert!(sentences.iter().any(|sentence| sentence.contains(part)), "security.md does not say: {part}");
    }
    let mut sources: BTreeMap<&str, String> = BTreeMap::new();
    for test in PROMISES.iter().flat_map(|(_, tests)| *tests) {
        let (file, name) = test.split_once("::").unwrap();
        let source = sources.entry(file).or_insert_with(|| std::fs::read_to_string(root.join(file)).unwrap());
        assert!(source.contains(&format!("fn {name}()")), "there is no test {test}");
    }
}
