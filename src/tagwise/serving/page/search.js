// A box that finds tags of the whole vocabulary: a combobox as the ARIA practices describe it.

import { breakable } from "./tags.js";

const WAIT = 120;

export class TagSearch {
  #found = [];
  #active = -1;
  #timer = 0;
  #asked = 0;

  /**
   * `find(part)` gives a promise of tags; `stateOf(tag)` a word on a tag that is answered; `takesNew()` says whether
   * there may be tags that the model does not know; `onChoose` gets the tag.
   */
  constructor(find, stateOf, takesNew, onChoose) {
    this.field = document.getElementById("search");
    this.list = document.getElementById("found");
    this.find = find;
    this.stateOf = stateOf;
    this.takesNew = takesNew;
    this.onChoose = onChoose;
    this.field.addEventListener("input", () => {
      clearTimeout(this.#timer);
      this.#timer = setTimeout(() => this.#look(), WAIT);
    });
    this.field.addEventListener("keydown", (event) => this.#key(event));
    this.field.addEventListener("blur", () => this.close());
    // Otherwise the field would lose the focus, and the list close, before the click arrives.
    this.list.addEventListener("pointerdown", (event) => event.preventDefault());
  }

  close() {
    clearTimeout(this.#timer);
    this.#asked += 1;
    this.#show([]);
    this.list.hidden = true;
    this.field.setAttribute("aria-expanded", "false");
  }

  async #look() {
    const part = this.field.value.trim();
    if (!part) {
      this.close();
      return;
    }
    this.#asked += 1;
    const asked = this.#asked;
    const found = await this.find(part);
    if (asked !== this.#asked || !found) return; // an answer to an older request
    const isThere = found.some(({ tag, name }) => [tag, name].some((one) => one?.toLowerCase() === part.toLowerCase()));
    const offersNew = this.takesNew() && !isThere;
    this.#show(offersNew ? [...found, { tag: part, name: null, isNew: true }] : found);
    if (!this.#found.length) {
      const none = document.createElement("li");
      none.className = "faint";
      none.setAttribute("role", "option");
      none.setAttribute("aria-disabled", "true");
      none.textContent = "No tag of the vocabulary contains this.";
      this.list.append(none);
    }
    this.list.hidden = false;
    this.list.scrollIntoView({ block: "nearest" });
    this.field.setAttribute("aria-expanded", "true");
  }

  #show(found) {
    this.#found = found;
    const options = found.map(({ tag, name, isNew }, place) => {
      const option = document.createElement("li");
      option.id = `found-${place}`;
      option.setAttribute("role", "option");
      const shown = document.createElement("bdi");
      shown.append(...breakable(name || tag));
      option.append(shown);
      const state = this.stateOf(tag) || (isNew ? "new tag, learnt by the next training" : "");
      const more = [name ? tag : "", state].filter(Boolean).join(" · ");
      if (more) {
        const small = document.createElement("small");
        small.append(...breakable(more));
        option.append(" ", small);
      }
      option.addEventListener("click", () => this.#choose(place));
      return option;
    });
    this.list.replaceChildren(...options);
    // A typo must not become a new tag by pressing Enter.
    this.#activate(found.length && !found[0].isNew ? 0 : -1);
  }

  #activate(place) {
    this.#active = place;
    [...this.list.children].forEach((option, other) => option.setAttribute("aria-selected", String(other === place)));
    if (place < 0) {
      this.field.removeAttribute("aria-activedescendant");
      return;
    }
    this.field.setAttribute("aria-activedescendant", `found-${place}`);
    this.list.children[place].scrollIntoView({ block: "nearest" });
  }

  #choose(place) {
    const chosen = this.#found[place];
    if (!chosen) return;
    this.field.value = "";
    this.close();
    this.onChoose(chosen);
  }

  #key(event) {
    const count = this.#found.length;
    if (event.key === "ArrowDown" && count) this.#activate((this.#active + 1) % count);
    else if (event.key === "ArrowUp" && count) this.#activate((Math.max(this.#active, 0) + count - 1) % count);
    else if (event.key === "Enter" && count) this.#choose(this.#active);
    else if (event.key === "Escape" && !this.list.hidden) {
      this.field.value = "";
      this.close();
    } else return;
    event.preventDefault();
  }
}
