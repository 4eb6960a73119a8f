/** One model on the page: its line, its translation, its strip, and what it asks the server for. */

import { ask, Lost, Newest, Refusal } from "./api.js";
import { Controls } from "./controls.js";
import { drawCurves } from "./curves.js";
import { make, number, sentence } from "./dom.js";
import { giveHands, lockOrRelease } from "./hand.js";
import { Heads } from "./heads.js";
import { asTheyAre, Line, overlay } from "./line.js";
import { copyPng, copySvg } from "./picture.js";
import { Readout } from "./readout.js";
import { cutting, explainBody, flipsBody, lookOf, ruleOf } from "./requests.js";
import { same } from "./state.js";
import { Translation } from "./translation.js";

const TYPING = 20; // milliseconds that typing rests before the server is asked
const AT_HAND = 0; // the same after a cut has moved: at once
const STRIP = 250; // rest before the strip is asked for
const POLL = 2000; // between two looks at a training
const AGAIN = 1000; // wait after "too many requests"
const SEEN = 0.0005; // nats per symbol: what the best flip must gain to be named; three digits are shown

/** What a model is, in a few words. */
function kindOf(/** @type {any} */ { kind, level, target_cuts }) {
  return `${kind} on ${level} symbols${target_cuts ? "; the decoder cuts what it writes" : ""}`;
}

/** Whether the server asks to come again later. */
const tooMuch = (/** @type {Error} */ error) => error.status === 429 || error.status === 503;

export class Panel {
  #asked = ""; // the newest request, as JSON
  #flipping = ""; // the request whose flips are on the strip, or will be
  #due = false; // whether they are still to be asked for
  #page = /** @type {import("./state.js").Page | null} */ (null);
  #answer = null; // the newest answer, with the text that it is for
  #before = null;
  #explains = new Newest();
  #flips = new Newest();
  #polls = new Newest();
  #complaint = ""; // what was wrong at the last look at the training

  /**
   * @param {any} model as /api/models has it @param {{characters: number, flips: number}} limits
   * @param {{send: (action: object) => void, lost: () => void,
   *   replaced: (name: string, version: string) => void}} on
   */
  constructor(model, limits, on) {
    this.model = model;
    this.limits = limits;
    this.on = on;
    this.#build();
    if (model.history || model.running) this.#watch(0);
  }

  get name() {
    return this.model.name;
  }

  #build() {
    const { model } = this;
    const send = (action) => this.on.send({ ...action, model: this.name, ...this.#releases(action) });
    this.controls = new Controls(model, send);
    this.heads = model.attention ? new Heads(model.attention, send) : null;
    this.line = new Line(make("div", { class: "line" }), this.name);
    giveHands(this.line, { hold: (cuts) => this.#hold(cuts), look: (offset) => this.#look(offset) });
    this.line.element.addEventListener("pointerover", (event) => this.#overLine(event));
    this.line.element.addEventListener("pointerleave", () => this.#attendTo(null));
    const heading = `model-${this.name.replace(/[^\w-]/g, "_")}`;
    const at = `${heading}-at`;
    const does = {
      lock: (offset) => this.#hold(lockOrRelease(this.line, offset)),
      holdAll: () => this.#hold(asTheyAre(this.line.offered())),
      release: () => this.on.send({ type: "release", model: this.name }),
      flips: () => this.#askFlips(0, true),
    };
    this.readout = new Readout(does, at, !model.takes_cuts);
    this.translation = new Translation((out) => this.#attendFrom(out), at);
    this.notice = make("p", { class: "notice", role: "status" });
    this.curves = make("div", { class: "curves" });
    const copy = (name, to) => {
      const label = `Copy ${this.name} as ${name}`;
      return make("button", { type: "button", click: () => this.#copied(to), "aria-label": label }, name);
    };
    const copies = [make("small", {}, "copy as"), copy("SVG", copySvg), copy("PNG", copyPng)];
    this.element = make(
      "section",
      { class: model.takes_cuts ? "panel" : "panel fixed", "aria-labelledby": heading },
      make(
        "header",
        {},
        make("h2", { id: heading }, this.name),
        model.kind ? make("span", { class: "kind" }, kindOf(model)) : null,
        model.running ? make("span", { class: "running" }, "in training") : null,
        make("span", { class: "copies" }, ...copies),
      ),
      make("div", { class: "above" }, this.controls.element, this.readout.holding),
      this.notice,
      this.line.element,
      this.readout.element,
      this.heads?.element ?? null,
      this.translation.element,
      this.curves,
    );
  }

  /** Where every gap is held, a rule would decide nothing: choosing one releases them. */
  #releases(action) {
    const offered = this.line.offered();
    const all = offered.length > 0 && offered.every((gap) => gap.locked);
    return action.type === "rule" ? { release: all } : { group: `rate ${this.name}` };
  }

  /** Whether what is shown is of the text that is on the page now. */
  get #fresh() {
    return this.#answer?.asked.text === this.#page?.text;
  }

  #hold(cuts) {
    if (!this.#fresh) return; // offsets of another text
    if (!this.model.takes_cuts) {
      this.#say("This model reads symbol by symbol, so it has no cuts to move.");
      return this.#paint(this.#panel());
    }
    this.on.send({ type: "hold", model: this.name, cuts });
  }

  /** Show a page, and ask for what is not known of it. @param {import("./state.js").Page} page */
  update(page) {
    const panel = page.panels.find((one) => one.model === this.name);
    const typed = this.#page !== null && this.#page.text !== page.text;
    this.#page = page;
    this.controls.show({ ...panel, rule: ruleOf(panel, this.model) });
    this.heads?.show({ ...panel, layer: null, head: null, ...lookOf(panel, this.model) });
    this.#paint(panel);
    const asked = JSON.stringify(explainBody(page, panel, this.model));
    if (asked === this.#asked) return;
    this.#asked = asked;
    const flipping = JSON.stringify(flipsBody(page, panel, this.model, false));
    if (flipping !== this.#flipping) {
      this.#flips.stop();
      this.line.element.classList.add("stale"); // until a strip of this page is there
      this.#due = true;
    }
    this.#flipping = flipping;
    if (this.#ready(page)) this.#askExplain(typed ? TYPING : AT_HAND);
  }

  #ready(page) {
    if (page.text && !this.model.problem) return true;
    this.#explains.stop();
    this.#answer = null;
    this.line.show("", [], { unknown: [], halting: null, offsets: [] });
    this.translation.clear();
    this.readout.empty();
    this.#say(this.model.problem ? sentence({ message: this.model.problem }) : "");
    this.#busy(false);
    return false;
  }

  /** Ask again for everything, after a lost connection. */
  refresh() {
    this.#askAgain();
    if (this.model.history || this.model.running) this.#watch(0);
  }

  #askAgain() {
    this.#asked = this.#flipping = "";
    if (this.#page) this.update(this.#page);
  }

  #panel() {
    return this.#page.panels.find((one) => one.model === this.name);
  }

  #paint(panel) {
    if (!this.#answer || !this.#fresh) return;
    this.element.classList.remove("old");
    const { segmentation, halting } = this.#answer;
    const gaps = overlay(segmentation.gaps, panel.held);
    this.line.show(this.#page.text, gaps, { ...segmentation, halting });
    this.readout.show(this.line, segmentation, ruleOf(panel, this.model));
  }

  #askExplain(wait) {
    this.#busy(true);
    this.line.attend(null);
    this.#explains.run(wait, async (signal) => {
      const asked = JSON.parse(this.#asked);
      try {
        this.#explained(asked, await ask("/explain", asked, signal));
      } catch (error) {
        this.#failed(error, () => this.#askExplain(AGAIN));
      }
    });
  }

  #explained(asked, answer) {
    this.#busy(false);
    this.#say("");
    const now = { ...answer, asked, text: answer.translation };
    // A reference alone changes nothing that came before.
    if (this.#answer && !same(cutting(this.#answer), cutting(now))) this.#before = this.#answer;
    this.#answer = now;
    this.#paint(this.#panel());
    this.translation.show(now, this.#before, answer.reference);
    this.element.dataset.answered = String(Number(this.element.dataset.answered ?? 0) + 1);
    this.#due ||= answer.version !== this.model.version;
    this.#noteVersion(answer.version);
    if (this.model.takes_cuts && this.#due) this.#askFlips(STRIP, false);
    this.#due = false;
  }

  #noteVersion(version) {
    if (version === this.model.version) return;
    const before = this.model.version;
    this.model = { ...this.model, version };
    if (before !== null && !this.model.running) this.on.replaced(this.name, version);
  }

  #askFlips(wait, long) {
    const gaps = this.line.gaps.length;
    const many = gaps > this.limits.flips;
    this.readout.flips(null, many && !long ? gaps : 0);
    if (!gaps || (many && !long)) {
      this.readout.note("");
      return this.#strip(null);
    }
    if (long) this.readout.note("Trying every flip, which may take a minute or two …");
    this.#flips.run(wait, async (signal) => {
      try {
        const flips = await ask("/flips", flipsBody(this.#page, this.#panel(), this.model, long), signal);
        if (-flips.changes[flips.offsets.indexOf(flips.best)] < SEEN) flips.best = null;
        this.#strip(flips);
        this.readout.flips(flips, 0, this.#page.reference.trim() !== "");
      } catch (error) {
        if (error.name === "AbortError") throw error;
        this.#strip(null);
        if (error instanceof Lost) return this.on.lost();
        if (tooMuch(error)) this.#askFlips(AGAIN, long);
        this.readout.note(sentence(error));
      }
    });
  }

  /** Show the strip of what is on the page now. */
  #strip(flips) {
    this.line.strip(flips);
    this.line.element.classList.remove("stale");
  }

  #failed(error, again) {
    if (error.name === "AbortError") throw error;
    this.#busy(false);
    if (error instanceof Lost) {
      this.#asked = "";
      return this.on.lost();
    }
    if (!(error instanceof Refusal)) throw error;
    if (error.field === "cuts" && Object.keys(this.#panel().held).length) {
      this.on.send({ type: "release", model: this.name });
      return this.#say("Some held gaps no longer lie between two symbols, so all are released.");
    }
    this.#say(sentence(error));
    this.element.classList.toggle("old", !this.#fresh);
    if (tooMuch(error)) again();
  }

  #say(text) {
    if (this.notice.textContent !== text) this.notice.textContent = text;
  }

  #busy(busy) {
    this.element.setAttribute("aria-busy", String(busy));
  }

  #look(offset) {
    this.readout.look(offset);
    const cell = this.line.cells().find((one) => one.offset === offset);
    this.#attendTo(cell?.segment ?? null);
  }

  #overLine(event) {
    const cell = this.line.cellOf(event.target);
    if (cell && event.target.closest(".letter")) this.#attendTo(cell.segment);
  }

  /** Show, and say, which segments an output symbol attends to. @param {number | null} out */
  #attendFrom(out) {
    const weights = this.#answer?.attention?.[out] ?? null;
    this.line.attend(weights);
    if (!weights) return this.readout.tell(null);
    const most = weights.indexOf(Math.max(...weights));
    const segment = this.#answer.segmentation.pieces[most];
    const where = segment === undefined ? "the end of the sentence" : `“${segment}”`;
    const symbol = this.#answer.output.symbols[out];
    this.readout.tell(`“${symbol}” attends most to ${where}: ${number(weights[most])}`);
  }

  /** Show which output symbols attend to a segment of the source. */
  #attendTo(segment) {
    const rows = segment === null ? null : this.#answer?.attention;
    this.translation.attend(rows ? rows.map((row) => row[segment] ?? 0) : null);
  }

  #watch(wait) {
    this.#polls.run(wait, async (signal) => {
      try {
        const training = await ask("/training", { model: this.name }, signal);
        if (this.#complaint && this.notice.textContent === this.#complaint) this.#say("");
        this.#complaint = "";
        const open = this.curves.querySelector("details[open]") !== null;
        this.curves.replaceChildren(...drawCurves(training.curves, training.running, open));
        const running = this.element.querySelector(".running");
        const shown = training.shown === null ? "" : `; shown: update ${training.shown}`;
        const state = training.running ? `in training, update ${training.update}${shown}` : "trained";
        if (running) running.textContent = state;
        if (training.running || this.model.problem) this.#watch(POLL);
        this.model = { ...this.model, running: training.running };
        if (this.model.version === training.version || !training.version) return;
        if (this.model.problem) return this.on.replaced(this.name, training.version); // its first weights
        this.model = { ...this.model, version: training.version };
        this.#askAgain();
      } catch (error) {
        if (error.name === "AbortError") throw error;
        if (error instanceof Lost) return this.on.lost();
        this.#say((this.#complaint = sentence(error)));
        if (tooMuch(error)) this.#watch(POLL);
      }
    });
  }

  async #copied(to) {
    const { model } = this;
    try {
      this.#say(await to({ name: model.name, line: this.line, answer: this.#answer, element: this.element }));
    } catch (error) {
      this.#say(`The picture could not be made: ${error.message}`);
    }
  }

  /** Stop asking; the panel goes. */
  close() {
    for (const newest of [this.#explains, this.#flips, this.#polls]) newest.stop();
    this.element.remove();
  }
}
