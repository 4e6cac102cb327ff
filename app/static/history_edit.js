/* Choosing lines, and what is done with the chosen ones. */

const chosen = new Set();          // rows' keys: `run:ID` and `comparison:ID`
const UNDO_MS = 60_000;
let undoTimer = 0;

const rows = () => [...place.querySelectorAll('tbody tr[data-run], tbody tr[data-comparison]')];
const keyOf = (row) => (row.dataset.run ? `run:${row.dataset.run}` : `comparison:${row.dataset.comparison}`);
const idsOf = (kind) => [...chosen].filter((key) => key.startsWith(kind)).map((key) => key.slice(kind.length + 1));
const runRow = (id) => rows().find((row) => row.dataset.run === id);

function choose(row, isChosen) {
  if (isChosen) chosen.add(keyOf(row)); else chosen.delete(keyOf(row));
  markRows();
}

/* Show what is chosen, and give the keyboard one line to enter the table by. */
function markRows() {
  const all = rows();
  const there = new Set(all.map(keyOf));
  for (const key of chosen) if (!there.has(key)) chosen.delete(key);
  for (const row of all) {
    const isChosen = chosen.has(keyOf(row));
    row.classList.toggle('dl-is-chosen', isChosen);
    row.querySelector('.dl-pick input').checked = isChosen;
  }
  if (all.length && !all.some((row) => row.tabIndex === 0)) all[0].tabIndex = 0;
  const head = place.querySelector('[data-all]');
  if (head) {
    head.checked = all.length > 0 && chosen.size === all.length;
    head.indeterminate = chosen.size > 0 && chosen.size < all.length;
  }
  $('[data-none]').hidden = chosen.size > 0;
  $('[data-some]').hidden = chosen.size === 0;
  $('.dl-chosen').textContent = `${chosen.size} selected`;
  $('.dl-shown').textContent = all.length ? `${all.length}${next ? '+' : ''} line${all.length === 1 ? '' : 's'}` : '';
  showLinks();
}

function showLinks() {
  const runs = idsOf('run');
  const named = new URLSearchParams([...runs.map((id) => ['id', id]), ...idsOf('comparison').map((id) => ['comparison', id])]);
  const compare = $('[data-compare]');
  const from = new URLSearchParams(runs.map((id) => ['from', id]));
  if (runs.length > 1 && runs.length <= 64) compare.href = `./compare?${from}`; else compare.removeAttribute('href');
  compare.setAttribute('aria-disabled', String(!compare.hasAttribute('href')));
  compare.title = compare.hasAttribute('href') ? 'open them side by side' : 'select 2 to 64 runs';
  for (const link of $$('[data-export-chosen]')) link.href = `./api/export?format=${link.dataset.exportChosen}&${named}`;
  const filters = new URLSearchParams(NAMES.filter((name) => parameters[name]).map((name) => [name, parameters[name]]));
  for (const link of $$('[data-export]')) link.href = `./api/export?format=${link.dataset.export}&${filters}`;
}

/* Put new lines in the places of the old ones. */
function replace(lines) {
  for (const [id, html] of Object.entries(lines)) {
    const row = runRow(id);
    if (!row) continue;
    const isUnfolded = row.classList.contains('dl-of');
    const { tabIndex } = row;
    const hadFocus = row.contains(document.activeElement);
    const of = row.dataset.of;
    row.insertAdjacentHTML('afterend', html);
    const fresh = row.nextElementSibling;
    row.remove();
    fresh.classList.toggle('dl-of', isUnfolded);
    if (of) fresh.dataset.of = of;
    fresh.tabIndex = tabIndex;
    if (hadFocus) fresh.focus();
  }
  markRows();
}

async function star(runs, comparisons, isStarred) {
  const answer = await ask('star', { runs, comparisons, is_starred: isStarred });
  if (answer.failed) return;
  replace(answer.lines);
  for (const row of rows()) {
    if (answer.comparisons.includes(row.dataset.comparison)) starOf(row).ariaPressed = String(answer.is_starred);
  }
}

const starOf = (row) => row.querySelector('[data-star]');

function toggleStar(row) {
  const { run, comparison } = row.dataset;
  return star(run ? [run] : [], comparison ? [comparison] : [], starOf(row).ariaPressed !== 'true');
}

const actions = {
  star: () => star(idsOf('run'), idsOf('comparison'), true),
  unstar: () => star(idsOf('run'), idsOf('comparison'), false),
  delete: discard,
  none: () => { chosen.clear(); markRows(); },
};

async function discard() {
  const answer = await ask('discard', { runs: idsOf('run'), comparisons: idsOf('comparison') });
  if (answer.failed) return;
  chosen.clear();
  await list();
  offerUndo(answer);
}

/* In a place of its own: what is said meanwhile of something else leaves it there, and it leaves that. */
function offerUndo(answer) {
  const place = $('.dl-undo');
  clearTimeout(undoTimer);
  place.textContent = answer.said;
  undoTimer = setTimeout(() => place.replaceChildren(), UNDO_MS);
  if (!answer.runs.length) return;
  const button = document.createElement('button');
  button.type = 'button';
  button.className = 'dl-link';
  button.textContent = 'undo';
  button.addEventListener('click', async () => {
    const back = await ask('restore', { runs: answer.runs, comparisons: answer.comparisons });
    if (back.failed) return;
    await list();
    place.textContent = back.said;
  });
  place.append(' ', button);
}

$('.dl-tagging').addEventListener('submit', async (event) => {
  event.preventDefault();
  const input = event.target.elements.tag;
  const answer = await ask('tag', { runs: idsOf('run'), tag: input.value });
  if (answer.failed) return;
  input.value = '';
  say('');
  replace(answer.lines);
});
$('.dl-line').addEventListener('click', (event) => {
  const action = actions[event.target.dataset.do];
  if (action) action();
});

/* Title, note and tags are edited in a line under the run's own. */
function edit(row) {
  closeEditor();
  const { title, note, tags } = row.querySelector('[data-edit]').dataset;
  const line = document.createElement('tr');
  line.className = 'dl-editing';
  const field = (name, label, value) => `<label>${label}<input name="${name}" autocomplete="off"></label>`;
  line.innerHTML = `<td colspan="${row.cells.length}"><form>${field('title', 'title')}${field('note', 'note')}`
    + `${tags === undefined ? '' : field('tags', 'tags, with commas')}`
    + '<button class="dl-link">save</button><button type="button" class="dl-link" data-cancel>cancel</button></form></td>';
  row.after(line);
  const form = line.querySelector('form');
  form.elements.title.value = title;
  form.elements.note.value = note;
  if (tags !== undefined) form.elements.tags.value = tags;
  form.elements.title.focus();
  form.addEventListener('submit', (event) => { event.preventDefault(); save(row, form); });
  form.addEventListener('keydown', (event) => {
    if (event.key === 'Escape') { event.stopPropagation(); closeEditor(); row.focus(); }
  });
  form.querySelector('[data-cancel]').addEventListener('click', () => { closeEditor(); row.focus(); });
}

function closeEditor() {
  place.querySelector('.dl-editing')?.remove();
}

async function save(row, form) {
  const { title, note, tags } = form.elements;
  const question = { title: title.value, note: note.value, run: row.dataset.run, comparison: row.dataset.comparison };
  const answer = await ask('describe', { ...question, tags: tags ? tags.value : '' });
  if (answer.failed) return;
  say('');
  const isStillOpen = form.isConnected; // else the person is at another line by now
  if (isStillOpen) closeEditor();
  if (answer.lines) {
    replace(answer.lines);
    if (isStillOpen) runRow(row.dataset.run)?.focus();
  } else await list();
}
