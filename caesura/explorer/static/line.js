/**
 * The line: clusters in a row, and in each gap a bar, a lock, a labelled checkbox and the mark of its flip.
 * Cells are made anew only where the text or its gaps differ; else their state alone is set.
 */

import { make, number, signed } from "./dom.js";
import { direction, levels, runs } from "./bidi.js";
import { clusters, joined, visible } from "./text.js";

/**
 * @typedef {{offset: number, cut: boolean, score: number | null, locked: -1 | 0 | 1}} Gap
 * @typedef {{offset: number, text: string, shown: string, gap: number, level: number}} Cell
 *   gap: its place among the gaps, -1 where there is none before this cluster; level: odd in text that runs
 *   to the left
 */

/**
 * The cells of a text: one per cluster; a gap inside a cluster is no place for a hand.
 * @param {string} text @param {Gap[]} gaps @returns {Cell[]}
 */
export function cellsOf(text, gaps) {
  const places = new Map(gaps.map((gap, i) => [gap.offset, i]));
  const list = clusters(text);
  const shown = joined(list.map((cluster) => cluster.text));
  const level = levels(list.map((cluster) => cluster.text), direction(text));
  return list.map(({ text: own, offset }, i) => ({
    offset,
    text: own,
    shown: shown[i],
    gap: places.get(offset) ?? -1,
    level: level[i],
  }));
}

/**
 * The gaps as they are to be seen at once: what a hand has decided is not waited for.
 * @param {Gap[]} gaps @param {Record<number, 1 | -1>} held
 */
export function overlay(gaps, held) {
  return gaps.map((gap) => {
    const locked = held[gap.offset] ?? 0;
    return { ...gap, locked, cut: locked ? locked === 1 : gap.cut };
  });
}

/** What holds all gaps as they are. @param {Gap[]} gaps @returns {Record<number, 1 | -1>} */
export function asTheyAre(gaps) {
  return Object.fromEntries(gaps.map((gap) => [gap.offset, gap.cut ? 1 : -1]));
}

export class Line {
  #cells = [];
  #offered = []; // those with a gap before them
  #key = "";
  #focus = 0; // offset of the gap that Tab reaches
  #reached = null; // its cell

  /** @param {HTMLElement} element @param {string} name of the model, for readers of screens */
  constructor(element, name) {
    this.element = element;
    this.gaps = /** @type {Gap[]} */ ([]);
    element.setAttribute("role", "group");
    element.setAttribute("aria-label", `Cuts of ${name}`);
  }

  /**
   * @param {string} text
   * @param {Gap[]} gaps
   * @param {{unknown: number[], halting: number[] | null, offsets: number[]}} more
   */
  show(text, gaps, more) {
    this.gaps = gaps;
    const key = JSON.stringify([text, gaps.map((gap) => gap.offset)]);
    if (key !== this.#key) this.#build(text, gaps);
    this.#key = key;
    this.#paint(more);
  }

  #build(text, gaps) {
    const focused = this.element.contains(document.activeElement);
    this.#cells = cellsOf(text, gaps).map((cell, i) => ({ ...cell, ...cellElements(cell, i) }));
    this.#offered = this.#cells.filter((cell) => cell.gap >= 0);
    this.element.dir = direction(text);
    this.element.replaceChildren(...laid(this.#cells, direction(text) === "rtl" ? 1 : 0));
    this.element.classList.toggle("long", this.#cells.length > 120);
    if (focused) this.focus(this.#focus);
  }

  #paint({ unknown, halting, offsets }) {
    const cuts = this.gaps.filter((gap) => gap.cut).map((gap) => gap.offset);
    const [strange, starts] = [new Set(unknown), new Set(offsets)];
    let odd = false; // whether the symbol that a cell is of is unknown
    const sums = new Map(halting ? offsets.map((offset, i) => [offset, halting[i]]) : []);
    const top = Math.max(1, ...sums.values());
    let segment = 0;
    this.#cells.forEach((cell, i) => {
      while (segment < cuts.length && cuts[segment] <= cell.offset) segment += 1;
      cell.segment = segment;
      if (starts.has(cell.offset)) odd = strange.has(cell.offset);
      const end = this.#cells[i + 1]?.offset ?? Infinity;
      const within = segment < cuts.length && cuts[segment] < end;
      const { classList } = cell.element;
      classList.toggle("even", segment % 2 === 1);
      classList.toggle("within", within);
      classList.toggle("ends", end === Infinity || cuts.includes(end));
      classList.toggle("unknown", odd);
      const sum = sums.get(cell.offset);
      cell.sum = sum === undefined ? "" : number(sum);
      cell.letter.title = [
        cell.sum ? `Running sum: ${cell.sum}.` : "",
        within ? "The model cuts inside this character." : "",
        odd ? "The model does not know this symbol." : "",
      ].join(" ").trim();
      classList.toggle("sums", sum !== undefined);
      if (sum !== undefined) vary(cell, "--sum", sum / top);
    });
    this.#cells.forEach((cell, i) => cell.gap >= 0 && this.#paintGap(cell, i));
    const offered = this.offered();
    this.element.classList.toggle("all-held", offered.length > 0 && offered.every((gap) => gap.locked));
    this.#rove();
  }

  #paintGap(cell, i) {
    const gap = this.gaps[cell.gap];
    const { classList } = cell.element;
    classList.toggle("cut", gap.cut);
    classList.toggle("held", gap.locked !== 0);
    classList.toggle("plain", gap.score === null);
    vary(cell, "--score", gap.score ?? (gap.cut ? 1 : 0));
    cell.box.checked = gap.cut;
    const around = `between ${spoken(this.#cells[i - 1].text)} and ${spoken(cell.text)}`;
    const score = gap.score === null ? "" : `, score ${number(gap.score)}`;
    const sums = this.#sumsBefore(i);
    const label = `Cut ${around}${score}${sums && `, ${sums}`}${gap.locked ? ", held" : ""}`;
    if (cell.label !== label) cell.box.setAttribute("aria-label", (cell.label = label));
  }

  /**
   * The strip: what each flip changes, and what the gradient promises; null takes it away.
   * A gradient is per unit of a score, not per flip, so promises have a scale of their own.
   * @param {{changes: (number | null)[], gradient: (number | null)[], best: number | null} | null} flips
   */
  strip(flips) {
    this.element.classList.toggle("strip", flips !== null);
    const tallest = largest(flips?.changes ?? []);
    const strongest = Math.max(0, ...(flips?.gradient ?? []).map(Math.abs)) || 1;
    for (const cell of this.#offered) {
      const change = flips?.changes[cell.gap] ?? null;
      const promise = flips?.gradient[cell.gap] ?? null;
      const { classList } = cell.element;
      classList.toggle("helps", change !== null && change < 0);
      classList.toggle("hurts", change !== null && change > 0);
      classList.toggle("promises", promise !== null && promise < 0);
      classList.toggle("warns", promise !== null && promise > 0);
      classList.toggle("best", flips !== null && flips.best === this.gaps[cell.gap].offset);
      // Square roots, so that small changes can be seen beside large ones.
      vary(cell, "--change", Math.sqrt(Math.abs(change ?? 0) / tallest));
      vary(cell, "--promise", Math.sqrt(Math.abs(promise ?? 0) / strongest));
      cell.hit.title = change === null ? "" : `Loss if flipped: ${signed(change, 3)} nats per symbol`;
    }
  }

  /**
   * Shade segments by how much an output symbol attends to each; null takes it away.
   * @param {number[] | null} weights
   */
  attend(weights) {
    this.element.classList.toggle("attended", weights !== null);
    for (const cell of this.#cells) vary(cell, "--attention", weights?.[cell.segment] ?? 0);
  }

  /** The cell of a gap, or of the gap nearest to an offset. */
  #near(offset) {
    return this.#offered.reduce(
      (best, cell) =>
        !best || Math.abs(cell.offset - offset) < Math.abs(best.offset - offset) ? cell : best,
      null,
    );
  }

  #rove() {
    const near = this.#near(this.#focus);
    if (this.#reached?.box) this.#reached.box.tabIndex = -1;
    this.#reached = near;
    if (near) near.box.tabIndex = 0;
  }

  /** Move the focus to the gap at, or nearest to, an offset. @param {number} offset */
  focus(offset) {
    this.#focus = this.#near(offset)?.offset ?? 0;
    this.#rove();
    this.#near(this.#focus)?.box.focus();
  }

  /** Remember where the focus is. @param {number} offset */
  focused(offset) {
    this.#focus = offset;
    this.#rove();
  }

  /**
   * The gap so many places from another; null beyond the ends.
   * @param {number} offset
   * @param {number} steps
   */
  neighbour(offset, steps) {
    return this.#offered[this.#offered.findIndex((cell) => cell.offset === offset) + steps]?.offset ?? null;
  }

  /** The offsets of the first and the last gap. */
  ends() {
    return [this.#offered[0]?.offset ?? 0, this.#offered.at(-1)?.offset ?? 0];
  }

  /** @param {number} offset @returns {Gap | undefined} */
  gapAt(offset) {
    return this.gaps.find((gap) => gap.offset === offset);
  }

  /** The running sums at the clusters on both sides of a gap, in words; nothing without them. */
  sumsAt(/** @type {number} */ offset) {
    return this.#sumsBefore(this.#cells.findIndex((cell) => cell.offset === offset));
  }

  #sumsBefore(/** @type {number} */ i) {
    const told = i > 0 ? this.#cells.slice(i - 1, i + 1).filter((cell) => cell.sum) : [];
    const each = told.map((cell) => `${cell.sum} at ${spoken(cell.text)}`);
    return told.length ? `running sum ${each.join(", ")}` : "";
  }

  /** The gaps that are offered: those between clusters. */
  offered() {
    return this.#offered.map((cell) => this.gaps[cell.gap]);
  }

  /** Mark where a dragged cut would fall; null for nowhere. @param {number | null} offset */
  target(offset) {
    for (const cell of this.#cells) cell.element.classList.toggle("target", cell.offset === offset);
  }

  /** The cell that an element is in, with its gap and its segment. @param {Element | null} element */
  cellOf(element) {
    const found = element?.closest?.(".cell");
    return found && this.element.contains(found) ? this.#cells[Number(found.dataset.index)] : null;
  }

  /** The cells as they are, for a picture. */
  cells() {
    return this.#cells.map((cell) => ({ ...cell, state: cell.gap >= 0 ? this.gaps[cell.gap] : null }));
  }

  /** The gap nearest to a point; null where there is none. */
  nearest(/** @type {number} */ x, /** @type {number} */ y) {
    const cell = this.cellOf(document.elementFromPoint(x, y));
    if (!cell) return null;
    const box = cell.letter.getBoundingClientRect();
    const later = cell.level % 2 ? x < box.left + box.width / 2 : x > box.left + box.width / 2;
    const near = later ? this.#cells[this.#cells.indexOf(cell) + 1] ?? cell : cell;
    return near.gap >= 0 ? near.offset : null;
  }
}

function cellElements(/** @type {Cell} */ cell, /** @type {number} */ index) {
  const dir = cell.level % 2 ? "rtl" : "ltr";
  const letter = make("span", { class: "letter" }, make("bdi", { dir }, cell.shown));
  const sum = make("i", { class: "sum" });
  const parts = { letter, box: null, hit: null, label: "", sum: "", segment: 0, values: new Map() };
  const element = make("span", { class: cell.gap < 0 ? "cell whole" : "cell" });
  element.dataset.index = String(index);
  element.dataset.offset = String(cell.offset);
  if (cell.text === " ") element.classList.add("space");
  if (cell.shown.startsWith("U+")) element.classList.add("unseen");
  if (cell.gap >= 0) {
    parts.box = make("input", { type: "checkbox", tabindex: -1 });
    const marks = ["promise", "change", "bar", "lock"].map((name) => make("i", { class: name }));
    parts.hit = make("label", { class: "gap" }, parts.box, ...marks);
    element.append(parts.hit);
  }
  element.append(sum, letter);
  return { ...parts, element };
}

/** Give a cell's style a value, where it is another one: styles of hundreds of cells cost. */
function vary(cell, name, value) {
  const shown = value.toFixed(4);
  if (cell.values.get(name) === shown) return;
  cell.values.set(name, shown);
  cell.element.style.setProperty(name, shown);
}

const WORD = 14; // cells that stay together in a row, at most

/** Cells of a level in words, with those of higher levels as runs of their own direction among them. */
function laid(cells, level) {
  return runs(cells, (cell) => cell.level > level).flatMap(({ is, of }) =>
    is ? make("span", { class: "run", dir: level % 2 ? "ltr" : "rtl" }, ...laid(of, level + 1)) : words(of),
  );
}

/** Cells in groups that a row keeps together: words with the space after them. */
function words(cells) {
  const groups = [];
  let begins = true;
  for (const cell of cells) {
    if (begins || groups.at(-1).childElementCount >= WORD) groups.push(make("span", { class: "word" }));
    groups.at(-1).append(cell.element);
    begins = cell.text === " ";
  }
  return groups;
}

function spoken(/** @type {string} */ cluster) {
  return cluster === " " ? "space" : visible(cluster);
}

/** The largest change of a strip, and never so small that rounding fills it. */
export function largest(/** @type {(number | null)[]} */ changes) {
  return Math.max(0.01, ...changes.map(Math.abs));
}
