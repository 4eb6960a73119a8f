/** What a panel asks the server, made from its state alone. */

import { clusters, size } from "./text.js";

/**
 * The rule that a panel follows: its own choice, or the model's usual one where the model has no such rule.
 * @param {import("./state.js").Panel} panel @param {any} model as /api/models has it
 */
export function ruleOf(panel, model) {
  return model.rules.includes(panel.rule) || !model.rules.length ? panel.rule : model.rules[0];
}

/** The body of /segment, and what the others share. @param {import("./state.js").Page} page */
export function bodyOf(page, /** @type {import("./state.js").Panel} */ panel, model) {
  const name = ruleOf(panel, model);
  const whole = model.level === "char" ? wholeCuts(page.text, name, panel.k) : {};
  return {
    model: panel.model,
    text: page.text,
    rule: name === "every" ? { name, k: panel.k } : { name },
    cuts: { ...whole, ...panel.held },
    rate: name === "own" && model.live_rate ? panel.rate : null,
  };
}

/**
 * What keeps characters of several code points whole: the server's rules count code points.
 * @param {string} text @param {string} rule @param {number} k
 * @returns {Record<number, 1 | -1>} nothing where each character is one code point
 */
function wholeCuts(text, rule, k) {
  const list = clusters(text);
  const points = size(text);
  if ((rule !== "characters" && rule !== "every") || list.length === points) return {};
  const cuts = Object.fromEntries(Array.from({ length: points - 1 }, (_, i) => [i + 1, -1]));
  const step = rule === "every" ? k : 1;
  for (let i = step; i < list.length; i += step) cuts[list[i].offset] = 1;
  return cuts;
}

/** The body of /explain: greedy search, so that it keeps up with the hand. */
export function explainBody(page, panel, model) {
  const reference = page.reference.trim() ? page.reference : null;
  return { ...bodyOf(page, panel, model), reference, beam: 1, ...lookOf(panel, model) };
}

/** The attention that a panel shows: nothing where it is the usual one, or where a link names more than there is. */
export function lookOf(/** @type {import("./state.js").Panel} */ panel, model) {
  const has = model.attention;
  if (!has || panel.layer === null || panel.layer > has.layers) return {};
  return { layer: panel.layer, head: panel.head !== null && panel.head <= has.heads ? panel.head : null };
}

/** The body of /flips. */
export function flipsBody(page, panel, model, long) {
  return { ...bodyOf(page, panel, model), target: page.reference.trim() ? page.reference : null, long };
}

/** What an answer is about, but for reference and attention. @param {{asked: any, version: string}} answer */
export function cutting({ asked: { reference: _, layer: _layer, head: _head, ...rest }, version }) {
  return { ...rest, version };
}
