// Tables that can be sorted, filtered and copied. Without this script the page says the same.
"use strict";
(() => {
  const LONG = 8; // rows from which a filter helps
  const own = (cell) => {
    const copy = cell.cloneNode(true);
    copy.querySelectorAll(".sub, title").forEach((part) => part.remove());
    copy.querySelectorAll("br").forEach((part) => part.replaceWith(" "));
    return copy.textContent.replace(/\s+/g, " ").trim();
  };
  const rest = (cell) =>
    [...cell.querySelectorAll(".sub")].map((part) => part.textContent.trim()).join("; ");
  const number = (text) => {
    const found = text.replace(/,/g, "").match(/^-?\d+(\.\d+)?/);
    return found ? Number(found[0]) : null;
  };
  const field = (text) => (/[",\n]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text);

  // What is shown, a column for each column and one more where cells have small print.
  const csv = (table) => {
    const heads = [...table.tHead.rows[0].cells].map(own);
    const rows = [...table.querySelectorAll("tbody tr")].filter((row) => !row.hidden);
    const more = heads.map((_, i) => rows.some((row) => row.cells[i] && rest(row.cells[i])));
    const line = (texts) => texts.map(field).join(",");
    const wide = (values, extra) => values.flatMap((v, i) => (more[i] ? [v, extra(i)] : [v]));
    const body = rows.map((row) => {
      const cells = [...row.cells];
      return line(wide(cells.map(own), (i) => rest(cells[i])));
    });
    return [line(wide(heads, (i) => `${heads[i]}, more`)), ...body].join("\r\n") + "\r\n";
  };

  const copy = async (text) => {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const area = document.createElement("textarea");
      area.value = text;
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
  };

  const sort = (table, column, down) => {
    const rows = [...table.querySelectorAll("tbody tr")];
    const keyed = rows.map((row, at) => {
      const text = row.cells[column] ? own(row.cells[column]) : "";
      return { row, at, text, value: number(text) };
    });
    const numeric = keyed.some((k) => k.value !== null);
    keyed.sort((a, b) => {
      const missing = (k) => (numeric ? k.value === null : !k.text || k.text === "–");
      if (missing(a) !== missing(b)) return missing(a) ? 1 : -1; // what is missing stays last
      const order = numeric ? a.value - b.value : a.text.localeCompare(b.text);
      return (down ? -order : order) || a.at - b.at;
    });
    const body = table.tBodies[0];
    keyed.forEach(({ row }) => body.append(row));
    [...table.tBodies].slice(1).forEach((empty) => empty.remove());
    table.classList.add("sorted");
  };

  const button = (text, act) => {
    const made = document.createElement("button");
    made.type = "button";
    made.textContent = text;
    made.addEventListener("click", () => act(made));
    return made;
  };

  const headings = (table) => {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const press = button("", () => {
        const down = head.getAttribute("aria-sort") === "ascending";
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        sort(table, column, down);
      });
      press.append(...head.childNodes);
      press.className = "sort";
      head.append(press);
    });
  };

  const tools = (table, name) => {
    const bar = document.createElement("div");
    bar.className = "tools";
    const rows = [...table.querySelectorAll("tbody tr")];
    if (rows.length >= LONG) {
      const label = document.createElement("label");
      const box = document.createElement("input");
      const told = document.createElement("output");
      box.type = "search";
      box.placeholder = "Filter rows";
      box.setAttribute("aria-label", `Filter rows of ${name}`);
      box.addEventListener("input", () => {
        const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
        rows.forEach((row) => {
          const text = row.textContent.toLowerCase();
          row.hidden = !words.every((word) => text.includes(word));
        });
        const shown = rows.filter((row) => !row.hidden).length;
        told.textContent = words.length ? `${shown} of ${rows.length}` : "";
      });
      label.append(box, told);
      bar.append(label);
    }
    bar.append(
      button("Copy as CSV", async (press) => {
        await copy(csv(table));
        press.textContent = "Copied";
        setTimeout(() => (press.textContent = "Copy as CSV"), 1500);
      }),
    );
    table.closest(".wide").before(bar);
  };

  document.querySelectorAll(".wide > table").forEach((table) => {
    if (!table.tHead) return;
    const near = table.closest("details")?.querySelector("summary") ??
      table.closest("section")?.querySelector("h2");
    headings(table);
    tools(table, near ? near.textContent.trim() : "this table");
  });
})();
