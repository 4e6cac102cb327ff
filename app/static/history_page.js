/* The pointer and the keys in the table, unfolding, the import, and the page's beginning. */

place.addEventListener('click', (event) => {
  const node = event.target;
  const sort = node.closest('[data-sort]');
  if (sort) return sortBy(sort.dataset.sort);
  if (node.matches('[data-all]')) {
    for (const row of rows()) if (node.checked) chosen.add(keyOf(row)); else chosen.delete(keyOf(row));
    return markRows();
  }
  const row = node.closest('tr[data-run], tr[data-comparison]');
  if (!row) return;
  if (node.closest('.dl-pick')) {
    const box = row.querySelector('.dl-pick input');
    return choose(row, node === box ? box.checked : !box.checked);
  }
  if (node.closest('[data-star]')) return toggleStar(row);
  if (node.closest('[data-unfold]')) return fold(row);
  if (node.closest('[data-edit]')) return edit(row);
  if (node.closest('[data-tag]')) return change({ tag: node.closest('[data-tag]').dataset.tag });
  if (!node.closest('a, button, input') && getSelection().isCollapsed) open(row);
});

function open(row) {
  row.querySelector('.dl-start a').click();
}

const isUnfolded = (row) => row.querySelector('[data-unfold]')?.ariaExpanded === 'true';

async function fold(row) {
  const button = row.querySelector('[data-unfold]');
  const id = row.dataset.comparison;
  if (isUnfolded(row)) {
    for (const arm of rows()) if (arm.dataset.of === id) arm.remove();
    button.ariaExpanded = 'false';
    return markRows();
  }
  const answer = await ask('list_arms', { comparison: id });
  if (answer.failed || isUnfolded(row)) return;
  row.insertAdjacentHTML('afterend', answer.html);
  for (let arm = row.nextElementSibling; arm && arm.matches('.dl-of:not([data-of])'); arm = arm.nextElementSibling) {
    arm.dataset.of = id;
  }
  button.ariaExpanded = 'true';
  markRows();
}

function focusRow(row) {
  if (!row) return;
  for (const other of rows()) other.tabIndex = -1;
  row.tabIndex = 0;
  row.focus();
  row.scrollIntoView({ block: 'nearest' });
}

const keys = {
  ArrowDown: (row, all) => focusRow(all[all.indexOf(row) + 1]),
  ArrowUp: (row, all) => focusRow(all[all.indexOf(row) - 1]),
  Home: (row, all) => focusRow(all[0]),
  End: (row, all) => focusRow(all[all.length - 1]),
  Enter: (row) => open(row),
  x: (row) => choose(row, !chosen.has(keyOf(row))),
  s: (row) => toggleStar(row),
  e: (row) => edit(row),
  ArrowRight: (row) => row.dataset.comparison && !isUnfolded(row) && fold(row),
  ArrowLeft: (row) => row.dataset.comparison && isUnfolded(row) && fold(row),
};

place.addEventListener('keydown', (event) => {
  const row = event.target.closest('tr[data-run], tr[data-comparison]');
  if (!row || event.target !== row || event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
  event.preventDefault();
  keys[event.key](row, rows());
});
document.addEventListener('keydown', (event) => {
  if (event.key !== '/' || !element.isConnected || event.target.closest('input, textarea, select')) return;
  event.preventDefault();
  search.focus();
});

/* A file is read by the server as a stream, twice: first for the preview, then, when that is agreed to, to be added. */
async function send(file, isPreview) {
  try {
    const answer = await fetch(`./api/import?preview=${isPreview}`, {
      method: 'POST', body: file, headers: { 'content-type': 'application/x-ndjson' },
    });
    const found = await answer.json();
    if (!found.error) return found;
    say(found.error.message, 'bad');
  } catch (error) {
    say(`${file.name} could not be sent. Try again.`, 'bad');
  }
  return null;
}

const runsOf = (number) => `${number} run${number === 1 ? '' : 's'}`;

function told(found, verb) {
  const parts = [`${runsOf(found.new)} ${verb}`];
  if (found.here) parts.push(`${found.here} here already`);
  if (found.refused) parts.push(`${found.refused} refused (${found.reasons.slice(0, 3).join('; ')})`);
  if (found.orphans) parts.push(`${found.orphans} branched from a run that is not here`);
  return parts.join(', ');
}

$('[data-import]').addEventListener('change', async (event) => {
  const [file] = event.target.files;
  if (!file) return;
  say(`Reading ${file.name} …`);
  const found = await send(file, true);
  event.target.value = '';
  if (!found) return;
  const begins = found.first_prompts.length ? ` First: ${found.first_prompts.map((p) => `“${p}”`).join(', ')}.` : '';
  say(`${file.name}: ${told(found, 'would be added')}.${begins}`, found.refused ? 'bad' : '');
  if (!found.new) return;
  const button = (text, act) => {
    const made = document.createElement('button');
    made.type = 'button';
    made.className = 'dl-link';
    made.textContent = text;
    made.addEventListener('click', act);
    $('.dl-notice').append(' ', made);
    return made;
  };
  button(`add ${runsOf(found.new)}`, async () => {
    say(`Adding ${file.name} …`);
    const added = await send(file, false);
    if (!added) return;
    await list();
    say(`${file.name}: ${told(added, 'added')}.`);
  }).focus();
  button('cancel', () => say(''));
});

readAddress();
list();
