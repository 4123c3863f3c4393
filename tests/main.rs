//! Drives the real `lobster` binary as a user, an agent host or an adversary would.
//!
//! Needs Linux or another Unix with `sh`; Python 3.11 for `conformance`.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test ends at what it did not expect")]

mod added;
mod agents;
mod announced;
mod answers;
mod approved_files;
mod architecture;
mod archive;
mod audits;
mod bad_input;
mod bad_roots;
mod binary;
mod bound_trees;
mod browser;
mod budgets;
mod bundles;
mod cached;
mod canary;
mod checked_first;
mod children;
mod choices;
mod codes;
mod compatibility;
mod compiled_code;
mod compiling;
mod completion;
mod components;
mod conformance;
mod console;
mod console_editor;
mod console_questions;
mod control;
mod crash;
mod credential_use;
mod credentials;
mod damaged_blobs;
mod damaged_stores;
mod differences;
mod documents;
mod drop_in;
mod durability;
mod escapes;
mod everyday;
mod examples;
mod executor_requests;
mod executors;
mod failed_runs;
mod faults;
mod figures;
mod first_hour;
mod first_workflow;
mod flows;
mod forged;
mod forks;
mod gates;
mod gateway_fields;
mod guest_languages;
mod guests;
mod hinted_grants;
mod home;
mod imported_runs;
mod incumbent_gates;
mod interruptions;
mod kept_output;
mod kept_values;
mod kernel_holds;
mod killed_commits;
mod large_values;
mod least_changes;
mod left_behind;
mod lesser_kernels;
mod live_view;
mod login_use;
mod markdown;
mod mcp_client;
mod mcp_forms;
mod mcp_http;
mod mcp_install;
mod mcp_login;
mod mcp_paths;
mod mcp_server;
mod mcp_tasks;
mod mcp_turns;
mod mistakes;
mod model_faults;
mod models;
mod mutated;
mod one_standing;
mod one_view;
mod option_values;
mod overspend;
mod own_processes;
mod piles;
mod policy;
mod promises;
mod protected_changes;
mod providers;
mod pty;
mod published;
mod questions;
mod random_kills;
mod random_workflows;
mod record_damages;
mod recorded_cases;
mod reference;
mod renderings;
mod replaced_stores;
mod resume;
mod retention;
mod review;
mod rollbacks;
mod rule_drafts;
mod schedule_promises;
mod schedules;
mod screens;
mod sdk_shapes;
mod secrets;
mod self_approval;
mod serve_agents;
mod serve_answers;
mod serve_api;
mod serve_approvers;
mod serve_directory;
mod serve_ends;
mod serve_hooks;
mod serve_inputs;
mod serve_load;
mod serve_mail;
mod serve_notices;
mod serve_passkeys;
mod serve_proxy;
mod serve_routes;
mod serve_scarce;
mod serve_slack;
mod serve_waits;
mod serve_watch;
mod served;
mod server;
mod setting;
mod shapes;
mod shared_blocks;
mod shown;
mod spelling;
mod staged;
mod staged_acls;
mod staged_copies;
mod staged_limits;
mod staged_model;
mod state;
mod step_homes;
mod step_undos;
mod step_variables;
mod store_copies;
mod stray_links;
mod swapped_roots;
mod telemetry;
mod text_and_numbers;
mod tokens;
mod transcripts;
mod triage;
mod unattended;
mod unknown_ends;
mod unreadable_settings;
mod unusable_disks;
mod unwritable_output;
mod waits;
mod who_answers;

/// A file that is not a module of this binary would never run; `with_faults` is a program.
#[test]
fn every_test_file_is_included() {
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let main = include_str!("main.rs");
    for entry in std::fs::read_dir(directory).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let Some(module) =
            name.strip_suffix(".rs").filter(|name| !["main", "lib", "with_faults"].contains(name))
        else {
            continue;
        };
        assert!(
            main.contains(&format!("\nmod {module};\n")),
            "tests/{name} is not a module of tests/main.rs"
        );
    }
}
