// The list of tags: probabilities as bars, the words that speak for each, and the two answers.

const WORDS_SHOWN = 5;
const WORDS = { true: "accepted", false: "rejected" };

export class TagList {
  #rows = new Map();
  #pinned = null; // the tag that was pressed: its words stay lit
  #pointed = null; // the one under the mouse

  /** Callbacks for user actions: `onAnswer(tag, answer)`, which returns whether it is taken, and `onLight(words)`. */
  constructor(onAnswer, onLight) {
    this.list = document.getElementById("tags");
    this.template = document.getElementById("row");
    this.onAnswer = onAnswer;
    this.onLight = onLight;
    this.list.addEventListener("keydown", (event) => this.#key(event));
    this.list.addEventListener("pointerleave", () => this.#point(null));
    this.list.addEventListener("focusout", (event) => this.list.contains(event.relatedTarget) || this.#light());
  }

  /** The tags that are shown, in order. */
  get tags() {
    return [...this.#rows.keys()];
  }

  /** Show suggestions; `answers` and `answerable` as of :meth:`mark`. */
  show(suggestions, answers, answerable) {
    const focused = this.#focused();
    const best = Math.max(...suggestions.map((one) => one.score ?? 0), 0);
    this.#rows.clear();
    for (const one of suggestions) this.#rows.set(one.tag, { one, element: this.#element(one, best, answerable) });
    if (!this.#rows.has(this.#pinned)) this.#pinned = null;
    this.#pointed = null;
    this.list.replaceChildren(...[...this.#rows.values()].map((row) => row.element));
    this.mark(answers);
    if (focused && this.#rows.has(focused.tag)) this.focus(focused.tag, focused.kind);
    this.#light();
  }

  /** Show which tags are accepted (true) and rejected (false). */
  mark(answers) {
    for (const [tag, { element }] of this.#rows) {
      const answer = answers.get(tag);
      if (answer === undefined) delete element.dataset.answer;
      else element.dataset.answer = WORDS[answer];
      element.querySelector(".accept").setAttribute("aria-pressed", String(answer === true));
      element.querySelector(".reject").setAttribute("aria-pressed", String(answer === false));
    }
  }

  /** Move to a tag, or to the first. */
  focus(tag = this.tags[0], kind = "name") {
    this.#rows.get(tag)?.element.querySelector(`.${kind}`)?.focus();
  }

  #element(one, best, answerable) {
    const element = this.template.content.firstElementChild.cloneNode(true);
    const part = (name) => element.querySelector(name);
    const sure = one.probability ?? null;
    const shown = one.name || one.tag;
    part("bdi").append(...breakable(shown));
    if (one.name) part("small").append(...breakable(one.tag));
    else part("small").remove();
    if (sure === null && one.score !== undefined) part(".sure").title = "Score: this model has no probabilities";
    const figure = sure !== null ? percent(sure) : one.score !== undefined ? one.score.toFixed(2) : null;
    part(".sure").textContent = one.asked ? ["asked", figure].filter(Boolean).join(" · ") : figure ?? "added";
    element.classList.toggle("asked", Boolean(one.asked));
    const width = sure ?? (one.score === undefined ? 0 : best > 0 ? Math.max(0, one.score / best) : 0);
    part(".bar span").style.width = `${(100 * width).toFixed(1)}%`;
    part(".bar").hidden = one.score === undefined;
    part(".why").textContent = wordsFor(one.words ?? []).join(" · ");
    for (const name of ["sure", "why"]) part(`.${name}`).id = `${name}-${this.#rows.size}`;
    part(".name").setAttribute("aria-describedby", `${part(".sure").id} ${part(".why").id}`);
    part(".accept").setAttribute("aria-label", `Accept ${visible(shown)}`);
    part(".reject").setAttribute("aria-label", `Reject ${visible(shown)}`);
    part(".accept").title = "Accept (A)";
    part(".reject").title = "Reject (R)";
    part(".marks").hidden = !answerable;
    for (const [name, answer] of [[".accept", true], [".reject", false]]) {
      part(name).addEventListener("click", () => this.#toggle(one.tag, answer));
    }
    element.addEventListener("click", (event) => {
      if (event.target.closest(".marks")) return;
      this.#pinned = this.#pinned === one.tag ? null : one.tag;
      this.#light();
    });
    element.addEventListener("pointerenter", (event) => event.pointerType === "mouse" && this.#point(one.tag));
    element.addEventListener("focusin", () => this.#point(null));
    return element;
  }

  #toggle(tag, answer) {
    const pressed = this.#rows.get(tag).element.dataset.answer === WORDS[answer];
    return this.onAnswer(tag, pressed ? null : answer);
  }

  #point(tag) {
    this.#pointed = tag;
    this.#light();
  }

  /** Light up the words of the tag under the mouse, or else in the focus of the keyboard, or else of the pinned one. */
  #light() {
    const focused = document.activeElement?.matches(":focus-visible") ? this.#focused()?.tag : null;
    const chosen = this.#pointed ?? focused ?? this.#pinned;
    for (const [other, { element }] of this.#rows) {
      element.classList.toggle("lit", other === chosen);
      element.querySelector(".name").setAttribute("aria-pressed", String(other === this.#pinned));
    }
    this.onLight(this.#rows.get(chosen)?.one.words ?? []);
  }

  #focused() {
    const element = document.activeElement?.closest?.(".row");
    for (const [tag, row] of this.#rows) {
      if (row.element === element) return { tag, kind: document.activeElement.className };
    }
    return null;
  }

  #key(event) {
    const focused = this.#focused();
    if (!focused || event.ctrlKey || event.metaKey || event.altKey) return;
    const { tags } = this;
    const place = tags.indexOf(focused.tag);
    const moves = { ArrowDown: place + 1, ArrowUp: place - 1, Home: 0, End: tags.length - 1 };
    const answer = { a: true, r: false }[event.key.toLowerCase()];
    if (event.key in moves) {
      this.focus(tags[Math.min(tags.length - 1, Math.max(0, moves[event.key]))], focused.kind);
    } else if (answer !== undefined && !this.#rows.get(focused.tag).element.querySelector(".marks").hidden) {
      const given = this.#rows.get(focused.tag).element.dataset.answer === WORDS[answer];
      const isTaken = this.#toggle(focused.tag, answer);
      if (isTaken && !given) this.focus(tags[Math.min(tags.length - 1, place + 1)], focused.kind);
    } else {
      return;
    }
    event.preventDefault();
  }
}

/** The first words that speak for a tag; of several parts of one word, the one that says most. */
function wordsFor(words) {
  const shown = [];
  for (const { word, share } of words) {
    const isPart = word.startsWith("char:");
    const letters = isPart ? word.slice("char:".length).trim() : word;
    const isSaid = (other) => (isPart || other.isPart) && (other.letters.includes(letters) || letters.includes(other.letters));
    if (share > 0 && !shown.some(isSaid)) shown.push({ letters, isPart });
  }
  return shown.slice(0, WORDS_SHOWN).map((one) => one.letters);
}

/** A tag as it is shown: what could end a line or reorder what follows is written as its escape, as in the reports. */
export const visible = (text) =>
  text.replace(/[\0-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]/gu, (found) => {
    const short = { "\t": "\\t", "\n": "\\n", "\r": "\\r" }[found];
    return short ?? `\\u${found.charCodeAt(0).toString(16).padStart(4, "0")}`;
  });

/** A tag with places where a line may break, such as behind the colons of a path. */
export const breakable = (text) =>
  visible(text)
    .split(/(?<=[:/_.,-])(?=[^:/_.,-])/)
    .flatMap((piece) => [piece, document.createElement("wbr")]);

const percent = (share) =>
  share >= 0.995 ? "> 99%" : share < 0.005 ? "< 1%" : `${Math.round(100 * share)}%`;
