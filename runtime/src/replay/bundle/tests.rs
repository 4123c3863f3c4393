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
    let report = there.runtime.verify_bundle(&file).unwrap();
    assert_eq!(report.bundle, written);
    assert_eq!((report.replay.answered, report.replay.divergences.as_slice()), (1, &[][..]));
    assert_eq!(there.runtime.import_bundle(&file).unwrap(), written);
    assert!(there.runtime.replay(&run, &ReplayOptions::default()).unwrap().is_faithful());
    assert!(matches!(there.runtime.import_bundle(&file), Err(BundleError::Store(_))));
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
    let options = ExportOptions { redact: vec!["fetch".to_owned()] };
    let written = place.runtime.export_bundle(&run, &file, &options).unwrap();
    assert_eq!(written.redacted, ["fetch"]);
    let bytes = std::fs::read(&file).unwrap();
    assert!(!String::from_utf8_lossy(&bytes).contains("top-secret-value"));
    assert!(Place::new().runtime.verify_bundle(&file).unwrap().replay.is_faithful());
    // What depends on it is said to be unverified, not different.
    let run = place.run(&workflow("name: d\nsteps:\n  - id: fetch\n    run: printf '[41]'\n  - id: next\n    pipeline: head --n 1\n    stdin: $fetch.json\n"));
    place.runtime.export_bundle(&run, &file, &options).unwrap();
    let report = Place::new().runtime.verify_bundle(&file).unwrap().replay;
    assert_eq!(
        (report.divergences.len(), report.unverified.len(), report.unverified[0].step.as_str()),
        (0, 1, "next")
    );
    let refused =
        place.runtime.export_bundle(&run, &file, &ExportOptions { redact: vec!["nobody".to_owned()] });
    assert!(refused.is_err());
}
