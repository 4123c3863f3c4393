//! A cache for values made from the record, so that repeated visits of a page need not make them again. Its size is
//! bounded; the least recently used values are removed first.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{LazyLock, Mutex};

use lobster_runtime::sync::lock;

/// Values by the keys they were made from.
pub(crate) struct Cache<K, V> {
    /// The largest total size, in the unit of the values' sizes.
    budget: usize,
    held: LazyLock<Mutex<Held<K, V>>>,
}

struct Held<K, V> {
    values: HashMap<K, Kept<V>>,
    size: usize,
    turn: u64,
}

struct Kept<V> {
    value: V,
    size: usize,
    used: u64,
}

impl<K: Clone + Eq + Hash, V: Clone> Cache<K, V> {
    pub(crate) const fn new(budget: usize) -> Self {
        let none = || Mutex::new(Held { values: HashMap::new(), size: 0, turn: 0 });
        Self { budget, held: LazyLock::new(none) }
    }

    pub(crate) fn get(&self, key: &K) -> Option<V> {
        let mut held = lock(&self.held);
        held.turn += 1;
        let turn = held.turn;
        let kept = held.values.get_mut(key)?;
        kept.used = turn;
        Some(kept.value.clone())
    }

    /// Stores a value, unless it is larger than the whole budget.
    pub(crate) fn put(&self, key: K, value: V, size: usize) {
        let mut held = lock(&self.held);
        if let Some(before) = held.values.remove(&key) {
            held.size -= before.size;
        }
        if size > self.budget {
            return;
        }
        held.turn += 1;
        held.size += size;
        let kept = Kept { value, size, used: held.turn };
        held.values.insert(key, kept);
        while held.size > self.budget {
            let oldest = held.values.iter().min_by_key(|(_, kept)| kept.used).map(|(key, _)| key.clone());
            let Some(gone) = oldest.and_then(|key| held.values.remove(&key)) else { break };
            held.size -= gone.size;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_longest_ago_goes_first_and_the_budget_holds() {
        let cache: Cache<u32, u32> = Cache::new(10);
        for key in 0..3 {
            cache.put(key, key * 10, 3);
        }
        assert_eq!(cache.get(&0), Some(0));
        cache.put(3, 30, 3);
        assert_eq!([0, 1, 2, 3].map(|key| cache.get(&key)), [Some(0), None, Some(20), Some(30)]);
        // The same key with another size, and a value that is too large.
        cache.put(3, 31, 4);
        cache.put(4, 40, 11);
        assert_eq!([0, 2, 3, 4].map(|key| cache.get(&key)), [Some(0), Some(20), Some(31), None]);
        assert_eq!(lock(&cache.held).size, 10);
        cache.put(0, 0, 11);
        assert_eq!((cache.get(&0), lock(&cache.held).size), (None, 7));
    }
}
