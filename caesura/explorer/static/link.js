/** A page in the part of an address after #, and back: what is written is what is read. */

import { panelOf, RULES } from "./state.js";
import { tidy } from "./text.js";

/** @param {import("./state.js").Page} page */
export function encode(page) {
  const fields = new URLSearchParams();
  fields.append("text", page.text);
  if (page.reference) fields.append("reference", page.reference);
  for (const panel of page.panels) {
    const plain = panelOf(panel.model);
    fields.append("model", panel.model);
    if (panel.rule !== plain.rule) fields.append("rule", panel.rule);
    if (panel.k !== plain.k) fields.append("k", String(panel.k));
    if (panel.rate !== plain.rate) fields.append("rate", String(panel.rate));
    if (panel.layer !== plain.layer) fields.append("layer", String(panel.layer));
    if (panel.layer !== plain.layer && panel.head !== plain.head) fields.append("head", String(panel.head));
    const held = Object.entries(panel.held).map(([offset, value]) => String(value * Number(offset)));
    if (held.length) fields.append("held", held.join("."));
  }
  return fields.toString();
}

/** The page that an address names; what cannot be read in it is left out. Null where it names no text. */
export function decode(/** @type {string} */ hash) {
  const fields = new URLSearchParams(hash.replace(/^#/, ""));
  if (!fields.has("text")) return null;
  const [text, reference] = ["text", "reference"].map((key) => tidy(fields.get(key) ?? ""));
  const page = { text, reference, panels: [] };
  for (const [key, value] of fields) {
    const panel = page.panels.at(-1);
    const again = page.panels.some((other) => other.model === value);
    if (key === "model" && !again) page.panels.push(panelOf(value));
    else if (panel) read(panel, key, value);
  }
  return page;
}

function read(/** @type {import("./state.js").Panel} */ panel, key, value) {
  const number = Number(value);
  if (key === "rule" && RULES.includes(value)) panel.rule = value;
  if (key === "k" && Number.isInteger(number) && number > 0) panel.k = number;
  if (key === "rate" && number > 0 && Number.isFinite(number)) panel.rate = number;
  if (key === "layer" && Number.isInteger(number) && number > 0) panel.layer = number;
  if (key === "head" && Number.isInteger(number) && number > 0 && panel.layer !== null) panel.head = number;
  if (key === "held") {
    for (const part of value.split(".").map(Number)) {
      if (Number.isInteger(part) && part !== 0) panel.held[Math.abs(part)] = part > 0 ? 1 : -1;
    }
  }
}
