//! The stumbles of the first users, redone: `first_hour.md` holds what each of them prints now, most of
//! them at a real terminal. `UPDATE_EXPECTED=1` writes the page anew where something differs.

use crate::documents::mistakes_of;
use crate::markdown::Document;

#[test]
fn each_stumble_is_mended() {
    let mistakes = mistakes_of(&Document::read("tests/first_hour.md"));
    assert!(mistakes.is_empty(), "{}", mistakes.join("\n\n"));
}
