// What the pages do beside being read: they follow the record, remember a theme, find things, and keep
// what was typed. Each of them works without this file.

const root = document.documentElement;
root.classList.add("js");

// ---- the theme: as the system has it, or light, dark, high contrast

const THEMES = ["", "light", "dark", "contrast"];
const NAMES = { "": "as the system", light: "light", dark: "dark", contrast: "high contrast" };

function setTheme(theme) {
  if (theme) root.dataset.theme = theme;
  else delete root.dataset.theme;
  for (const button of document.querySelectorAll("[data-theme-switch]")) {
    button.textContent = `Theme: ${NAMES[theme]}`;
  }
}

function storedTheme() {
  try {
    const theme = localStorage.getItem("theme") ?? "";
    return THEMES.includes(theme) ? theme : "";
  } catch {
    return "";
  }
}

function nextTheme() {
  const theme = THEMES[(THEMES.indexOf(root.dataset.theme ?? "") + 1) % THEMES.length];
  try {
    localStorage.setItem("theme", theme);
  } catch {
    // A browser that keeps nothing keeps no theme.
  }
  setTheme(theme);
}

setTheme(storedTheme());

// On a phone the pages are a row that scrolls: the one that is open is in sight. To ask for sizes has the whole
// page laid out, so that is done when it is.
requestAnimationFrame(() => {
  const here = document.querySelector(".rail nav [aria-current]");
  const row = here?.closest("nav");
  if (row && row.scrollWidth > row.clientWidth) row.scrollLeft = here.offsetLeft - (row.clientWidth - here.offsetWidth) / 2;
});

// ---- times: relative, with the exact one at hand

const SCALES = [[60, "s", 1], [3600, "min", 60], [86400, "h", 3600], [1209600, "d", 86400]];

function relative(at, now) {
  const seconds = Math.round((now - at) / 1000);
  const size = Math.abs(seconds);
  if (size < 5) return "just now";
  const scale = SCALES.find(([limit]) => size < limit);
  if (!scale) return new Date(at).toISOString().slice(0, 10);
  const amount = `${Math.floor(size / scale[2])} ${scale[1]}`;
  return seconds < 0 ? `in ${amount}` : `${amount} ago`;
}

function span(ms) {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
  return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
}

// How far this clock is from the server's: durations come from the record, never from this machine alone.
let skew = 0;

function readClock() {
  const server = Number(document.querySelector("meta[name=clock]")?.content);
  if (server) skew = server - Date.now();
}

function tellTimes() {
  const now = Date.now() + skew;
  for (const time of document.querySelectorAll("time[datetime]")) {
    const text = relative(Date.parse(time.dateTime), now);
    if (time.textContent !== text) time.textContent = text;
  }
  for (const time of document.querySelectorAll("[data-since]")) {
    const text = span(now - Number(time.dataset.since));
    if (time.textContent !== text) time.textContent = text;
  }
}

// The server has just told the times; from now on they are told here.
readClock();
setInterval(tellTimes, 1000);

document.addEventListener("pointerover", (event) => {
  const time = event.target.closest?.("time[datetime]");
  if (time) time.title = time.dateTime;
});

// ---- following the record
//
// The server renders; this asks again when something changed, and puts in what differs. There is nothing
// to get out of step: after a sleep or a broken connection the page is read as it is now.

const live = () => document.querySelectorAll("[data-live]");
const pulse = (state, text) => {
  for (const sign of document.querySelectorAll(".pulse")) {
    sign.dataset.state = state;
    sign.textContent = text;
  }
};

// What a part of a list is about: by what it says of itself, or by where its link leads.
const keyOf = (part) => part.dataset?.key ?? (["LI", "TR"].includes(part.nodeName) ? part.querySelector("a")?.getAttribute("href") : undefined);

// Of an element whose content was replaced, what the reader has opened, typed or focused stays.
function settle(from, to) {
  if (from.isEqualNode(to)) return;
  if (from.nodeType !== to.nodeType || from.nodeName !== to.nodeName) return from.replaceWith(to);
  if (from.nodeType === Node.TEXT_NODE) {
    if (from.data !== to.data) from.data = to.data;
    return;
  }
  if (from.nodeType !== Node.ELEMENT_NODE) return;
  for (const { name, value } of [...to.attributes]) {
    if (from.getAttribute(name) !== value) from.setAttribute(name, value);
  }
  for (const { name } of [...from.attributes]) {
    const isReaders = (name === "open" && from.nodeName === "DETAILS") || (name === "title" && from.nodeName === "TIME");
    if (!to.hasAttribute(name) && !isReaders) from.removeAttribute(name);
  }
  if (["INPUT", "TEXTAREA", "SELECT"].includes(from.nodeName)) return;
  const keyed = new Map();
  for (const child of from.children) if (keyOf(child)) keyed.set(keyOf(child), child);
  let at = from.firstChild;
  for (const wanted of [...to.childNodes]) {
    const known = keyed.get(keyOf(wanted));
    if (known && known !== at) from.insertBefore(known, at);
    const here = known ?? at;
    if (!here || (!known && keyOf(here) && keyOf(wanted))) {
      from.insertBefore(wanted, at);
      continue;
    }
    at = here.nextSibling;
    settle(here, wanted);
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

let reading = false;
let again = false;

function reread() {
  if (document.hidden || !live().length) {
    again = true;
    return;
  }
  if (reading) {
    again = true;
    return;
  }
  reading = true;
  again = false;
  const request = new XMLHttpRequest();
  request.open("GET", location.href);
  // A document that is parsed so runs nothing, and needs no policy for trusted types.
  request.responseType = "document";
  request.onload = () => {
    reading = false;
    const fresh = request.response;
    if (request.status === 401) {
      pulse("lost", "logged out");
      return;
    }
    if (fresh) {
      const clock = Number(fresh.querySelector("meta[name=clock]")?.content);
      if (clock) skew = clock - Date.now();
      const parts = (page) => [...page.querySelectorAll("[data-live]")].map((part) => part.id).join(" ");
      const main = document.querySelector("main");
      if (parts(document) !== parts(fresh) && fresh.querySelector("main")) {
        // It has become another page: what was queued has begun.
        settle(main, document.adoptNode(fresh.querySelector("main")));
      } else {
        for (const part of live()) {
          const other = fresh.getElementById(part.id);
          if (other) settle(part, document.adoptNode(other));
        }
      }
      document.title = fresh.title || document.title;
      tellTimes();
    }
    if (again) setTimeout(reread, 60);
  };
  request.onerror = () => {
    reading = false;
  };
  request.send();
}

function concerns(runs) {
  const only = document.querySelector("[data-run]")?.dataset.run;
  return !only || runs.includes(only);
}

const hear = (message) => {
  if (message.kind === "state") pulse(message.state, message.text);
  // A connection that begins does not know what it has missed.
  else if (message.kind === "now" || concerns(message.runs)) reread();
};

// One connection for all tabs: browsers allow six to a server.
function listen(tell) {
  let source;
  const open = () => {
    source = new EventSource("/api/v1/changes");
    source.onopen = () => tell({ kind: "state", state: "live", text: "live" });
    source.onerror = () => {
      tell({ kind: "state", state: "lost", text: "not connected" });
      if (source.readyState === EventSource.CLOSED) setTimeout(open, 2000);
    };
    source.addEventListener("runs", (event) => tell({ kind: "runs", runs: JSON.parse(event.data) }));
    source.addEventListener("now", () => tell({ kind: "now" }));
  };
  open();
  return () => source.close();
}

function follow() {
  if (!document.querySelector(".pulse")) return;
  if (!navigator.locks || !("BroadcastChannel" in window)) {
    // Without them each tab has its own connection, while it is looked at.
    let close;
    const turn = () => {
      close?.();
      close = document.hidden ? undefined : listen(hear);
    };
    document.addEventListener("visibilitychange", turn);
    turn();
    return;
  }
  const channel = new BroadcastChannel("changes");
  channel.onmessage = ({ data }) => {
    if (data === "who") {
      if (leads) channel.postMessage({ kind: "state", state: "live", text: "live" });
    } else hear(data);
  };
  let leads = false;
  const left = new AbortController();
  window.addEventListener("pagehide", () => left.abort());
  navigator.locks
    .request("changes", { signal: left.signal }, () => {
      leads = true;
      const tell = (message) => {
        hear(message);
        channel.postMessage(message);
      };
      const close = listen(tell);
      return new Promise((done) => window.addEventListener("pagehide", () => { close(); done(); }));
    })
    .catch(() => {});
  channel.postMessage("who");
}

follow();
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) reread();
});
window.addEventListener("pageshow", (event) => {
  if (event.persisted) location.reload();
});
// What is not in any journal: the queue, schedules, a process that died.
setInterval(reread, 10000);

// ---- logging in: the secret of a link stands behind the #, where no server sees it

const login = document.querySelector("form[data-login]");
function enter() {
  if (!login || location.hash.length < 2) return;
  login.elements.link.value = location.hash.slice(1);
  history.replaceState(null, "", location.pathname + location.search);
  login.submit();
}
enter();
// A link that is pasted into the address of this very page loads nothing.
window.addEventListener("hashchange", enter);

// ---- what was typed survives a session that ended, and a tab that was closed

for (const form of document.querySelectorAll("form[data-keep]")) {
  const key = `typed:${location.pathname}:${form.dataset.keep}`;
  const fields = () => [...form.elements].filter((field) => field.name && !["hidden", "submit", "password"].includes(field.type));
  try {
    const kept = JSON.parse(sessionStorage.getItem(key) ?? "null");
    for (const field of kept ? fields() : []) {
      const value = kept[field.name];
      if (value === undefined) continue;
      if (["checkbox", "radio"].includes(field.type)) field.checked = [].concat(value).includes(field.value);
      else if (!field.value || field.value === field.defaultValue) field.value = value;
    }
  } catch {
    // Nothing was kept.
  }
  form.addEventListener("input", () => {
    const kept = {};
    for (const field of fields()) {
      if (["checkbox", "radio"].includes(field.type)) {
        if (field.checked) kept[field.name] = [...(kept[field.name] ?? []), field.value];
      } else kept[field.name] = field.value;
    }
    try {
      sessionStorage.setItem(key, JSON.stringify(kept));
    } catch {
      // No room: the page still works.
    }
  });
}
for (const done of document.querySelectorAll("[data-forget]")) {
  try {
    for (const key of Object.keys(sessionStorage)) {
      if (key.startsWith(`typed:${done.dataset.forget}:`)) sessionStorage.removeItem(key);
    }
  } catch {
    // Nothing was kept.
  }
}

// A form is sent once; what cannot be taken back is asked about.
document.addEventListener("submit", (event) => {
  const form = event.target;
  const question = event.submitter?.dataset.confirm ?? form.dataset.confirm;
  if (form.dataset.sent || (question && !confirm(question))) {
    event.preventDefault();
    return;
  }
  if (form.method === "post") {
    form.dataset.sent = "yes";
    setTimeout(() => delete form.dataset.sent, 8000);
  }
});

// ---- the palette: everything by its name

const palette = document.getElementById("palette");
const words = palette?.querySelector("input");
const list = palette?.querySelector("[role=listbox]");
let chosen = 0;

function places() {
  const links = [...document.querySelectorAll(".rail nav a, main a[href]")];
  const seen = new Set();
  return links
    .map((link) => ({ href: link.getAttribute("href"), text: (link.dataset.name ?? link.textContent).replace(/\s+/g, " ").trim() }))
    .filter(({ href, text }) => text && href?.startsWith("/") && !seen.has(href) && seen.add(href));
}

function showPlaces() {
  const typed = words.value.trim().toLowerCase();
  const found = places().filter(({ text }) => typed.split(/\s+/).every((word) => text.toLowerCase().includes(word)));
  if (typed) found.push({ href: `/runs?name=${encodeURIComponent(words.value.trim())}`, text: `Runs named “${words.value.trim()}”` });
  if (/^[0-9a-f-]{4,}$/.test(typed)) found.unshift({ href: `/runs/${typed}`, text: `Run ${typed}` });
  chosen = Math.min(chosen, Math.max(0, found.length - 1));
  list.replaceChildren(
    ...found.slice(0, 12).map(({ href, text }, at) => {
      const option = document.createElement("li");
      option.role = "option";
      option.id = `place-${at}`;
      option.dataset.href = href;
      option.setAttribute("aria-selected", String(at === chosen));
      const name = document.createElement("span");
      name.className = "clip";
      name.textContent = text.slice(0, 90);
      option.append(name);
      return option;
    }),
  );
  words.setAttribute("aria-activedescendant", list.children.length ? `place-${chosen}` : "");
}

function openPalette() {
  if (!palette || palette.open) return;
  words.value = "";
  chosen = 0;
  showPlaces();
  palette.showModal();
}

if (palette) {
  words.addEventListener("input", () => {
    chosen = 0;
    showPlaces();
  });
  words.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      event.preventDefault();
      chosen = Math.max(0, Math.min(list.children.length - 1, chosen + step));
      showPlaces();
      list.children[chosen]?.scrollIntoView({ block: "nearest" });
    } else if (event.key === "Enter") {
      event.preventDefault();
      const href = list.children[chosen]?.dataset.href;
      if (href) location.assign(href);
    }
  });
  list.addEventListener("click", (event) => {
    const href = event.target.closest("[data-href]")?.dataset.href;
    if (href) location.assign(href);
  });
  palette.addEventListener("click", (event) => {
    if (event.target === palette) palette.close();
  });
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-palette], [data-theme-switch], [data-copy]");
  if (!button) return;
  if (button.hasAttribute("data-palette")) openPalette();
  else if (button.hasAttribute("data-copy")) navigator.clipboard?.writeText(button.dataset.copy);
  else nextTheme();
});

// ---- the keyboard: g and a letter goes somewhere, j and k move, / finds

const GO = { n: "/", r: "/runs", w: "/workflows", s: "/schedules", a: "/audit", d: "/doctor", p: "/policy" };
let prefix = false;

document.addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
    event.preventDefault();
    openPalette();
    return;
  }
  const typing = event.target.closest?.("input, textarea, select, [contenteditable]");
  if (typing || event.ctrlKey || event.metaKey || event.altKey || palette?.open) return;
  const rows = [...document.querySelectorAll("main a.row, main .lean a, main .steps a")];
  const here = rows.indexOf(document.activeElement);
  if (prefix) {
    prefix = false;
    if (GO[event.key]) location.assign(GO[event.key]);
  } else if (event.key === "g") {
    prefix = true;
    setTimeout(() => (prefix = false), 1200);
  } else if (event.key === "j" || event.key === "k") {
    rows[Math.max(0, Math.min(rows.length - 1, here + (event.key === "j" ? 1 : -1)))]?.focus();
  } else if (event.key === "/") {
    const field = document.querySelector("main input[type=search]");
    if (field) {
      event.preventDefault();
      field.focus();
    } else {
      event.preventDefault();
      openPalette();
    }
  } else if (event.key === "t") nextTheme();
  else if (event.key === "?") openPalette();
});

// ---- the text of a workflow has a script of its own

const editor = document.querySelector("form[data-editor]");
if (editor) import(editor.dataset.editor).then(({ start }) => start(editor, settle));

// ---- so has the key of a device

const passkeys = document.querySelector("[data-passkeys]");
if (passkeys) import(passkeys.dataset.passkeys);
