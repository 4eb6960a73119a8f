/**
 * What the page is about, and its history: a pure reducer.
 * A gap is free (the rule decides) or held (a hand has decided).
 * `held` maps the offset of a gap to 1, a cut, or -1, a join.
 *
 * @typedef {Record<number, 1 | -1>} Held
 * @typedef {{model: string, rule: string, k: number, rate: number | null,
 *   layer: number | null, head: number | null, held: Held}} Panel where no layer is the model's usual attention
 * @typedef {{text: string, reference: string, panels: Panel[]}} Page
 * @typedef {{past: Page[], now: Page, future: Page[], last: {group: string, time: number} | null}} History
 */

import { shiftHeld } from "./text.js";

export const RULES = ["own", "characters", "words", "every", "entropy"];
const STEPS = 200; // that can be undone
const PAUSE = 1000; // milliseconds after which typing, or a slider, starts a step of its own

/** A model as it is on its own. @param {string} model @returns {Panel} */
export function panelOf(model) {
  return { model, rule: "own", k: 3, rate: null, layer: null, head: null, held: {} };
}

/** @param {Page} page @returns {History} */
export function begin(page) {
  return { past: [], now: page, future: [], last: null };
}

/** @param {Page} page @param {string} model @param {(panel: Panel) => Partial<Panel>} change */
function withPanel(page, model, change) {
  const panels = page.panels.map((panel) => (panel.model === model ? { ...panel, ...change(panel) } : panel));
  return { ...page, panels };
}

/** @param {Panel} panel @param {Record<number, 1 | -1 | 0>} cuts where 0 releases */
function hold(panel, cuts) {
  const held = { ...panel.held };
  for (const [offset, value] of Object.entries(cuts)) {
    if (value === 0) delete held[offset];
    else held[offset] = value;
  }
  return { held };
}

/** The page after an action. @param {Page} page @param {object} action @returns {Page} */
export function change(page, action) {
  const of = (/** @type {(panel: Panel) => Partial<Panel>} */ to) => withPanel(page, action.model, to);
  switch (action.type) {
    case "text": {
      const moved = (panel) => ({ ...panel, held: shiftHeld(page.text, action.text, panel.held) });
      return { ...page, text: action.text, panels: page.panels.map(moved) };
    }
    case "example": {
      const panels = page.panels.map((panel) => ({ ...panel, held: {} }));
      return { text: action.text, reference: "", panels };
    }
    case "reference":
      return { ...page, reference: action.text };
    case "hold":
      return of((panel) => hold(panel, action.cuts));
    case "release":
      return of(() => ({ held: {} }));
    case "rule":
      return of((panel) => ({
        rule: action.rule,
        k: action.k ?? panel.k,
        held: action.release ? {} : panel.held,
      }));
    case "rate":
      return of(() => ({ rate: action.rate }));
    case "look":
      return of(() => ({ layer: action.layer, head: action.head }));
    case "models": {
      const known = new Map(page.panels.map((panel) => [panel.model, panel]));
      return { ...page, panels: action.models.map((model) => known.get(model) ?? panelOf(model)) };
    }
    case "reset":
      return { ...page, panels: page.panels.map((panel) => panelOf(panel.model)) };
    case "load":
      return action.page;
    default:
      throw new Error(`no such action: ${action.type}`);
  }
}

/**
 * The history after an action. Actions of one group, close in time, are one step.
 * @param {History} history @param {object} action with `time`, and `group` where it may be one of many
 * @returns {History}
 */
export function reduce(history, action) {
  const { past, now, future, last } = history;
  if (action.type === "undo") {
    return past.length
      ? { past: past.slice(0, -1), now: past.at(-1), future: [now, ...future], last: null }
      : history;
  }
  if (action.type === "redo") {
    return future.length
      ? { past: [...past, now], now: future[0], future: future.slice(1), last: null }
      : history;
  }
  const next = change(now, action);
  if (same(next, now)) return history;
  const goesOn = action.group && last?.group === action.group && action.time - last.time < PAUSE;
  return {
    past: goesOn ? past : [...past, now].slice(-STEPS),
    now: next,
    future: [],
    last: action.group ? { group: action.group, time: action.time } : null,
  };
}

/** Whether two pages, or parts of them, are equal. */
export function same(a, b) {
  return JSON.stringify(a) === JSON.stringify(b);
}
