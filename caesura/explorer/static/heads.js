/** Which attention is shown: two lists, for the layer and for the head, where a decoder has several. */

import { make } from "./dom.js";

const option = (/** @type {number} */ value, /** @type {string} */ text) => make("option", { value }, text);
const upTo = (/** @type {number} */ n) => Array.from({ length: n }, (_, i) => i + 1);

export class Heads {
  /**
   * @param {{layers: number, heads: number, shown: number}} has as /api/models has it
   * @param {(action: object) => void} send
   */
  constructor(has, send) {
    this.shown = has.shown;
    const layers = upTo(has.layers).map((layer) => option(layer, `layer ${layer}`));
    const heads = [option(0, "mean of heads"), ...upTo(has.heads).map((head) => option(head, `head ${head}`))];
    this.layer = make("select", { "aria-label": "Layer of the attention shown" }, ...layers);
    this.head = make("select", { "aria-label": "Head of the attention shown" }, ...heads);
    const choose = () => {
      const [layer, head] = [this.layer, this.head].map((list) => Number(list.value));
      const usual = layer === this.shown && head === 0;
      send({ type: "look", layer: usual ? null : layer, head: head || null });
    };
    this.layer.addEventListener("change", choose);
    this.head.addEventListener("change", choose);
    this.element = make("p", { class: "heads" }, make("span", { class: "who" }, "attention"), this.layer, this.head);
  }

  /** @param {import("./state.js").Panel} panel */
  show(panel) {
    this.layer.value = String(panel.layer ?? this.shown);
    this.head.value = String(panel.head ?? 0);
  }
}
