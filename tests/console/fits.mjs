// Whether what a page shows has its own place.

// How many pixels a page is wider than its window.
export const overflow = (page) => page.evaluate(() => Math.max(0, document.documentElement.scrollWidth - document.documentElement.clientWidth));

// Pairs of texts of a page that lie over one another, as far as they can be seen.
export const overlaps = (page) =>
  page.evaluate(() => {
    const seen = [];
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
      const { parentElement: element, data } = texts.currentNode;
      if (!data.trim() || element.closest(".hide, textarea, select") || !element.checkVisibility({ visibilityProperty: true })) continue;
      const clips = [];
      for (let above = element; above; above = above.parentElement) {
        if (getComputedStyle(above).overflowX !== "visible") clips.push(above.getBoundingClientRect());
      }
      const range = document.createRange();
      range.selectNodeContents(texts.currentNode);
      for (const line of range.getClientRects()) {
        const of = (side, most) => most(line[side], ...clips.map((clip) => clip[side]));
        const box = { left: of("left", Math.max), right: of("right", Math.min), top: of("top", Math.max), bottom: of("bottom", Math.min) };
        if (box.right - box.left > 1 && box.bottom - box.top > 1) seen.push({ ...box, node: texts.currentNode, text: data.trim().slice(0, 40) });
      }
    }
    // The box of a line is higher than its letters, and tight lines share a little of it.
    const shared = (one, other, from, to) => Math.min(one[to], other[to]) - Math.max(one[from], other[from]);
    const meet = (one, other) => one.node !== other.node && shared(one, other, "left", "right") > 2 && shared(one, other, "top", "bottom") > 6;
    return seen.flatMap((one, at) => seen.slice(at + 1).filter((other) => meet(one, other)).map((other) => [one.text, other.text]));
  });
