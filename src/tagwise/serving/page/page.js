// The page: a text, its tags, and the answers on them.

import { Answers } from "./answers.js";
import { Api, Problem, pathOf } from "./api.js";
import { TagSearch } from "./search.js";
import { TagList, visible } from "./tags.js";
import { TextSheet } from "./text.js";

const WAIT = 250; // milliseconds between the last key and the request for tags
const TOPS = [10, 25, 50, 100];
const WORDS_PER_TAG = 20;
const MOST_BYTES = 4 * 2 ** 20; // of a request, unless the server is configured otherwise

const part = (id) => document.getElementById(id);
const number = (count) => count.toLocaleString("en");
const counted = (count, noun) => `${number(count)} ${noun}${count === 1 ? "" : "s"}`;

const api = new Api(askForKey);
const sheet = new TextSheet(() => {
  clearTimeout(timer);
  timer = setTimeout(suggest, WAIT);
  part("tag-card").setAttribute("aria-busy", "true");
  showTools();
});
const answers = new Answers(api, answered, (error) => trouble(error, "answers"));
const list = new TagList(
  (tag, answer) => give([tag], answer),
  (words) => sheet.light(isCurrent() ? words : [], subject?.places) // else places are out of date
);
const search = new TagSearch(findTags, (tag) => wordOf(subject?.answers.get(tag)), () => tagger.new_tags, addTag);

let taggers = [];
let tagger = null; // the chosen one, as the server describes it
let keepsAnswers = false;
const queue = { texts: 0, answered: 0, number: 0, wanted: 0 }; // number 0: the user's own text is shown
let ownText = "";
let subject = null; // subject of the tags: tagger, text, id, tags asked about, suggestions, answers, and names of tags
let latest = null; // the last one, even if its tags have not arrived
let top = TOPS[0];
let timer = 0;
let asking = new AbortController();
let openings = 0;
const subjects = new Map(); // subjects answered in this visit, to restore their answers on return
const troubles = new Map(); // unresolved problems: "tags", "answers" or "search", with a sentence

// ------------------------------------------------------------------ what is served

async function start() {
  taggers = (await api.get("v1/taggers")).taggers;
  const select = part("taggers").querySelector("select");
  select.replaceChildren(...taggers.map(({ name }) => new Option(name, name)));
  part("taggers").hidden = taggers.length < 2;
  select.addEventListener("change", () => chooseTagger(select.value).catch(trouble));
  const first = taggers.find((one) => one.ready) ?? taggers[0];
  select.value = first.name;
  await chooseTagger(first.name);
}

async function chooseTagger(name) {
  tagger = taggers.find((one) => one.name === name);
  asking.abort(); // an answer of the previous tagger
  forgetTags();
  document.title = `${name} · tagwise`;
  part("title").textContent = name;
  showAbout();
  await showCounts();
  const found = await api.get(pathOf(name, "queue"));
  Object.assign(queue, { texts: found.texts, answered: found.answered });
  if (queue.texts && !ownText) await openQueued(queue.number || found.next || 1);
  else await suggest();
}

function showAbout() {
  const { ready, error, model, tags, rows } = tagger;
  part("about").textContent = ready
    ? `${counted(tags, "tag")}, learnt from ${counted(rows, "text")} by ${model}`
    : `Not loaded: ${error ?? "the server is loading it"}`;
}

/** What the next training learns from. */
async function showCounts() {
  const { kept, texts, accepted, rejected } = await api.get(pathOf(tagger.name, "feedback"));
  keepsAnswers = kept;
  const line = part("learnt");
  line.hidden = false;
  const figures = document.createElement("b");
  const rest = [];
  if (!kept) {
    figures.textContent = "Answers are not kept.";
    rest.push(" To accept and reject tags here, start the server with ", codeOf("--feedback FILE"), ".");
  } else if (accepted + rejected === 0) {
    figures.textContent = "No answers yet.";
    rest.push(" Accept right tags and reject wrong ones: the next training learns from them. ");
    rest.push("All other tags stay unknown.");
  } else {
    figures.textContent = `${counted(accepted + rejected, "answer")} kept`;
    rest.push(`: ${number(accepted)} accepted, ${number(rejected)} rejected, on ${counted(texts, "text")}. `);
    rest.push("The next training with ", codeOf("--feedback"), " takes the accepted ones as right and the ");
    rest.push("rejected ones as wrong; all other tags stay unknown.");
  }
  line.replaceChildren(figures, ...rest);
}

function codeOf(text) {
  const code = document.createElement("code");
  code.textContent = text;
  return code;
}

// ------------------------------------------------------------------ suggestions

async function suggest() {
  clearTimeout(timer);
  if (!tagger) return; // it will be asked when it is known
  asking.abort();
  asking = new AbortController();
  const { signal } = asking;
  const text = sheet.text;
  if (!text.trim()) {
    forgetTags();
    noTrouble("tags");
    part("tag-card").removeAttribute("aria-busy");
    return;
  }
  const body = { text, top, explain: tagger.explainable ? WORDS_PER_TAG : 0, places: true };
  part("tag-card").setAttribute("aria-busy", "true");
  try {
    const { suggestions, places = {}, version } = await api.post(pathOf(tagger.name, "suggest"), body, signal);
    subject = subjectOf(text);
    subject.suggestions = suggestions;
    subject.shown = text;
    subject.places = new Map(Object.entries(places));
    noTrouble("tags");
    showTags();
    say(`${counted(suggestions.length, "tag")} suggested.`);
    if (version !== tagger.version) newVersion().catch(trouble);
  } catch (error) {
    if (error.name === "AbortError") return;
    if (!isCurrent()) forgetTags();
    trouble(error);
  } finally {
    if (!signal.aborted) part("tag-card").removeAttribute("aria-busy");
  }
}

/** The model was replaced since the page asked about it. */
async function newVersion() {
  taggers = (await api.get("v1/taggers")).taggers;
  tagger = taggers.find((one) => one.name === tagger.name) ?? tagger;
  showAbout();
  say("A newer model is now in use.");
}

function subjectOf(text) {
  const key = JSON.stringify([tagger.name, queue.number, queue.number ? null : text]);
  if (latest?.key !== key) {
    const fresh = { key, tagger: tagger.name, text, id: null, asked: [], suggestions: [] };
    latest = subjects.get(key) ?? { ...fresh, answers: new Map(), names: new Map() };
  }
  return latest;
}

/** Whether the tags are those of the text that is shown: only then may they be answered. */
const isCurrent = () => subject !== null && subject.shown === sheet.text;

/** Show no tags until those of another text come; keys of the card are heard meanwhile. */
function forgetTags() {
  const card = part("tag-card");
  const wasInside = card.contains(document.activeElement);
  subject = null;
  showTags();
  if (wasInside && (document.activeElement === document.body || !document.activeElement.checkVisibility())) {
    card.focus({ preventScroll: true });
  }
}

function showTags() {
  const there = subject !== null;
  const suggested = subject?.suggestions ?? [];
  for (const { tag, name } of suggested) subject.names.set(tag, name);
  const found = new Map(suggested.map((one) => [one.tag, one]));
  const rowOf = (tag) => found.get(tag) ?? { tag, name: subject.names.get(tag) };
  const asked = subject?.asked ?? []; // tags asked about come first
  const others = there ? [...subject.answers.keys()].filter((tag) => !found.has(tag) && !asked.includes(tag)) : [];
  const rows = [
    ...asked.map((tag) => ({ ...rowOf(tag), asked: true })),
    ...suggested.filter((one) => !asked.includes(one.tag)),
    ...others.map(rowOf),
  ];
  list.show(rows, subject?.answers ?? new Map(), keepsAnswers);
  part("empty").hidden = there || Boolean(sheet.text.trim());
  part("unknown").hidden = !there || !tagger.explainable || !suggested.length || suggested.some((one) => one.words?.length);
  part("add").hidden = part("keys").hidden = !there || !keepsAnswers;
  part("dark").hidden = !there || !tagger.explainable || !sheet.staysDark;
  part("legend").hidden = !there || !tagger.explainable || sheet.staysDark;
  part("queue-keys").hidden = !queue.number;
  part("more").hidden = top === TOPS.at(-1) || suggested.length < top;
  showTools();
}

function showTools() {
  const reading = queue.number > 0;
  part("queue").hidden = part("done").hidden = !reading;
  part("text-title").hidden = reading;
  part("own").hidden = !reading;
  part("open").hidden = reading || Boolean(sheet.text);
  part("clear").hidden = reading || !sheet.text;
  part("to-queue").hidden = reading || !queue.texts;
  const open = subject ? list.tags.filter((tag) => !subject.answers.has(tag)) : [];
  part("rest").hidden = !keepsAnswers || !open.length || !subject?.answers.size;
  part("after").hidden = !subject || (part("more").hidden && part("rest").hidden);
  const { last } = answers;
  part("undo").hidden = !last;
  if (last) part("undo").title = `Undo: ${described(last)} (U)`;
}

// ------------------------------------------------------------------ answers

const wordOf = (answer) => ({ true: "accepted", false: "rejected", null: "taken back" })[answer] ?? "";

function described({ subject: of, changes }) {
  const what = changes.length === 1 ? nameOf(changes[0].tag, of) : counted(changes.length, "tag");
  return `${what} ${wordOf(changes[0].answer)}`;
}

const nameOf = (tag, of) => visible(of.names.get(tag) || tag);

/** Gives whether the answer was taken. */
function give(tags, answer) {
  if (!keepsAnswers) return false;
  if (!isCurrent()) {
    say("Not recorded: the tags of this text are still loading.");
    return false;
  }
  subjects.set(subject.key, subject);
  answers.give(subject, tags, answer);
  if (answers.last) say(`${described(answers.last)}.`);
  return true;
}

function undo() {
  const undone = answers.undo();
  if (part("undo").hidden && document.activeElement === part("undo")) list.focus();
  if (undone) say(`Undone: ${described(undone)}${undone.subject === subject ? "" : ", on an earlier text"}.`);
}

/** The answers on a subject have changed; `kept`: the server has stored them. */
function answered(changed, kept = false) {
  if (kept) {
    noTrouble("answers");
    showProgress().catch((error) => trouble(error, "answers"));
    return;
  }
  if (changed !== subject) {
    showTools();
    return;
  }
  const shown = new Set(list.tags);
  const suggested = new Set(subject.suggestions.map((one) => one.tag));
  const same =
    [...subject.answers.keys()].every((tag) => shown.has(tag)) &&
    [...shown].every((tag) => suggested.has(tag) || subject.asked.includes(tag) || subject.answers.has(tag));
  if (same) list.mark(subject.answers);
  else showTags();
  showTools();
}

async function showProgress() {
  await showCounts();
  if (queue.texts) queue.answered = (await api.get(pathOf(tagger.name, "queue"))).answered;
  showPlace();
}

async function findTags(q) {
  try {
    const { tags } = await api.get(pathOf(tagger.name, `tags?${new URLSearchParams({ q, limit: 12 })}`));
    noTrouble("search");
    return tags;
  } catch (error) {
    trouble(error, "search");
    return null;
  }
}

function addTag({ tag, name }) {
  subject?.names.set(tag, name);
  give([tag], true);
}

// ------------------------------------------------------------------ the queue

async function openQueued(wanted, thenFocus = false) {
  queue.wanted = wanted;
  openings += 1;
  const opening = openings;
  let one;
  try {
    one = await api.get(pathOf(tagger.name, `queue/${wanted}`));
  } catch (error) {
    if (opening === openings) queue.wanted = queue.number;
    throw error;
  }
  if (opening !== openings) return; // another text was requested meanwhile
  queue.number = wanted;
  sheet.fixed = true;
  sheet.text = one.text;
  forgetTags();
  const opened = subjectOf(one.text);
  if (!subjects.has(opened.key)) {
    // The answers of this visit may be newer than those that the server has stored.
    opened.id = one.id;
    opened.asked = one.asked;
    opened.answers = new Map([...one.accepted.map((tag) => [tag, true]), ...one.rejected.map((tag) => [tag, false])]);
  }
  top = TOPS[0];
  showPlace();
  await suggest();
  if (opening !== openings) return;
  const focused = document.activeElement;
  if (thenFocus || focused?.disabled || focused === document.body || focused === part("tag-card")) list.focus();
}

function showPlace() {
  const { texts, number: place, answered: done } = queue;
  part("place").textContent = `Text ${number(place)} of ${number(texts)}`;
  part("answered").textContent = `${number(done)} answered`;
  part("done").querySelector("span").style.width = `${((100 * done) / Math.max(1, texts)).toFixed(1)}%`;
  part("previous").disabled = place <= 1;
  part("next").disabled = place >= texts;
}

function move(step, thenFocus = false) {
  const wanted = queue.wanted + step;
  if (queue.number && wanted >= 1 && wanted <= queue.texts) openQueued(wanted, thenFocus).catch(trouble);
}

function openOwn(text) {
  openings += 1;
  queue.number = queue.wanted = 0;
  ownText = text;
  sheet.fixed = false;
  sheet.text = text;
  top = TOPS[0];
  forgetTags();
  suggest();
}

// ------------------------------------------------------------------ files

async function openFile(file) {
  if (file.size > MOST_BYTES) {
    const sentence = `${file.name} has ${number(file.size)} bytes; the limit is ${number(MOST_BYTES)}, including JSON escapes.`;
    trouble(new Problem(0, sentence));
    return;
  }
  try {
    openOwn(new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer()).replaceAll("\0", ""));
  } catch {
    trouble(new Problem(0, `${file.name} is not UTF-8 text; save it as UTF-8, or copy its text.`));
  }
}

function drop(event) {
  part("sheet").classList.remove("dropping");
  const file = event.dataTransfer.files[0];
  if (!file && event.target === sheet.field && !queue.number) return; // the field takes text itself
  event.preventDefault();
  if (file) openFile(file);
  else openOwn(event.dataTransfer.getData("text/plain"));
}

// ------------------------------------------------------------------ what is said

function say(text) {
  part("said").textContent = text;
}

/** Show a problem until the same operation succeeds. */
function trouble(error, what = "tags") {
  troubles.set(what, error instanceof Problem ? error.message : `Something went wrong: ${error.message}`);
  showTroubles();
}

function noTrouble(what) {
  if (troubles.delete(what)) showTroubles();
}

function showTroubles() {
  part("trouble").textContent = [...troubles.values()].join(" ");
  part("trouble").hidden = !troubles.size;
}

function askForKey(sentence) {
  const dialog = part("key-dialog");
  part("key-wrong").textContent = sentence;
  part("key-wrong").hidden = !sentence;
  part("key").value = "";
  part("key").setAttribute("aria-invalid", String(Boolean(sentence)));
  dialog.showModal();
  return new Promise((resolve, reject) => {
    part("key-form").onsubmit = (event) => {
      event.preventDefault();
      dialog.close();
      resolve(part("key").value.trim());
    };
    dialog.oncancel = () => reject(new Problem(401, "This server needs a key. Load the page again to enter one."));
  });
}

// ------------------------------------------------------------------ what people do

part("undo").addEventListener("click", undo);
part("previous").addEventListener("click", () => move(-1));
part("next").addEventListener("click", () => move(1));
part("open").addEventListener("click", () => part("file").click());
part("file").addEventListener("change", () => {
  if (part("file").files.length) openFile(part("file").files[0]);
  part("file").value = "";
});
part("clear").addEventListener("click", () => {
  openOwn("");
  sheet.field.focus();
});
part("own").addEventListener("click", () => {
  openOwn("");
  sheet.field.focus();
});
part("to-queue").addEventListener("click", () => {
  ownText = "";
  api
    .get(pathOf(tagger.name, "queue"))
    .then((found) => openQueued(found.next ?? 1))
    .catch(trouble);
});
part("more").addEventListener("click", async () => {
  const [before, topBefore] = [list.tags.length, top];
  top = TOPS[TOPS.indexOf(top) + 1];
  await suggest();
  if (troubles.has("tags")) {
    top = topBefore;
    showTags();
  } else if (part("more").hidden) list.focus(list.tags[before]);
});
part("rest").addEventListener("click", () => {
  give(
    list.tags.filter((tag) => !subject.answers.has(tag)),
    false
  );
  list.focus();
});

// Single-letter shortcuts work only inside the tag card, where nothing is typed (except in the search box).
part("tag-card").addEventListener("keydown", (event) => {
  if (event.target === search.field || event.ctrlKey || event.metaKey || event.altKey) return;
  const acts = {
    u: undo,
    "/": () => search.field.focus(),
    n: () => move(1, true),
    p: () => move(-1, true),
  };
  const act = acts[event.key.toLowerCase()];
  if (!act) return;
  event.preventDefault();
  act();
});
search.field.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !event.defaultPrevented) list.focus();
});
document.addEventListener("keydown", (event) => {
  const writes = event.target === search.field || (event.target === sheet.field && !queue.number);
  if ((event.ctrlKey || event.metaKey) && event.key === "z" && !event.shiftKey && !writes) {
    event.preventDefault();
    undo();
  } else if ((event.ctrlKey || event.metaKey) && event.key === "Enter" && event.target === sheet.field) {
    event.preventDefault();
    suggest().then(() => list.focus());
  }
});

document.addEventListener("dragover", (event) => {
  event.preventDefault();
  part("sheet").classList.add("dropping");
});
document.addEventListener("dragleave", (event) => {
  if (!event.relatedTarget) part("sheet").classList.remove("dropping");
});
document.addEventListener("drop", drop);
sheet.field.addEventListener("input", () => (ownText = sheet.text));

start().catch(trouble);
