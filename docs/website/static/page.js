// Makes the tables of the catalogue sortable by their headings, adds a field that finds rows, lets long names
// continue on the next line, and lets the keyboard reach what scrolls.
"use strict";

const value = (row, column) => {
  const cell = row.cells[column];
  return cell.dataset.order === undefined ? cell.textContent : Number(cell.dataset.order);
};

const compare = (one, other) => {
  if (one === "" || other === "") return (one === "") - (other === ""); // no figure: last
  return typeof one === "number" ? other - one : one.localeCompare(other, "en", { numeric: true });
};

const sort = (table, column, heading) => {
  const again = heading.hasAttribute("aria-sort") && heading.dataset.turned !== "yes";
  table.querySelectorAll("th").forEach((one) => one.removeAttribute("aria-sort"));
  const body = table.tBodies[0];
  const rows = [...body.rows].sort((one, other) => {
    const order = compare(value(one, column), value(other, column));
    const empty = value(one, column) === "" || value(other, column) === "";
    return again && !empty ? -order : order;
  });
  body.append(...rows);
  const falls = (typeof value(rows[0], column) === "number") !== again;
  heading.setAttribute("aria-sort", falls ? "descending" : "ascending");
  heading.dataset.turned = again ? "yes" : "";
};

const search = (table) => {
  const field = document.createElement("input");
  field.type = "search";
  field.placeholder = "Find: a100, laptop, 8.9 …";
  field.setAttribute("aria-label", "Show the rows that contain");
  field.className = "fg-search";
  field.addEventListener("input", () => {
    const words = field.value.toLowerCase().split(/\s+/);
    for (const row of table.tBodies[0].rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
    }
  });
  table.parentElement.before(field);
};

// A path or a Python name may break after "/", "_" and ".", but not before ".py" or in a number: else its column takes the
// others' width.
const breakNames = (cell) => {
  const texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
  const nodes = [];
  while (texts.nextNode()) nodes.push(texts.currentNode);
  for (const node of nodes) {
    const parts = node.data.split(/(?<=\w[/_])(?=[A-Za-z_]\w)|(?<=\w\.)(?=[A-Za-z_]\w{4})/);
    node.replaceWith(...parts.flatMap((part, index) => (index ? [document.createElement("wbr"), part] : [part])));
  }
};

document.addEventListener("DOMContentLoaded", () => {
  const named = ".table-wrapper :is(td, th), :is(.genindextable, .domainindex-table) a, .sig-prename";
  document.querySelectorAll(named).forEach(breakNames);
  document.querySelectorAll("p.caption[role=heading]").forEach((one) => one.setAttribute("aria-level", "2"));
  for (const one of document.querySelectorAll("pre, .table-wrapper, .fg-scrolls")) {
    if (one.scrollWidth > one.clientWidth) one.tabIndex = 0;
  }
  for (const table of document.querySelectorAll(".fg-sortable")) {
    table.querySelectorAll("th").forEach((heading, column) => {
      const button = document.createElement("button");
      button.append(...heading.childNodes);
      button.addEventListener("click", () => sort(table, column, heading));
      heading.append(button);
    });
    if (table.tBodies[0].rows.length > 20) search(table);
  }
});
