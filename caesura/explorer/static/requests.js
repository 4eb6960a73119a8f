/** What a panel asks the server, made from its state alone. */

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
  return {
    model: panel.model,
    text: page.text,
    rule: name === "every" ? { name, k: panel.k } : { name },
    cuts: panel.held,
    rate: name === "own" && model.live_rate ? panel.rate : null,
  };
}

/** The body of /explain: greedy search, so that it keeps up with the hand. */
export function explainBody(page, panel, model) {
  return { ...bodyOf(page, panel, model), reference: page.reference.trim() ? page.reference : null, beam: 1 };
}

/** The body of /flips. */
export function flipsBody(page, panel, model, long) {
  return { ...bodyOf(page, panel, model), target: page.reference.trim() ? page.reference : null, long };
}

/** What an answer is about, but for the reference. @param {{asked: any, version: string}} answer */
export function cutting({ asked: { reference: _, ...rest }, version }) {
  return { ...rest, version };
}
