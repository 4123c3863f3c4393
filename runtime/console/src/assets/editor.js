// What the text of a workflow has beside being a text field: it is checked while one types, says what could
// stand at the cursor, numbers its lines, and keeps what was typed. Saving is the form's.

export function start(form, settle) {
  const area = form.querySelector("textarea");
  const base = form.elements.base;
  const status = document.getElementById("live");
  const workflow = form.dataset.workflow;
  const key = `text:${location.pathname}`;
  const given = area.value;

  // ---- what was typed survives a session that ended and a page that was left

  const store = (value) => {
    try {
      if (value === null) sessionStorage.removeItem(key);
      else sessionStorage.setItem(key, JSON.stringify(value));
    } catch {
      // A browser that keeps nothing: the form itself still has the text.
    }
  };
  let kept = null;
  try {
    kept = JSON.parse(sessionStorage.getItem(key) ?? "null");
  } catch {
    // Nothing was kept.
  }
  const isAnswer = document.getElementById("saving") !== null;
  if ("saved" in form.dataset) store(null);
  else if (!isAnswer && kept && kept.text !== given) {
    // With the file that it was made from: saving says so if that is another one now.
    const now = base.value;
    area.value = kept.text;
    base.value = kept.base;
    const note = document.getElementById("restored");
    note.hidden = false;
    note.querySelector("[data-discard]").addEventListener("click", () => {
      area.value = given;
      base.value = now;
      note.hidden = true;
      store(null);
      changed();
    });
  }
  let isSent = false;
  form.addEventListener("submit", () => (isSent = true));
  window.addEventListener("beforeunload", (event) => {
    if (!isSent && area.value !== given) event.preventDefault();
  });

  // ---- numbers beside the lines

  const gutter = document.createElement("pre");
  gutter.className = "gutter";
  gutter.setAttribute("aria-hidden", "true");
  area.before(gutter);
  area.addEventListener("scroll", () => (gutter.scrollTop = area.scrollTop));

  function number() {
    const count = area.value.split("\n").length;
    const bad = new Map();
    for (const link of document.querySelectorAll("#findings [data-line]")) {
      const isError = link.closest(".row").querySelector(".is-bad");
      if (isError || !bad.has(link.dataset.line)) bad.set(link.dataset.line, isError ? "is-bad" : "is-wait");
    }
    const lines = [];
    for (let line = 1; line <= count; line++) {
      const mark = document.createElement("span");
      mark.textContent = `${line}\n`;
      const tone = bad.get(String(line));
      if (tone) mark.className = tone;
      lines.push(mark);
    }
    gutter.replaceChildren(...lines);
    gutter.scrollTop = area.scrollTop;
  }

  // ---- checking while one types

  let waiting;
  let asked = 0;

  function check() {
    const turn = ++asked;
    const fields = new URLSearchParams({ act: "check", text: area.value, base: base.value });
    const request = new XMLHttpRequest();
    request.open("POST", location.pathname);
    request.setRequestHeader("Content-Type", "application/x-www-form-urlencoded");
    // A document that is parsed so runs nothing.
    request.responseType = "document";
    request.onload = () => {
      if (turn !== asked) return;
      if (request.status === 401) {
        status.textContent = "Your session has ended. The text stays here; log in in another tab, then go on.";
        return;
      }
      if (request.status !== 200 || !request.response) {
        status.textContent = "It could not be checked.";
        return;
      }
      for (const part of document.querySelectorAll("[data-part]")) {
        const fresh = request.response.getElementById(part.id);
        if (fresh) settle(part, document.adoptNode(fresh));
      }
      const count = document.querySelectorAll("#findings .row").length;
      status.textContent = count === 0 ? "checked" : count === 1 ? "1 finding" : `${count} findings`;
      number();
    };
    request.onerror = () => (status.textContent = "The server does not answer. The text stays here.");
    request.send(fields);
  }

  function changed() {
    clearTimeout(waiting);
    waiting = setTimeout(check, 250);
    number();
  }

  area.addEventListener("input", () => {
    store(area.value === given ? null : { text: area.value, base: base.value });
    changed();
    propose();
  });
  document.getElementById("findings").addEventListener("click", (event) => {
    const link = event.target.closest("[data-line]");
    if (!link) return;
    event.preventDefault();
    const lines = area.value.split("\n");
    const line = Number(link.dataset.line);
    const before = lines.slice(0, line - 1).reduce((sum, text) => sum + text.length + 1, 0);
    const column = [...(lines[line - 1] ?? "")].slice(0, Number(link.dataset.column) - 1).join("").length;
    area.focus();
    area.setSelectionRange(before + column, before + (lines[line - 1] ?? "").length);
    area.scrollTop = Math.max(0, (line - 6) * lineHeight());
  });

  // ---- what could stand at the cursor

  const list = document.createElement("ul");
  list.id = "proposals";
  list.className = "proposals";
  list.setAttribute("role", "listbox");
  list.setAttribute("aria-label", "Proposals");
  list.hidden = true;
  area.after(list);
  area.setAttribute("aria-controls", list.id);
  area.setAttribute("aria-autocomplete", "list");
  let proposals = [];
  let chosen = 0;
  let proposing = 0;

  const lineHeight = () => parseFloat(getComputedStyle(area).lineHeight);

  function hide() {
    proposing++;
    proposals = [];
    list.hidden = true;
    area.removeAttribute("aria-activedescendant");
  }

  function show() {
    list.replaceChildren(
      ...proposals.map((proposal, at) => {
        const option = document.createElement("li");
        option.role = "option";
        option.id = `proposal-${at}`;
        option.dataset.at = at;
        option.setAttribute("aria-selected", String(at === chosen));
        const name = document.createElement("code");
        name.textContent = proposal.label;
        const about = document.createElement("span");
        about.className = "muted small clip";
        about.textContent = proposal.about ?? "";
        option.append(name, about);
        return option;
      }),
    );
    const before = area.value.slice(0, proposals[0].from).split("\n");
    const style = getComputedStyle(area);
    const top = area.offsetTop + parseFloat(style.paddingTop) + before.length * lineHeight() - area.scrollTop + 2;
    list.style.top = `${Math.min(top, area.offsetTop + area.offsetHeight)}px`;
    list.style.left = `clamp(0px, calc(${area.offsetLeft - area.scrollLeft}px + ${before.at(-1).length}ch), calc(100% - 16rem))`;
    list.hidden = false;
    area.setAttribute("aria-activedescendant", `proposal-${chosen}`);
    list.children[chosen]?.scrollIntoView({ block: "nearest" });
  }

  async function propose(isWanted = false) {
    const at = area.selectionStart;
    const line = area.value.slice(area.value.lastIndexOf("\n", at - 1) + 1, at);
    // Unasked only where something has been typed that could go on.
    if (area.selectionEnd !== at || (!isWanted && !/[\w$.{]$/.test(line))) return hide();
    const turn = ++proposing;
    try {
      const answer = await fetch(`/api/v1/workflows/${encodeURIComponent(workflow)}/complete`, {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify({ text: area.value, at }),
      });
      if (turn !== proposing || !answer.ok) return;
      proposals = (await answer.json()).proposals;
    } catch {
      return;
    }
    if (turn !== proposing) return;
    chosen = 0;
    if (proposals.length && document.activeElement === area) show();
    else hide();
  }

  function take(proposal) {
    hide();
    area.focus();
    area.setSelectionRange(proposal.from, area.selectionEnd);
    insert(proposal.insert);
    if (/[\s.]$/.test(proposal.insert)) propose(true);
  }

  // So that it can be undone like typing.
  function insert(text) {
    if (!document.execCommand("insertText", false, text)) {
      area.setRangeText(text, area.selectionStart, area.selectionEnd, "end");
      area.dispatchEvent(new Event("input"));
    }
  }

  list.addEventListener("mousedown", (event) => {
    event.preventDefault();
    const option = event.target.closest("[data-at]");
    if (option) take(proposals[Number(option.dataset.at)]);
  });
  area.addEventListener("blur", hide);
  area.addEventListener("click", hide);
  area.addEventListener("keydown", (event) => {
    if (event.isComposing) return;
    if (event.ctrlKey && event.key === " ") {
      event.preventDefault();
      propose(true);
      return;
    }
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "s") {
      event.preventDefault();
      form.querySelector("button[value=save]:not(:disabled)")?.click();
      return;
    }
    if (!list.hidden) {
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (step) {
        event.preventDefault();
        chosen = (chosen + step + proposals.length) % proposals.length;
        show();
        return;
      }
      if (event.key === "Enter" || event.key === "Tab") {
        event.preventDefault();
        take(proposals[chosen]);
        return;
      }
      if (event.key === "Escape") {
        event.preventDefault();
        hide();
        return;
      }
      if (["ArrowLeft", "ArrowRight", "Home", "End"].includes(event.key)) hide();
    }
    // A new line begins where the one above does.
    if (event.key === "Enter" && !event.shiftKey && !event.ctrlKey && !event.metaKey && !event.altKey) {
      const at = area.selectionStart;
      const line = area.value.slice(area.value.lastIndexOf("\n", at - 1) + 1, at);
      const indent = /^ */.exec(line)[0];
      if (indent) {
        event.preventDefault();
        insert(`\n${indent}`);
      }
    }
  });

  number();
  if (area.value !== given) changed();
}
