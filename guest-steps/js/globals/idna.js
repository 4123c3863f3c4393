// Names of hosts in other alphabets, for whatwg-url. Its own package for this has tables of 220 KB;
// here the engine's Unicode does it: what differs is that fewer characters are refused.

import { decode, encode } from "punycode/";

const ASCII = /^[\0-\x7f]*$/;
const IGNORED = /[\u00ad\u034f\u180b-\u180f\u200b\u2060\u2064\ufe00-\ufe0f\ufeff]/g;
const REFUSED = /[\p{C}\p{Z}\ufffd]/u;

function toUnicode(domain) {
  let error = false;
  const lower = Array.from(domain, (point) => point.toLowerCase()).join("");
  const labels = lower.replace(IGNORED, "").normalize("NFKC").toLowerCase().normalize("NFC").replaceAll("\u3002", ".").split(".");
  const decoded = labels.map((label) => {
    if (!label.startsWith("xn--")) return label;
    try {
      const text = decode(label.slice(4));
      error ||= text === "" || ASCII.test(text) || text !== text.normalize("NFC") || text !== text.toLowerCase();
      return text;
    } catch {
      error = true;
      return label;
    }
  });
  error ||= decoded.some((label) => !ASCII.test(label) && (REFUSED.test(label.replace(/[\u200c\u200d]/g, "")) || /^\p{M}/u.test(label)));
  return { domain: decoded.join("."), error };
}

function toASCII(given) {
  const { domain, error } = toUnicode(given);
  if (error) return null;
  return domain.split(".").map((label) => (ASCII.test(label) ? label : `xn--${encode(label)}`)).join(".");
}

export { toASCII, toUnicode };
