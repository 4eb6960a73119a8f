/** The page: one history, one panel per model, and what they have in common. */

import { ask, keepToken, Lost } from "./api.js";
import { make } from "./dom.js";
import { decode, encode } from "./link.js";
import { Panel } from "./panel.js";
import { begin, panelOf, reduce, same } from "./state.js";
import { size, tidy } from "./text.js";

const AGAIN = 2000; // milliseconds between two tries to reach a lost server
const TYPED = 200; // that the address waits while someone types: browsers limit how often it may change
const FIRST = 2; // models that are open at first, at most
const EXAMPLES = 8; // sentences to start from, at most
const find = (/** @type {string} */ id) => document.getElementById(id);

let state = begin({ text: "", reference: "", panels: [] });
let models = /** @type {any[]} */ ([]);
let limits = { characters: 500, flips: 120 };
let lost = 0;
let writing = 0;
const panels = new Map();

function send(/** @type {object} */ action) {
  if (!lost && action.type !== "load") tell("");
  const before = state;
  state = reduce(state, { time: Date.now(), ...action });
  if (state !== before) show(action.group ? TYPED : 0);
}

/** Show the page as it is now. @param {number} wait before the address says so as well, in milliseconds */
function show(wait = 0) {
  const { now, past, future } = state;
  for (const [id, value] of [["text", now.text], ["reference", now.reference]]) {
    if (find(id).value !== value) find(id).value = value;
  }
  find("undo").disabled = past.length === 0;
  find("redo").disabled = future.length === 0;
  find("reset").disabled = now.panels.every((panel) => same(panel, panelOf(panel.model)));
  const over = size(now.text) - limits.characters;
  const most = `Too long by ${over}: at most ${limits.characters} characters are allowed.`;
  find("count").textContent = over > 0 ? most : "";
  showPanels(now.panels.map((panel) => panel.model));
  for (const panel of panels.values()) panel.update(now);
  clearTimeout(writing);
  if (wait) writing = setTimeout(writeAddress, wait);
  else writeAddress();
}

function writeAddress() {
  const hash = `#${encode(state.now)}`;
  if (location.hash !== hash) history.replaceState(null, "", hash);
}

function showPanels(/** @type {string[]} */ names) {
  for (const [name, panel] of panels) {
    if (names.includes(name)) continue;
    panel.close();
    panels.delete(name);
  }
  for (const name of names) {
    const model = models.find((one) => one.name === name);
    if (!panels.has(name)) panels.set(name, new Panel(model, limits, { send, lost: lose, replaced }));
  }
  const wanted = names.map((name) => panels.get(name).element);
  const shown = [...find("panels").children];
  if (wanted.length !== shown.length || wanted.some((element, i) => element !== shown[i])) {
    find("panels").replaceChildren(...wanted);
  }
  find("panels").classList.toggle("several", names.length > 1);
  for (const box of find("models").querySelectorAll("input")) box.checked = names.includes(box.value);
}

/** Models that the server has, in a page that a link may have named others in. */
function known(page) {
  const named = page.panels.filter((panel) => models.some((model) => model.name === panel.model));
  const missing = page.panels.filter((panel) => !named.includes(panel)).map((panel) => panel.model);
  if (missing.length) tell(`The link names a model that is not here: ${missing.join(", ")}.`);
  return { ...page, panels: named.length ? named : usual() };
}

/** The first models; of many, those that were trained on text like the first one's. */
function usual() {
  const alike = models.filter((model) => same(model.examples, models[0].examples));
  return (models.length > FIRST ? alike : models).slice(0, FIRST).map((model) => panelOf(model.name));
}

function tell(/** @type {string} */ text) {
  find("news").textContent = text;
}

/** A model is another one now. @param {string} name @param {string} version of the answer that said so */
function replaced(name, version) {
  const first = models.some((model) => model.name === name && model.problem);
  const again = `${name} was replaced on disk. What you see now comes from the new model.`;
  tell(first ? `${name} has its first weights.` : again);
  load().then(() => {
    models = models.map((model) => (model.name === name ? { ...model, version } : model));
    panels.get(name)?.close();
    panels.delete(name);
    show();
  }, failed);
}

function lose() {
  if (lost) return;
  tell("The server does not answer. Is it still running? This page tries again every two seconds.");
  const tryAgain = async () => {
    try {
      await load();
      lost = 0;
      tell("The server answers again.");
      for (const panel of panels.values()) panel.refresh();
    } catch (error) {
      if (!(error instanceof Lost)) return failed(error);
      lost = setTimeout(tryAgain, AGAIN);
    }
  };
  lost = setTimeout(tryAgain, AGAIN);
}

function failed(/** @type {Error} */ error) {
  if (error instanceof Lost) lose();
  else tell(error.message);
}

async function load() {
  ({ models, limits } = await ask("/api/models"));
}

function offer() {
  const boxes = models.map((model) => {
    const box = make("input", { type: "checkbox", value: model.name });
    return make("label", {}, box, model.name);
  });
  find("models").append(...boxes);
  find("models").hidden = models.length < 2;
  const examples = [...new Set(models.flatMap((model) => model.examples))].slice(0, EXAMPLES);
  const tries = examples.map((text) =>
    make("button", { type: "button", lang: "und", click: () => send({ type: "example", text }) }, text),
  );
  find("examples").append(...tries);
  return examples;
}

function listen() {
  const fields = [["text", "text"], ["reference", "reference"]];
  for (const [id, type] of fields) {
    const field = find(id);
    field.addEventListener("input", () => send({ type, text: tidy(field.value), group: type }));
    field.addEventListener("keydown", (event) => event.key === "Enter" && event.preventDefault());
  }
  for (const id of ["undo", "redo", "reset"]) find(id).addEventListener("click", () => send({ type: id }));
  addEventListener("keydown", (event) => {
    if (!(event.ctrlKey || event.metaKey) || event.altKey) return;
    const key = event.key.toLowerCase();
    if (key !== "z" && key !== "y") return;
    event.preventDefault();
    send({ type: key === "y" || event.shiftKey ? "redo" : "undo" });
  });
  find("models").addEventListener("change", () => {
    const chosen = [...find("models").querySelectorAll("input:checked")].map((box) => box.value);
    const kept = state.now.panels.map((panel) => panel.model).filter((name) => chosen.includes(name));
    const names = [...kept, ...chosen.filter((name) => !kept.includes(name))];
    if (names.length) send({ type: "models", models: names });
    else show();
  });
  addEventListener("hashchange", (event) => {
    keepToken();
    const page = decode(new URL(event.newURL).hash); // the address itself may have been written since
    if (page) send({ type: "load", page: known(page) });
  });
  find("link").addEventListener("click", copyLink);
  find("theme").addEventListener("click", turn);
}

async function copyLink() {
  writeAddress();
  try {
    await navigator.clipboard.writeText(location.href);
    tell("Link copied. It has the sentence, the models and the held gaps.");
  } catch {
    tell("The browser did not allow copying. Copy the address of this page instead.");
  }
}

/** Light to dark and back; the choice is kept. */
function turn() {
  const root = document.documentElement;
  const usual = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  root.dataset.theme = (root.dataset.theme ?? usual) === "dark" ? "light" : "dark";
  localStorage.setItem("caesura-theme", root.dataset.theme);
}

async function start() {
  keepToken();
  listen();
  await load();
  const examples = offer();
  const page = decode(location.hash) ?? { text: examples[0] ?? "", reference: "", panels: [] };
  state = begin(known(page));
  show();
  document.body.classList.add("ready");
}

start().catch((error) => {
  const message = "The server does not answer. Start it, then reload this page.";
  tell(error instanceof Lost ? message : error.message);
});
