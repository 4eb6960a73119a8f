/** In words: what is held (above a line), and what the strip and the gap at hand are (beneath it). */

import { make, number, signed } from "./dom.js";
import { largest } from "./line.js";

const DECIDERS = {
  own: "the model decides",
  characters: "a cut is in",
  words: "words decide",
  every: "counting decides",
  entropy: "entropy decides",
};

const HINT =
  "Filled bars are cuts. Click a gap to cut or join there; drag a cut to move it. " +
  "A padlock then holds the gap; click the padlock to release it.";
const FIXED = "This model reads symbol by symbol. Its cuts cannot be moved.";

const NEGLIGIBLE = 1e-6; // nats per symbol: a smaller change may be rounding

export class Readout {
  #line = null;
  #at = /** @type {number | null} */ (null);
  #changes = new Map();
  #told = false; // whether something else stands in the place of the gap at hand

  /**
   * @param {{lock: (offset: number) => void, holdAll: () => void, release: () => void, flips: () => void}} on
   * @param {string} id of the words about what is at hand
   * @param {boolean} fixed whether no cut can be moved
   */
  constructor(on, id, fixed) {
    const button = (text, click, title = null) => make("button", { type: "button", click, title }, text);
    this.fixed = fixed;
    this.lock = button("hold", () => this.#at !== null && on.lock(this.#at));
    this.gap = make("span", { class: "at", id });
    this.holdAll = button("hold all", on.holdAll, "Keep all gaps as they are now, until you change one");
    this.release = button("release all", on.release, "Release all padlocks: the rule decides all gaps");
    this.held = make("span", { class: "count" });
    this.length = make("span", { class: "length" });
    this.try = button("", on.flips, "It may take a minute or two");
    this.flipped = make("span", { class: "flipped" });
    this.holding = make("p", { class: "holding" }, this.length, this.held, this.holdAll, this.release);
    this.element = make(
      "div",
      { class: "readout" },
      make("p", { class: "strip-says" }, this.flipped, this.try),
      make("p", { class: "gap-at" }, this.gap, this.lock),
    );
    this.empty();
  }

  empty() {
    this.element.hidden = this.holding.hidden = true;
  }

  /**
   * @param {import("./line.js").Line} line
   * @param {{segment_length: number | null}} segmentation
   * @param {string} rule
   */
  show(line, segmentation, rule) {
    this.#line = line;
    this.element.hidden = this.holding.hidden = false;
    const offered = line.offered();
    const held = offered.filter((gap) => gap.locked).length;
    const length = segmentation.segment_length;
    const rest = offered.length - held;
    this.length.textContent = length === null ? "" : `${number(length, 1)} characters per segment`;
    if (!offered.length) this.held.textContent = "there is no gap to cut";
    else if (held === 0) this.held.textContent = `no gap is held: ${DECIDERS[rule]} all ${rest}`;
    else if (rest === 0) this.held.textContent = `all ${held} gaps are held`;
    else this.held.textContent = `${held} held: ${DECIDERS[rule]} the other ${rest}`;
    this.holdAll.hidden = rest === 0;
    this.release.hidden = held === 0;
    this.look(this.#at);
  }

  /** Describe a gap. @param {number | null} offset */
  look(offset) {
    const gap = offset === null ? null : this.#line?.gapAt(offset);
    this.#at = gap ? offset : null;
    this.#told = false;
    this.gap.parentElement.style.minHeight = "";
    this.lock.hidden = this.fixed || !gap;
    if (this.lock.hidden) {
      this.gap.textContent = this.fixed ? FIXED : HINT;
      return;
    }
    const state = gap.cut ? "cut" : "joined";
    const score = gap.score === null ? "" : `, score ${number(gap.score)}`;
    const by = gap.locked ? ", held by you" : "";
    const sums = this.#line.sumsAt(offset);
    const change = this.#changes.get(offset);
    const flip = change === undefined ? "" : `; loss if flipped: ${signed(change, 3)} nats per symbol`;
    this.gap.textContent = `This gap: ${state}${score}${sums && `, ${sums}`}${by}${flip}`;
    this.lock.textContent = gap.locked ? "release" : `hold this ${gap.cut ? "cut" : "join"}`;
  }

  /** Say something else than what the gap at hand is; null: that again. */
  tell(/** @type {string | null} */ text) {
    if (text === null) return this.look(this.#at);
    const place = this.gap.parentElement; // keeps its height, for what is pointed at lies beneath
    place.style.minHeight = `${place.getBoundingClientRect().height}px`;
    this.#told = true;
    this.lock.hidden = true;
    this.gap.textContent = text;
  }

  /**
   * What the strip says.
   * @param {any} flips
   * @param {number} many gaps that are to be asked for
   * @param {boolean} typed a reference
   */
  flips(flips, many, typed = false) {
    this.#changes = new Map();
    this.try.hidden = many === 0;
    this.try.textContent = `try all ${many} flips`;
    if (!flips) return; // the words about the strip before stay, so that nothing moves
    flips.offsets.forEach((offset, i) => {
      if (flips.changes[i] !== null) this.#changes.set(offset, flips.changes[i]);
    });
    const what = typed ? "the reference" : "the model’s own output";
    const best = flips.best === null ? null : this.#changes.get(flips.best);
    const helps = best === null ? "" : `The best (framed) helps ${what} by ${number(-best, 3)}`;
    const says = helps || `No single flip helps ${what}`;
    const tallest = `the tallest mark is ${number(largest(flips.changes), 2)} nats per symbol.`;
    const keys = [["helps", "helps"], ["hurts", "hurts"]];
    if (flips.gradient.some((slope) => slope !== null)) {
      keys.push(["promises", `what the gradient predicts${agreement(flips)}`]);
    }
    this.flipped.replaceChildren(
      "Flipping a gap",
      ...keys.map(([kind, text]) => make("span", { class: `key ${kind}` }, text)),
      `${says}; ${tallest}`,
    );
    if (!this.#told) this.look(this.#at);
  }

  note(/** @type {string} */ text) {
    this.flipped.textContent = text;
  }
}

/** At how many gaps the gradient has the sign of what a flip changes; nothing where it reaches none. */
function agreement({ changes, gradient }) {
  const both = changes.map((change, i) => (Math.abs(change) > NEGLIGIBLE ? change * gradient[i] : 0));
  const compared = both.filter((product) => product !== 0).length;
  const right = both.filter((product) => product > 0).length;
  return compared ? ` (right at ${right} of ${compared} gap${compared === 1 ? "" : "s"})` : "";
}
