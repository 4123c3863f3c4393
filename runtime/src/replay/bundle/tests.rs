use super::*;
use crate::replay::testing::{Place, workflow};

const SMALL: &str = "name: small\nsteps:\n  - id: say\n    run: printf '[1,2]'\n  - id: keep\n    pipeline: head --n 1\n    stdin: $say.json\n";

#[test]
fn a_bundle_verifies_and_imports_where_nothing_else_is() {
    let (here, there) = (Place::new(), Place::new());
    let run = here.run(&workflow(SMALL));
    let file = here.path("small.bundle");
    let written = here.runtime.export_bundle(&run, &file, &ExportOptions::default()).unwrap();
    assert_eq!(written.bytes, std::fs::metadata(&file).unwrap().len());
    let report = there.runtime.verify_bundle(&file, None).unwrap();
    assert_eq!(report.bundle, written);
    assert_eq!((report.replay.answered, report.replay.divergences.as_slice()), (1, &[][..]));
    assert_eq!(there.runtime.import_bundle(&file, None).unwrap(), written);
    assert!(there.runtime.replay(&run, &ReplayOptions::default()).unwrap().is_faithful());
    assert!(matches!(there.runtime.import_bundle(&file, None), Err(BundleError::Store(_))));
}

#[test]
fn any_flipped_or_missing_byte_is_found_and_named() {
    let place = Place::new();
    let run = place.run(&workflow(SMALL));
    let file = place.path("small.bundle");
    place.runtime.export_bundle(&run, &file, &ExportOptions::default()).unwrap();
    let bytes = std::fs::read(&file).unwrap();
    let store = Store::in_memory().unwrap();
    assert!(read::read(bytes.as_slice(), &store).is_ok());
    for at in 0..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << (at % 8);
        match read::read(flipped.as_slice(), &store) {
            Err(BundleError::NotABundle) => assert!(at < 16),
            Err(BundleError::Damaged { object, .. }) => {
                let known = ["the header", "the manifest", "record ", "blob "];
                assert!(known.iter().any(|name| object.starts_with(name)), "{at}: {object}");
            }
            other => panic!("byte {at}: {:?}", other.map(|bundle| bundle.summary)),
        }
        assert!(read::read(&bytes[..at], &store).is_err(), "cut at {at}");
    }
    let longer = [bytes.as_slice(), b"x"].concat();
    assert!(
        matches!(read::read(longer.as_slice(), &store), Err(BundleError::Damaged { object, .. }) if object == "the end of the file")
    );
}

#[test]
fn what_is_redacted_is_not_in_the_file() {
    let place = Place::new();
    let run = place.run(&workflow("name: r\nsteps:\n  - id: fetch\n    run: printf 'top-%s-value' secret\n  - id: other\n    run: printf hi\n"));
    let file = place.path("r.bundle");
    let options = ExportOptions { redact: vec!["fetch".to_owned()], sign: None };
    let written = place.runtime.export_bundle(&run, &file, &options).unwrap();
    assert_eq!(written.redacted, ["fetch"]);
    let bytes = std::fs::read(&file).unwrap();
    assert!(!String::from_utf8_lossy(&bytes).contains("top-secret-value"));
    assert!(Place::new().runtime.verify_bundle(&file, None).unwrap().replay.is_faithful());
    // What depends on it is said to be unverified, not different.
    let run = place.run(&workflow("name: d\nsteps:\n  - id: fetch\n    run: printf '[41]'\n  - id: next\n    pipeline: head --n 1\n    stdin: $fetch.json\n"));
    place.runtime.export_bundle(&run, &file, &options).unwrap();
    let report = Place::new().runtime.verify_bundle(&file, None).unwrap().replay;
    assert_eq!(
        (report.divergences.len(), report.unverified.len(), report.unverified[0].step.as_str()),
        (0, 1, "next")
    );
    let refused = place.runtime.export_bundle(
        &run,
        &file,
        &ExportOptions { redact: vec!["nobody".to_owned()], sign: None },
    );
    assert!(refused.is_err());
}

#[test]
fn a_signature_says_who_and_any_flipped_byte_of_it_is_found() {
    let place = Place::new();
    let run = place.run(&workflow(SMALL));
    let (ours, theirs) = (place.path("ours.pem"), place.path("theirs.pem"));
    let (us, public) = SigningKey::generate(&ours).unwrap();
    let (them, _) = SigningKey::generate(&theirs).unwrap();
    assert_eq!(PublicKey::read(&public).unwrap(), us);
    assert!(matches!(SigningKey::generate(&ours), Err(KeyError::Write { .. })));
    assert!(matches!(SigningKey::read(&public), Err(KeyError::NotAKey { .. })));
    assert!(matches!(PublicKey::read(&ours), Err(KeyError::NotAKey { .. })));

    let (plain, signed) = (place.path("plain.bundle"), place.path("signed.bundle"));
    place.runtime.export_bundle(&run, &plain, &ExportOptions::default()).unwrap();
    let options =
        ExportOptions { sign: Some(SigningKey::read(&ours).unwrap().into()), ..ExportOptions::default() };
    let written = place.runtime.export_bundle(&run, &signed, &options).unwrap();
    assert_eq!((written.signed_by, written.bytes), (Some(us), std::fs::metadata(&signed).unwrap().len()));
    let there = Place::new();
    assert_eq!(there.runtime.verify_bundle(&signed, Some(&us)).unwrap().bundle, written);
    assert_eq!(there.runtime.verify_bundle(&signed, None).unwrap().bundle.signed_by, Some(us));
    assert!(matches!(
        there.runtime.verify_bundle(&signed, Some(&them)),
        Err(BundleError::OtherSigner { found, wanted, .. }) if (found, wanted) == (us, them)
    ));
    assert!(matches!(there.runtime.verify_bundle(&plain, Some(&us)), Err(BundleError::Unsigned { .. })));
    assert!(matches!(there.runtime.import_bundle(&plain, Some(&us)), Err(BundleError::Unsigned { .. })));
    assert_eq!(there.runtime.import_bundle(&signed, Some(&us)).unwrap(), written);

    let bytes = std::fs::read(&signed).unwrap();
    let store = Store::in_memory().unwrap();
    for at in 0..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << (at % 8);
        assert!(read::read(flipped.as_slice(), &store).is_err(), "{at}");
        // Without its whole signature a bundle is an unsigned one or a damaged one.
        match read::read(&bytes[..at], &store) {
            Ok(bundle) => assert_eq!((at, bundle.summary.signed_by), (bytes.len() - signature::LENGTH, None)),
            Err(error) => assert!(matches!(error, BundleError::Damaged { .. } | BundleError::NotABundle)),
        }
    }
}
