//! Where a small run's memory comes from: an arena that is part of the program's
//! first memory. A run that fits it never grows its memory, and a host has more to
//! do for one growth than a step for all of its allocations.
//!
//! The arena is handed out once from its beginning to its end; only what was handed
//! out last is taken back. Whatever does not fit comes from the system's allocator.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::{Cell, UnsafeCell};

/// Bytes of the arena. They cost nothing before they are touched.
const SIZE: usize = 256 << 10;

/// The greatest alignment that the arena's beginning has.
const ALIGNED: usize = 16;

#[repr(align(16))]
struct Room(UnsafeCell<[u8; SIZE]>);

/// The allocator. There is one, and it belongs to one thread.
pub(crate) struct Arena {
    room: Room,
    /// Bytes handed out.
    used: Cell<usize>,
}

// SAFETY: a component of this contract has one thread.
unsafe impl Sync for Arena {}

impl Arena {
    /// An arena of which nothing is handed out.
    pub(crate) const fn new() -> Self {
        Self { room: Room(UnsafeCell::new([0; SIZE])), used: Cell::new(0) }
    }

    /// Where in the arena a block begins; none if it came from the system.
    fn place(&self, block: *mut u8) -> Option<usize> {
        block.addr().checked_sub(self.room.0.get().addr()).filter(|place| *place < SIZE)
    }

    fn is_last(&self, place: usize, size: usize) -> bool {
        place + size == self.used.get()
    }
}

// SAFETY: blocks of the arena do not overlap: each begins where all before it end,
// and the end moves back only over the block that was handed out last. Addresses in
// the arena are told from the system's by their range.
unsafe impl GlobalAlloc for Arena {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let place = self.used.get().next_multiple_of(layout.align());
        match place.checked_add(layout.size()) {
            Some(end) if end <= SIZE && layout.align() <= ALIGNED => {
                self.used.set(end);
                // SAFETY: `place` is inside the arena.
                unsafe { self.room.0.get().cast::<u8>().add(place) }
            }
            // SAFETY: the caller's promises are the same.
            _ => unsafe { System.alloc(layout) },
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        match self.place(block) {
            Some(place) if self.is_last(place, layout.size()) => self.used.set(place),
            Some(_) => {}
            // SAFETY: what is not of the arena is of the system.
            None => unsafe { System.dealloc(block, layout) },
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let Some(place) = self.place(block) else {
            // SAFETY: what is not of the arena is of the system.
            return unsafe { System.realloc(block, layout, size) };
        };
        let end = place.checked_add(size).filter(|end| *end <= SIZE);
        if let Some(end) = end.filter(|_| self.is_last(place, layout.size())) {
            self.used.set(end);
            return block;
        }
        // SAFETY: the size is the caller's and the alignment was valid; the blocks do not overlap.
        unsafe {
            let new = self.alloc(Layout::from_size_align_unchecked(size, layout.align()));
            if !new.is_null() {
                block.copy_to_nonoverlapping(new, layout.size().min(size));
                self.dealloc(block, layout);
            }
            new
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(size: usize, align: usize) -> Layout {
        Layout::from_size_align(size, align).unwrap_or(Layout::new::<u8>())
    }

    #[test]
    fn blocks_are_aligned_and_apart_and_the_last_one_is_taken_back() {
        let arena = Box::new(Arena::new());
        // SAFETY: each block is used within its size and given back with its layout.
        unsafe {
            let one = arena.alloc(layout(3, 1));
            let two = arena.alloc(layout(8, 8));
            assert_eq!(two.addr() % 8, 0);
            assert!(two.addr() >= one.addr() + 3);
            one.write_bytes(1, 3);
            two.write_bytes(2, 8);
            let two = arena.realloc(two, layout(8, 8), 16);
            assert_eq!(std::slice::from_raw_parts(two, 8), [2; 8]);
            let moved = arena.realloc(one, layout(3, 1), 5);
            assert_ne!(moved, one);
            assert_eq!(std::slice::from_raw_parts(moved, 3), [1; 3]);
            let used = arena.used.get();
            let last = arena.alloc(layout(100, 1));
            arena.dealloc(last, layout(100, 1));
            assert_eq!(arena.used.get(), used);
        }
    }

    #[test]
    fn what_does_not_fit_comes_from_the_system() {
        let arena = Box::new(Arena::new());
        // SAFETY: as above.
        unsafe {
            let large = arena.alloc(layout(SIZE + 1, 1));
            assert!(arena.place(large).is_none() && !large.is_null());
            let full = arena.alloc(layout(SIZE, 1));
            assert!(arena.place(full).is_some());
            full.write_bytes(7, SIZE);
            let outgrown = arena.realloc(full, layout(SIZE, 1), SIZE + 1);
            assert!(arena.place(outgrown).is_none());
            assert_eq!(std::slice::from_raw_parts(outgrown, SIZE), vec![7; SIZE]);
            assert_eq!(arena.used.get(), 0);
            let strict = arena.alloc(layout(64, 4096));
            assert!(arena.place(strict).is_none());
            arena.dealloc(strict, layout(64, 4096));
            arena.dealloc(outgrown, layout(SIZE + 1, 1));
            arena.dealloc(large, layout(SIZE + 1, 1));
        }
    }
}
