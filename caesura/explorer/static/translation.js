/** A translation beside the one before it, with marks on what changed and on what attends to a segment. */

import { compare } from "./diff.js";
import { make, number, signed } from "./dom.js";

const MOST = 0.7; // where more of a translation changed it is another one, and all of it is marked

/**
 * @typedef {{text: string, log_probability: number | null,
 *   output: {symbols: string[], offsets: number[], pieces: string[] | null, finished: boolean}}} Answer
 */

export class Translation {
  #outs = /** @type {HTMLElement[]} */ ([]);
  #at = 0; // the output symbol that Tab reaches

  /**
   * @param {(index: number | null) => void} look told which output symbol the pointer or the focus is at
   * @param {string} id of the element that describes what is looked at
   */
  constructor(look, id) {
    this.element = make("div", { class: "translations" });
    this.described = id;
    this.#keys(look);
    this.element.addEventListener("pointerover", (event) => {
      const out = event.target.closest(".out");
      look(out ? Number(out.dataset.index) : null);
    });
    this.element.addEventListener("pointerleave", () => look(null));
  }

  /** Tab stops once in the translation; arrows go through its symbols. */
  #keys(look) {
    this.element.addEventListener("focusin", (event) => {
      this.#reach(Number(event.target.dataset.index));
      look(this.#at);
    });
    this.element.addEventListener("focusout", () => look(null));
    this.element.addEventListener("keydown", (event) => {
      if (!event.target.matches(".out") || event.ctrlKey || event.metaKey || event.altKey) return;
      const step = getComputedStyle(event.target).direction === "rtl" ? -1 : 1;
      const last = this.#outs.length - 1;
      const to = { ArrowLeft: this.#at - step, ArrowRight: this.#at + step, Home: 0, End: last }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      this.#outs[to]?.focus();
    });
  }

  #reach(/** @type {number} */ index) {
    this.#outs[this.#at]?.setAttribute("tabindex", "-1");
    this.#at = Math.max(0, Math.min(index, this.#outs.length - 1));
    this.#outs[this.#at]?.setAttribute("tabindex", "0");
  }

  /**
   * @param {Answer} now
   * @param {Answer | null} before
   * @param {{text: string, log_probability: number | null} | null} reference
   */
  show(now, before, reference) {
    const words = before ? changes(before.text, now.text) : null;
    const symbols = this.#symbols(now, words?.after);
    const rows = [this.#row("translation", "now", symbols, now, before)];
    if (!now.output.finished) {
      rows.push(make("p", { class: "aside" }, "The output reached the length limit before it was finished."));
    }
    if (before) {
      rows.push(this.#row("before", "before", words.before.map(marked), before, null));
    }
    if (reference) {
      rows.push(this.#row("reference", "reference", [make("bdi", {}, reference.text)], reference, null));
    }
    const focused = this.element.contains(document.activeElement);
    this.element.replaceChildren(...rows);
    this.#outs = [...this.element.querySelectorAll(".out")];
    this.#reach(this.#at);
    if (focused) this.#outs[this.#at]?.focus();
  }

  clear() {
    this.element.replaceChildren();
    this.#outs = [];
  }

  #row(name, kind, parts, scored, before) {
    const probability = scored.log_probability; // null: of nothing at all, only the empty translation is possible
    const both = probability !== null && (before?.log_probability ?? null) !== null;
    const difference = both ? probability - before.log_probability : 0;
    const shown = Math.abs(difference) >= 0.005;
    return make(
      "div",
      { class: `translation ${kind}` },
      make("span", { class: "who" }, name),
      make("p", { class: "text", dir: "auto" }, ...parts),
      make(
        "span",
        { class: "score", title: "natural logarithm of the probability" },
        make("small", {}, "log p "),
        probability === null ? "−∞" : number(probability),
        shown ? make("b", { class: difference > 0 ? "better" : "worse" }, ` ${signed(difference)}`) : null,
      ),
    );
  }

  #symbols(/** @type {Answer} */ { text, output }, /** @type {import("./diff.js").Word[]} */ words = []) {
    const points = Array.from(text);
    const changed = words.flatMap((word) => Array.from(word.text, () => word.changed));
    const cuts = new Set();
    (output.pieces ?? []).reduce((at, piece) => (cuts.add(at), at + Array.from(piece).length), 0);
    const parts = [];
    let piece = -1;
    let group = { flag: null, element: null };
    output.offsets.forEach((start, i) => {
      const end = output.offsets[i + 1] ?? points.length;
      if (cuts.has(start)) piece += 1;
      const marks = { class: "out", tabindex: -1, "aria-describedby": this.described };
      const out = make("span", marks, points.slice(start, end).join(""));
      out.dataset.index = String(i);
      if (piece >= 0) out.classList.add("piece", piece % 2 ? "even" : "odd");
      if (cuts.has(start) && start > 0) out.classList.add("starts");
      const flag = changed[end - 1] ?? false;
      if (flag !== group.flag) {
        group = { flag, element: make(flag ? "ins" : "span") };
        parts.push(group.element);
      }
      group.element.append(out);
    });
    return parts;
  }

  /**
   * Shade output symbols by how much each attends to a segment; null takes it away.
   * @param {number[] | null} weights
   */
  attend(weights) {
    this.element.classList.toggle("attended", weights !== null);
    this.#outs.forEach((out, i) => out.style.setProperty("--attention", String(weights?.[i] ?? 0)));
  }
}

/** What changed, by words; all of it where little is alike. */
function changes(/** @type {string} */ before, /** @type {string} */ now) {
  const words = compare(before, now);
  if (share(words.after) <= MOST) return words;
  return { before: [{ text: before, changed: true }], after: [{ text: now, changed: true }] };
}

/** How much of a text changed. @param {import("./diff.js").Word[]} words */
function share(words) {
  const letters = (some) => some.reduce((sum, word) => sum + word.text.length, 0);
  return letters(words.filter((word) => word.changed)) / Math.max(1, letters(words));
}

function marked(/** @type {import("./diff.js").Word} */ { text, changed }) {
  return changed ? make("del", {}, text) : text;
}
