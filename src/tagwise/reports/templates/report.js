"use strict";
(() => {
  const table = document.getElementById("tag-table");
  if (table) {
    const body = table.tBodies[0];
    const rows = Array.from(body.rows);
    const search = document.getElementById("tag-search");
    const group = document.getElementById("tag-group");
    const count = document.getElementById("tag-count");
    const content = new Map(
      rows.map((row) => [row, (row.cells[0].textContent + " " + row.cells[7].textContent).toLowerCase()])
    );
    const filter = () => {
      const wanted = search.value.trim().toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      for (const row of rows) {
        const fits =
          (group.value === "" || row.dataset.g === group.value) &&
          wanted.every((part) => content.get(row).includes(part));
        row.hidden = !fits;
        shown += fits;
      }
      count.textContent =
        shown === rows.length
          ? rows.length.toLocaleString("en") + " tags"
          : shown.toLocaleString("en") + " of " + rows.length.toLocaleString("en") + " tags";
    };
    search.addEventListener("input", filter);
    group.addEventListener("change", filter);
    const heads = Array.from(table.tHead.rows[0].cells);
    heads.forEach((head, column) => {
      const button = head.querySelector("button");
      if (!button) return;
      button.addEventListener("click", () => {
        const text = button.dataset.sort === "text";
        const before = head.getAttribute("aria-sort");
        const rising = before ? before === "descending" : text;
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", rising ? "ascending" : "descending");
        const value = text
          ? (row) => row.cells[column].textContent
          : (row) => Number(row.cells[column].dataset.v);
        const order = text ? (a, b) => a.localeCompare(b) : (a, b) => a - b;
        rows.sort((a, b) => (rising ? 1 : -1) * order(value(a), value(b)));
        body.append(...rows);
      });
    });
    filter();
  }
  for (const example of document.querySelectorAll(".example")) {
    const words = Array.from(example.querySelectorAll(".body .w"));
    const buttons = Array.from(example.querySelectorAll("button[data-shares]"));
    for (const button of buttons) {
      button.addEventListener("click", () => {
        buttons.forEach((other) => other.setAttribute("aria-pressed", String(other === button)));
        const shares = button.dataset.shares.split(" ").map(Number);
        for (const word of words) {
          const share = shares[Number(word.dataset.w)];
          if (!(Math.abs(share) >= 0.005)) {
            delete word.dataset.sign;
            word.removeAttribute("style");
            word.removeAttribute("title");
            continue;
          }
          word.dataset.sign = share > 0 ? "for" : "against";
          word.style.setProperty("--s", Math.min(1, Math.sqrt(Math.abs(share))).toFixed(2));
          word.title = (share > 0 ? "+" : "") + (100 * share).toFixed(1) + " %";
        }
      });
    }
  }
})();
