/** Who decides the free gaps of a panel: buttons for the rules, and a slider for the rate. */

import { make, number } from "./dom.js";
import { RULES } from "./state.js";

const NAMES = { own: "model", characters: "characters", words: "words", every: "every", entropy: "entropy" };
const HINTS = {
  own: "The model decides each gap that is not held",
  characters: "Cut at each gap that is not held",
  words: "Cut after spaces; held gaps stay",
  every: "Cut after every k symbols; held gaps stay",
  entropy: "Cut where the next symbol is hard to predict; held gaps stay",
};
const NO_ENTROPY = "For this rule, open a model that cuts by entropy as well, such as the demo’s";
const RATES = { min: 1, max: 12, step: 0.1 };

export class Controls {
  #buttons = new Map();

  /** @param {any} model as /api/models has it @param {(action: object) => void} send */
  constructor(model, send) {
    const about = "symbols per segment";
    const k = make("input", { type: "number", min: 1, max: 99, "aria-label": about, class: "k" });
    const choose = (rule) => send({ type: "rule", rule, k: Math.max(1, Math.round(Number(k.value)) || 1) });
    k.addEventListener("change", () => choose("every"));
    this.k = k;
    const fine = ["char", "byte"].includes(model.level);
    const has = (rule) => model.rules.includes(rule);
    const offered = model.takes_cuts ? RULES.filter((rule) => has(rule) || rule === "entropy") : ["own"];
    const buttons = offered.map((rule) => {
      const title = rule === "entropy" && !has(rule) ? NO_ENTROPY : HINTS[rule];
      const does = { type: "button", title, disabled: title === NO_ENTROPY, click: () => choose(rule) };
      const button = make("button", does, rule === "characters" && !fine ? "symbols" : NAMES[rule]);
      this.#buttons.set(rule, button);
      return rule === "every" ? make("span", { class: "every" }, button, k) : button;
    });
    this.element = make(
      "div",
      { class: "controls", hidden: offered.length < 2 },
      make("span", { class: "who" }, "cuts by"),
      make("div", { class: "rules", role: "group", "aria-label": "What decides the free gaps" }, ...buttons),
    );
    if (model.live_rate) this.element.append(this.#rate(model, send));
  }

  #rate(model, send) {
    const most = Math.max(RATES.max, 2 * model.live_rate.target);
    const title = "How many characters a segment should have on average";
    const about = { "aria-label": "Characters per segment", title };
    this.slider = make("input", { type: "range", ...RATES, max: most, ...about });
    this.slider.addEventListener("input", () => send({ type: "rate", rate: Number(this.slider.value) }));
    this.value = make("output", {});
    this.target = model.live_rate.target;
    return make("label", { class: "rate" }, make("span", { class: "who" }, "rate"), this.slider, this.value);
  }

  /** @param {import("./state.js").Panel} panel */
  show(panel) {
    for (const [rule, button] of this.#buttons) {
      button.setAttribute("aria-pressed", String(rule === panel.rule));
    }
    if (document.activeElement !== this.k) this.k.value = String(panel.k);
    if (!this.slider) return;
    const rate = panel.rate ?? this.target;
    this.slider.value = String(rate);
    this.slider.disabled = panel.rule !== "own";
    this.slider.setAttribute("aria-valuetext", `${number(rate, 1)} characters per segment`);
    this.value.textContent = number(rate, 1);
  }
}
