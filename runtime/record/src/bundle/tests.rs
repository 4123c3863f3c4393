use super::*;
use crate::replay_run;
use crate::testing::{TestState, workflow_text};

const SMALL: &str = "name: small\nsteps:\n  - id: say\n    run: printf '[1,2]'\n  - id: keep\n    pipeline: head --n 1\n    stdin: $say.json\n";

#[test]
fn a_bundle_verifies_and_imports_where_nothing_else_is() {
    let (here, there) = (TestState::new(), TestState::new());
    let run = here.run(&workflow_text(SMALL));
    let file = here.path("small.bundle");
    let written = export_bundle(&here.runtime, &run, &file, &ExportOptions::default()).unwrap();
    assert_eq!(written.bytes, std::fs::metadata(&file).unwrap().len());
    let report = verify_bundle(&there.runtime, &file, None).unwrap();
    assert_eq!(report.bundle, written);
    assert_eq!((report.replay.answered, report.replay.divergences.as_slice()), (1, &[][..]));
    assert_eq!(import_bundle(&there.runtime, &file, &ImportOptions::default()).unwrap(), written);
    assert!(replay_run(&there.runtime, &run, &ReplayOptions::default()).unwrap().is_faithful());
    assert!(matches!(
        import_bundle(&there.runtime, &file, &ImportOptions::default()),
        Err(BundleError::Store(_))
    ));
}

#[test]
fn any_flipped_or_missing_byte_is_found_and_named() {
    let place = TestState::new();
    let run = place.run(&workflow_text(SMALL));
    let file = place.path("small.bundle");
    export_bundle(&place.runtime, &run, &file, &ExportOptions::default()).unwrap();
    let bytes = std::fs::read(&file).unwrap();
    let store = Store::in_memory().unwrap();
    assert!(read::read_bundle(bytes.as_slice(), &store).is_ok());
    for at in 0..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << (at % 8);
        match read::read_bundle(flipped.as_slice(), &store) {
            Err(BundleError::NotABundle) => assert!(at < 15),
            Err(BundleError::Newer { .. }) => assert_eq!(at, 15, "the byte of the format"),
            Err(BundleError::Damaged { object, .. }) => {
                let known = ["the header", "the manifest", "record ", "blob "];
                assert!(known.iter().any(|name| object.starts_with(name)), "{at}: {object}");
            }
            other => panic!("byte {at}: {:?}", other.map(|bundle| bundle.summary)),
        }
        assert!(read::read_bundle(&bytes[..at], &store).is_err(), "cut at {at}");
    }
    let longer = [bytes.as_slice(), b"x"].concat();
    assert!(
        matches!(read::read_bundle(longer.as_slice(), &store), Err(BundleError::Damaged { object, .. }) if object == "the end of the file")
    );
}

#[test]
fn what_is_redacted_is_not_in_the_file() {
    let place = TestState::new();
    let run = place.run(&workflow_text("name: r\nsteps:\n  - id: fetch\n    run: printf 'top-%s-value' secret\n  - id: other\n    run: printf hi\n"));
    let file = place.path("r.bundle");
    let options = ExportOptions { redact: vec!["fetch".to_owned()], ..ExportOptions::default() };
    let written = export_bundle(&place.runtime, &run, &file, &options).unwrap();
    assert_eq!(written.redacted, ["fetch"]);
    let bytes = std::fs::read(&file).unwrap();
    assert!(!String::from_utf8_lossy(&bytes).contains("top-secret-value"));
    assert!(verify_bundle(&TestState::new().runtime, &file, None).unwrap().replay.is_faithful());
    // A step that depends on it is reported as unverified, not as different.
    let run = place.run(&workflow_text("name: d\nsteps:\n  - id: fetch\n    run: printf '[41]'\n  - id: next\n    pipeline: head --n 1\n    stdin: $fetch.json\n"));
    export_bundle(&place.runtime, &run, &file, &options).unwrap();
    let report = verify_bundle(&TestState::new().runtime, &file, None).unwrap().replay;
    assert_eq!(
        (report.divergences.len(), report.unverified.len(), report.unverified[0].step.as_str()),
        (0, 1, "next")
    );
    let refused = export_bundle(
        &place.runtime,
        &run,
        &file,
        &ExportOptions { redact: vec!["nobody".to_owned()], ..ExportOptions::default() },
    );
    assert!(refused.is_err());
}

#[test]
fn a_signature_says_who_and_any_flipped_byte_of_it_is_found() {
    let place = TestState::new();
    let run = place.run(&workflow_text(SMALL));
    let (ours, theirs) = (place.path("ours.pem"), place.path("theirs.pem"));
    let (us, public) = SigningKey::generate(&ours).unwrap();
    let (them, _) = SigningKey::generate(&theirs).unwrap();
    assert_eq!(PublicKey::read_pem(&public).unwrap(), us);
    assert!(matches!(SigningKey::generate(&ours), Err(KeyError::Write { .. })));
    assert!(matches!(SigningKey::read_pem(&public), Err(KeyError::NotAKey { .. })));
    assert!(matches!(PublicKey::read_pem(&ours), Err(KeyError::NotAKey { .. })));

    let (plain, signed) = (place.path("plain.bundle"), place.path("signed.bundle"));
    export_bundle(&place.runtime, &run, &plain, &ExportOptions::default()).unwrap();
    let options =
        ExportOptions { sign: Some(SigningKey::read_pem(&ours).unwrap().into()), ..ExportOptions::default() };
    let written = export_bundle(&place.runtime, &run, &signed, &options).unwrap();
    assert_eq!((written.signed_by, written.bytes), (Some(us), std::fs::metadata(&signed).unwrap().len()));
    let there = TestState::new();
    assert_eq!(verify_bundle(&there.runtime, &signed, Some(&us)).unwrap().bundle, written);
    assert_eq!(verify_bundle(&there.runtime, &signed, None).unwrap().bundle.signed_by, Some(us));
    assert!(matches!(
        verify_bundle(&there.runtime, &signed, Some(&them)),
        Err(BundleError::OtherSigner { found, wanted, .. }) if (found, wanted) == (us, them)
    ));
    assert!(matches!(verify_bundle(&there.runtime, &plain, Some(&us)), Err(BundleError::Unsigned { .. })));
    for unreplayed in [false, true] {
        let there = TestState::new();
        let by_us = ImportOptions { signer: Some(us), unreplayed };
        assert!(matches!(import_bundle(&there.runtime, &plain, &by_us), Err(BundleError::Unsigned { .. })));
        assert_eq!(import_bundle(&there.runtime, &signed, &by_us).unwrap(), written);
    }

    let bytes = std::fs::read(&signed).unwrap();
    let store = Store::in_memory().unwrap();
    for at in 0..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << (at % 8);
        assert!(read::read_bundle(flipped.as_slice(), &store).is_err(), "{at}");
        // Without its whole signature, a bundle is either unsigned or damaged.
        match read::read_bundle(&bytes[..at], &store) {
            Ok(bundle) => assert_eq!((at, bundle.summary.signed_by), (bytes.len() - signature::LENGTH, None)),
            Err(error) => assert!(matches!(error, BundleError::Damaged { .. } | BundleError::NotABundle)),
        }
    }
}

#[test]
fn a_directory_that_a_step_read_can_be_carried_along() {
    let here = TestState::new();
    std::fs::create_dir_all(here.path("mail/sub")).unwrap();
    std::fs::write(here.path("mail/1.eml"), "Subject: one\n\nhello\n").unwrap();
    std::fs::write(here.path("mail/sub/2.eml"), "Subject: two\n\nhello\n").unwrap();
    std::os::unix::fs::symlink("1.eml", here.path("mail/link")).unwrap();
    // Without a description, none of its step's grants is withheld.
    let program =
        wat::parse_str(r#"(module (memory (export "memory") 1) (func (export "_start")))"#).unwrap();
    std::fs::write(here.path("look.wasm"), program).unwrap();
    let run = here.run(&workflow_text(
        "name: reads\nsteps:\n  - id: look\n    component: look.wasm\n    grants: { read: [mail] }\n",
    ));
    let (without, with) = (here.path("without.bundle"), here.path("with.bundle"));
    let written = export_bundle(&here.runtime, &run, &without, &ExportOptions::default()).unwrap();
    assert_eq!(written.directories.len(), 1);
    let there = TestState::new();
    let (mail, away) = (here.path("mail"), here.path("away"));
    std::fs::rename(&mail, &away).unwrap();
    let report = verify_bundle(&there.runtime, &without, None).unwrap();
    assert_eq!((report.replay.computed, report.replay.unverified.len()), (0, 1), "{report:?}");
    std::fs::rename(&away, &mail).unwrap();

    let options = ExportOptions { directories: true, ..ExportOptions::default() };
    let written = export_bundle(&here.runtime, &run, &with, &options).unwrap();
    assert!(written.directories[0].listing.is_some(), "{written:?}");
    std::fs::rename(&mail, &away).unwrap();
    let report = verify_bundle(&there.runtime, &with, None).unwrap();
    std::fs::rename(&away, &mail).unwrap();
    assert_eq!(
        (report.replay.computed, report.replay.unverified, report.replay.divergences),
        (1, vec![], vec![])
    );
    assert_eq!(report.bundle, written);

    std::fs::write(here.path("mail/1.eml"), "changed").unwrap();
    let late = export_bundle(&here.runtime, &run, &with, &options).unwrap();
    let why = late.directories[0].left_out.as_deref().unwrap();
    assert!(why.contains("has changed since the step ran"), "{why}");
}

#[test]
fn random_flips_in_a_big_bundle_are_found() {
    let place = TestState::new();
    let run = place.run(&workflow_text(
        "name: big\nsteps:\n  - id: list\n    run: seq 1 60 | sed 's/.*/\"&\"/' | paste -sd, | sed 's/.*/[&]/'\n  - id: each\n    for_each: $list.json\n    steps:\n      - id: one\n        pipeline: exec --shell 'head -c 3000 /dev/urandom | base64'\n",
    ));
    let file = place.path("big.bundle");
    export_bundle(&place.runtime, &run, &file, &ExportOptions::default()).unwrap();
    let mut bytes = std::fs::read(&file).unwrap();
    assert!(bytes.len() > 300_000, "{}", bytes.len());
    let store = Store::in_memory().unwrap();
    let mut random = 88_172_645_463_325_252_u64;
    // Each reads the whole bundle again.
    let usual = if cfg!(debug_assertions) { 1_000 } else { 10_000 };
    let flips = std::env::var("LOBSTER_BUNDLE_FLIPS").map_or(usual, |text| text.parse().unwrap());
    for _ in 0..flips {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let at = usize::try_from(random % bytes.len() as u64).unwrap();
        let bit = 1_u8 << (random >> 60 & 7);
        bytes[at] ^= bit;
        match read::read_bundle(bytes.as_slice(), &store) {
            Err(BundleError::NotABundle) => assert!(at < 15),
            Err(BundleError::Newer { .. }) => assert_eq!(at, 15, "the byte of the format"),
            Err(BundleError::Damaged { object, .. }) => assert!(!object.is_empty()),
            other => panic!("byte {at}: {:?}", other.map(|bundle| bundle.summary)),
        }
        bytes[at] ^= bit;
    }
    assert!(read::read_bundle(bytes.as_slice(), &store).is_ok());
}

/// Prints a value that is not in the plan.
const FETCH: &str =
    "  - id: fetch\n    run: printf '%s\\n' '{\"user\":\"ann\",\"pin\":\"SENSI''TIVE VALUE\"}'\n";

const SENSITIVE: &str = "SENSITIVE VALUE";

fn redacting(steps: &[&str]) -> ExportOptions {
    ExportOptions {
        redact: steps.iter().map(|step| (*step).to_owned()).collect(),
        ..ExportOptions::default()
    }
}

fn says(file: &Path, text: &str) -> bool {
    String::from_utf8_lossy(&std::fs::read(file).unwrap()).contains(text)
}

#[test]
fn copies_of_what_is_redacted_are_not_in_the_file_either() {
    let (here, there) = (TestState::new(), TestState::new());
    let run = here.run(&workflow_text(&format!(
        "name: copies\nsteps:\n{FETCH}  - id: pick\n    js: input.pin + '!'\n    stdin: $fetch.json\n  \
         - id: pass\n    run: cat > /dev/null\n    stdin: $fetch.json\n  - id: other\n    run: echo plain\n"
    )));
    let (plain, cut) = (here.path("plain.bundle"), here.path("cut.bundle"));
    export_bundle(&here.runtime, &run, &plain, &ExportOptions::default()).unwrap();
    assert!(says(&plain, SENSITIVE));
    let written = export_bundle(&here.runtime, &run, &cut, &redacting(&["fetch"])).unwrap();
    assert!(!says(&cut, SENSITIVE), "{written:?}");
    assert!(written.left_out.contains(&"action of step pick".to_owned()), "{written:?}");
    let report = verify_bundle(&there.runtime, &cut, None).unwrap();
    assert_eq!(report.bundle, written);
    assert_eq!(report.replay.divergences, []);
    assert!(!report.replay.unverified.is_empty());
    // A pure step may be redacted together with the effect that it reads.
    let more = export_bundle(&here.runtime, &run, &cut, &redacting(&["fetch", "pick"])).unwrap();
    assert_eq!(more.redacted, ["fetch", "pick"]);
    assert!(export_bundle(&here.runtime, &run, &plain, &redacting(&["pick"])).is_err());

    // After an import, blobs that were left out are not reported as missing.
    import_bundle(&there.runtime, &cut, &ImportOptions::default()).unwrap();
    let store = there.runtime.store().unwrap();
    assert_eq!(store.verify().unwrap().problems, []);
    let replay = replay_run(&there.runtime, &run, &ReplayOptions::default()).unwrap();
    assert_eq!(replay.divergences, []);
    assert!(!replay.unverified.is_empty());
    let again = there.path("again.bundle");
    let written = export_bundle(&there.runtime, &run, &again, &ExportOptions::default()).unwrap();
    assert_eq!(written.redacted, ["fetch", "pick"]);
    assert!(verify_bundle(&here.runtime, &again, None).unwrap().replay.is_faithful());
}

#[test]
fn records_that_repeat_what_is_redacted_are_cut() {
    let here = TestState::new();
    let run = here.run(&workflow_text(&format!(
        "name: records\nsteps:\n{FETCH}  - id: tell\n    run: echo $fetch.pin >&2; exit 3\n"
    )));
    let run_tells = here.runtime.store().unwrap().all_events(run.parse().unwrap()).unwrap();
    let last = run_tells.last().unwrap();
    let file = here.path("records.bundle");
    let written = export_bundle(&here.runtime, &run, &file, &redacting(&["fetch"])).unwrap();
    assert!(!says(&file, SENSITIVE), "{written:?} {}", last.text);
    let report = verify_bundle(&TestState::new().runtime, &file, None).unwrap();
    assert_eq!(report.replay.divergences, [], "{report:?}");
}

#[test]
fn what_was_known_before_is_not_taken_for_what_was_given() {
    let here = TestState::new();
    let run = here.run(&workflow_text(
        "name: known\nsteps:\n  - id: first\n    run: printf 'component of something'\n  - id: fetch\n    run: printf '%s' '{\"kind\":\"component\",\"text\":\"a new ''thing\"}'\n  - id: last\n    js: 1 + 1\n",
    ));
    let file = here.path("known.bundle");
    let written = export_bundle(&here.runtime, &run, &file, &redacting(&["fetch"])).unwrap();
    assert_eq!(written.left_out, <[String; 0]>::default());
    assert!(!says(&file, "a new thing") && says(&file, "component of something"));
    let report = verify_bundle(&TestState::new().runtime, &file, None).unwrap().replay;
    assert_eq!((report.computed, report.divergences), (1, vec![]));
}
