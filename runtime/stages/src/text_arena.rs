//! Items and texts that a stage holds until its input ends, stored as compact text: a tenth of the size
//! of the values.

use serde_json::Value;

use lobster_base::json;
use lobster_stage::StageError;

/// Size of the chunks that hold the text; growing never copies.
const CHUNK: usize = 1 << 20;

/// Texts, each named by a [`Slot`].
#[derive(Default)]
pub(crate) struct TextArena {
    chunks: Vec<String>,
}

/// Position of a text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    chunk: u32,
    start: u32,
    len: u32,
}

impl TextArena {
    pub(crate) fn push_text(&mut self, text: &str) -> Result<Slot, StageError> {
        let full = self.chunks.last().is_none_or(|chunk| chunk.len() + text.len() > chunk.capacity());
        if full {
            self.chunks.push(String::with_capacity(text.len().max(CHUNK)));
        }
        let too_much = || StageError::permanent("the input is too large to be held at once");
        let chunk = u32::try_from(self.chunks.len() - 1).map_err(|_| too_much())?;
        let last = self.chunks.last_mut().ok_or_else(too_much)?;
        let start = u32::try_from(last.len()).map_err(|_| too_much())?;
        let len = u32::try_from(text.len()).map_err(|_| too_much())?;
        last.push_str(text);
        Ok(Slot { chunk, start, len })
    }

    pub(crate) fn push_item(&mut self, item: &Value) -> Result<Slot, StageError> {
        self.push_text(&json::compact(item))
    }

    pub(crate) fn slot_text(&self, slot: Slot) -> &str {
        let start = slot.start as usize;
        self.chunks
            .get(slot.chunk as usize)
            .and_then(|chunk| chunk.get(start..start + slot.len as usize))
            .unwrap_or("")
    }

    pub(crate) fn parse_item(&self, slot: Slot) -> Result<Value, StageError> {
        json::parse(self.slot_text(slot))
            .map_err(|error| StageError::permanent(format!("held item: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn items_come_back_as_they_were() {
        let mut held = TextArena::default();
        let items: Vec<_> = (0..3000)
            .map(|i| json!({"i": i, "f": f64::from(i) / 7.0, "s": "é".repeat(i as usize % 700), "n": null}))
            .chain([json!("x".repeat(CHUNK + 1)), json!(u64::MAX), json!("")])
            .collect();
        let slots: Vec<_> = items.iter().map(|item| held.push_item(item).unwrap()).collect();
        for (slot, item) in slots.iter().zip(&items) {
            assert_eq!(json::compact(&held.parse_item(*slot).unwrap()), json::compact(item));
        }
        assert!(held.chunks.len() > 2);
    }
}
