// Accepted and rejected tags: sent one after the other, to keep their order, and undone in reverse.

import { pathOf } from "./api.js";

export class Answers {
  #api;
  #sent = Promise.resolve();
  #history = [];

  /** `onChange(subject)`: the answers on a subject have changed. `onTrouble(error)`: some were not kept. */
  constructor(api, onChange, onTrouble) {
    this.#api = api;
    this.onChange = onChange;
    this.onTrouble = onTrouble;
  }

  /** What an undo would undo; undefined where there is nothing. */
  get last() {
    return this.#history.at(-1);
  }

  /** Give tags of a subject new answers: true is right, false is wrong, null is unknown. */
  give(subject, tags, answer) {
    const changes = tags
      .map((tag) => ({ tag, before: subject.answers.get(tag) ?? null, answer }))
      .filter((change) => change.before !== answer);
    if (!changes.length) return;
    const entry = { subject, changes };
    this.#history.push(entry);
    this.#apply(subject, changes, () => {
      this.#history = this.#history.filter((other) => other !== entry);
    });
  }

  /** Take the last answers back; gives what they were. */
  undo() {
    const entry = this.#history.pop();
    if (!entry) return undefined;
    const changes = entry.changes.map(({ tag, before, answer }) => ({ tag, before: answer, answer: before }));
    this.#apply(entry.subject, changes, () => this.#history.push(entry));
    return entry;
  }

  #apply(subject, changes, onFailure) {
    set(subject, changes, "answer");
    this.onChange(subject);
    const tagsWith = (answer) => changes.filter((change) => change.answer === answer).map((change) => change.tag);
    const body = { text: subject.text, accepted: tagsWith(true), rejected: tagsWith(false), withdrawn: tagsWith(null) };
    if (subject.id !== null) body.id = subject.id;
    this.#sent = this.#sent
      .then(() => this.#api.post(pathOf(subject.tagger, "feedback"), body))
      .then(() => this.onChange(subject, true))
      .catch((error) => {
        // Unless there is a later answer, which is on its way.
        const latest = changes.filter(({ tag, answer }) => (subject.answers.get(tag) ?? null) === answer);
        set(subject, latest, "before");
        onFailure();
        this.onChange(subject);
        this.onTrouble(error);
      });
  }
}

function set(subject, changes, which) {
  for (const change of changes) {
    if (change[which] === null) subject.answers.delete(change.tag);
    else subject.answers.set(change.tag, change[which]);
  }
}
