// The text: a field to write in, and behind it a copy of the text whose words are highlighted.

const SHARES_ABOVE = 0.01;
const BLOCK = 2000; // characters of a block, and up to the end of its last line
const LONGEST = 100000; // characters of a block that is lit: a browser needs seconds to lay out a line of a million

export class TextSheet {
  #blocks = []; // of whole lines, each an element: what changes in one of a long text is laid out without the others
  #lit = new Set(); // blocks with words that are lit

  /** `onChange(text)` is called when the user changes the text. */
  constructor(onChange) {
    this.field = document.getElementById("text");
    this.behind = document.getElementById("behind");
    this.sheet = document.getElementById("sheet");
    this.field.addEventListener("input", () => {
      this.#show();
      onChange(this.text);
    });
    this.#show();
  }

  get text() {
    return this.field.value;
  }

  set text(text) {
    this.field.value = text;
    this.sheet.scrollTop = 0;
    this.#show();
  }

  /** Whether there are lines too long to light up. */
  get staysDark() {
    return this.#blocks.some((block) => block.text.length > LONGEST);
  }

  /** Texts of the queue are read, not written. */
  set fixed(fixed) {
    this.field.readOnly = fixed;
  }

  /** Light up words, each with its share, at their places: starts and ends in characters. None: no light. */
  light(words, places) {
    const pieces = words.length ? litPieces(this.text, words, places) : [];
    const before = this.#lit;
    this.#lit = new Set();
    let place = 0;
    for (const block of this.#blocks) {
      const inside = [];
      while (place < pieces.length && pieces[place].start < block.start + block.text.length) {
        inside.push(pieces[place]);
        place += 1;
      }
      if (inside.length && block.text.length <= LONGEST) {
        fill(block, inside);
        this.#lit.add(block);
      } else if (before.has(block)) fill(block, []);
    }
    const first = this.behind.querySelector(".w");
    if (!first || this.sheet.scrollHeight <= this.sheet.clientHeight) return;
    const top = first.offsetTop - this.sheet.scrollTop;
    if (top < 0 || top > this.sheet.clientHeight - 40) this.sheet.scrollTop = first.offsetTop - 40;
  }

  /** Show the text behind the field, without lights; blocks that have not changed stay. */
  #show() {
    for (const block of this.#lit) fill(block, []);
    this.#lit.clear();
    const old = this.#blocks;
    const texts = blocksOf(this.text);
    let same = 0;
    while (same < old.length && same < texts.length && old[same].text === texts[same]) same += 1;
    let end = 0;
    while (end < Math.min(old.length, texts.length) - same && old.at(-1 - end).text === texts.at(-1 - end)) end += 1;
    const news = texts.slice(same, texts.length - end).map((text) => {
      const block = { text, start: 0, element: document.createElement("div") };
      fill(block, []);
      return block;
    });
    for (const block of old.slice(same, old.length - end)) block.element.remove();
    const next = old[old.length - end]?.element ?? null;
    for (const { element } of news) this.behind.insertBefore(element, next);
    this.#blocks = [...old.slice(0, same), ...news, ...old.slice(old.length - end)];
    let start = 0;
    for (const block of this.#blocks) {
      block.start = start;
      start += block.text.length + 1; // and the end of its last line
    }
  }
}

/** Put the text of a block into its element, with pieces of it lit. */
function fill({ text, start, element }, pieces) {
  const parts = [];
  let from = 0;
  pieces.forEach((piece, place) => {
    const [first, last] = [piece.start - start, Math.min(piece.end - start, text.length)];
    const word = document.createElement("span");
    word.className = "w";
    word.classList.toggle("on", pieces[place - 1]?.end === piece.start); // parts of one word look like one
    word.classList.toggle("off", pieces[place + 1]?.start === piece.end);
    word.dataset.sign = piece.share > 0 ? "for" : "against";
    word.style.setProperty("--s", Math.min(1, Math.sqrt(Math.abs(piece.share))).toFixed(2));
    word.textContent = text.slice(first, last);
    parts.push(text.slice(from, first), word);
    from = last;
  });
  // What ends it keeps the height of an empty last line.
  element.replaceChildren(...parts, text.slice(from), "\u200b");
}

/** The text in blocks of whole lines; joined by line feeds, they are the text again. */
function blocksOf(text) {
  const blocks = [];
  let start = 0;
  for (;;) {
    const end = text.indexOf("\n", start + BLOCK);
    if (end < 0) return [...blocks, text.slice(start)];
    blocks.push(text.slice(start, end));
    start = end + 1;
  }
}

/** Where the text is lit, in order: starts, ends, and the sum of the shares that lie there. */
function litPieces(text, words, places) {
  const unit = unitsOf(text);
  const changes = new Map();
  const change = (place, share) => changes.set(place, (changes.get(place) ?? 0) + share);
  for (const { word, share } of words) {
    for (const [start, end] of places.get(word) ?? []) {
      change(unit(start), share);
      change(unit(end), -share);
    }
  }
  const borders = [...changes.keys()].sort((a, b) => a - b);
  const pieces = [];
  let share = 0;
  borders.forEach((start, place) => {
    share += changes.get(start);
    if (Math.abs(share) >= SHARES_ABOVE) pieces.push({ start, end: borders[place + 1], share });
  });
  return pieces;
}

/** From places in characters, as the server counts, to those in JavaScript's strings, where some characters are two. */
function unitsOf(text) {
  if (!/[\ud800-\udbff][\udc00-\udfff]/.test(text)) return (place) => place;
  const units = [0];
  for (const character of text) units.push(units.at(-1) + character.length);
  return (place) => units[Math.min(place, units.length - 1)];
}
