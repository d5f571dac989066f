// On a phone, each cell of a wide table is a line of its own: it says of which column.
for (const table of document.querySelectorAll(".md-typeset table:not([class])")) {
  const heads = [...table.querySelectorAll("thead th")].map(each => each.textContent.trim());
  for (const row of table.querySelectorAll("tbody tr"))
    [...row.cells].forEach((cell, at) => { if (at && heads[at]) cell.dataset.head = heads[at]; });
}
