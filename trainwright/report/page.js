// Search and order of tables; the page can be read without it.
for (const field of document.querySelectorAll("[data-search]")) {
  const table = document.getElementById(field.dataset.search);
  const rows = [...table.tBodies[0].rows].map((row) => [row, row.textContent.toLowerCase()]);
  const count = document.querySelector(`[data-count="${field.dataset.search}"]`);
  const show = () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const [row, text] of rows) {
      row.hidden = !words.every((word) => text.includes(word));
      shown += !row.hidden;
    }
    count.textContent = shown === rows.length ? `${rows.length} packages` : `${shown} of ${rows.length}`;
  };
  field.addEventListener("input", show);
  field.parentElement.hidden = false;
  show();
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    head.className += " sortable";
    head.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const value = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent;
      const sorted = rows.map(([row]) => row).sort((a, b) => value(a).localeCompare(value(b), "en", { numeric: true }));
      table.tBodies[0].append(...(down ? sorted.reverse() : sorted));
    });
  });
}
