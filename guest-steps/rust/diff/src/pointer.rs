//! What tells items apart.

use serde_json::Value;

/// The value of a key: a JSON pointer (RFC 6901) if it begins with `/`, else a field name.
pub(crate) fn key_of<'a>(item: &'a Value, key: Option<&str>) -> Option<&'a Value> {
    match key {
        None => Some(item),
        Some(pointer) if pointer.starts_with('/') => item.pointer(pointer),
        Some(field) => item.get(field),
    }
}
