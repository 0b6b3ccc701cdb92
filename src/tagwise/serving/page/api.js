// Requests to the server that this page comes from. The key, where one is needed, lives as long as the tab.

const KEY = "tagwise-key";

export class Problem extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export class Api {
  #askForKey;
  #asking = null;
  #key = "";

  /** `askForKey(sentence)` gives a promise of a key; the sentence says what was wrong with the last one. */
  constructor(askForKey) {
    this.#askForKey = askForKey;
    try {
      this.#key = sessionStorage.getItem(KEY) ?? "";
    } catch {
      // No storage in this browser: the key is asked for after every reload.
    }
  }

  get(path, signal) {
    return this.#call(path, { signal });
  }

  post(path, body, signal) {
    const headers = { "Content-Type": "application/json" };
    return this.#call(path, { method: "POST", headers, body: JSON.stringify(body), signal });
  }

  async #call(path, options) {
    for (;;) {
      const key = this.#key;
      const headers = { ...options.headers, ...(key && { Authorization: `Bearer ${key}` }) };
      let response;
      try {
        response = await fetch(new URL(path, document.baseURI), { ...options, headers, cache: "no-store" });
      } catch (error) {
        if (error.name === "AbortError") throw error;
        throw new Problem(0, "The server does not answer. Is it running?");
      }
      if (response.status === 401) {
        await this.#newKey(key);
        continue;
      }
      if (response.status === 204) return null;
      const body = await response.json().catch(() => ({}));
      if (!response.ok) throw new Problem(response.status, body.detail ?? `The server answers with status ${response.status}.`);
      return body;
    }
  }

  /** Asks once for all requests that wait for a key. */
  async #newKey(refused) {
    if (this.#key !== refused) return; // another request has asked meanwhile
    this.#asking ??= this.#askForKey(refused ? "This key is wrong." : "").finally(() => (this.#asking = null));
    this.#key = await this.#asking;
    try {
      sessionStorage.setItem(KEY, this.#key);
    } catch {
      // Storage is unavailable: the key lives as long as the page.
    }
  }
}

/** The path of something of a tagger. */
export const pathOf = (tagger, what) => `v1/taggers/${encodeURIComponent(tagger)}/${what}`;
