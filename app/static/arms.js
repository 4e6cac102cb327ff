/* The form of a comparison: a column of controls for each arm, or arm A and a sweep; seeds; noise. The value is
   {arms: [form, ...], sweep: [[field, values], ...], seeds, noise}. */

const neutral = props.neutral;
const maxArms = props.max_arms;
const sweepRows = [...element.querySelectorAll('[data-sweep]')];
const seeds = element.querySelector('[data-seeds]');
const shared = element.querySelector('[data-shared]');
let arms = [];

/* A to Z, then AA, AB, ..., as the server names them. */
function armName(index) {
  const letter = String.fromCharCode(65 + index % 26);
  return index < 26 ? letter : armName(Math.floor(index / 26) - 1) + letter;
}

function rows() { return element.querySelectorAll('tr[data-field]'); }

function isSweep() { return !sweepRows[0].hidden; }

function shownArms() { return isSweep() ? 1 : arms.length; }

/* Columns are copies of the first; one that is left over is taken away. */
function ensureColumns() {
  const number = shownArms();
  element.querySelectorAll('[data-arm]').forEach((cell) => { if (Number(cell.dataset.arm) >= number) cell.remove(); });
  const places = [element.querySelector('thead tr'), ...rows()];
  for (const row of places) {
    for (let i = row.querySelectorAll('[data-arm]').length; i < number; i++) {
      const cell = row.querySelector('[data-arm="0"]').cloneNode(true);
      cell.dataset.arm = i;
      const input = cell.querySelector('[data-input]');
      if (input) input.setAttribute('aria-label', `${row.dataset.field} of arm ${armName(i)}`);
      row.append(cell);
    }
  }
  element.querySelectorAll('[data-toggle]').forEach((cell) => { cell.colSpan = number + 1; });
}

function fill() {
  ensureColumns();
  rows().forEach((row) => {
    const field = row.dataset.field;
    arms.slice(0, shownArms()).forEach((arm, i) => {
      const input = row.querySelector(`td[data-arm="${i}"] [data-input]`);
      const text = arm[field] ?? '';
      if (input.type === 'checkbox') input.checked = text === 'on';
      else if (input.tagName === 'SELECT') input.value = text || neutral[field];
      else if (input.value !== text) input.value = text;
    });
  });
  mark();
}

function mark() {
  const number = shownArms();
  const swept = isSweep() ? sweeps().map(([field]) => field) : [];
  rows().forEach((row) => {
    const field = row.dataset.field;
    const base = arms[0][field] || neutral[field];
    arms.slice(0, number).forEach((arm, i) => {
      const cell = row.querySelector(`td[data-arm="${i}"]`);
      cell.classList.toggle('dl-differs', i > 0 && (arm[field] || neutral[field]) !== base);
      cell.classList.toggle('dl-set', Boolean(arm[field]) && arm[field] !== neutral[field]);
      cell.querySelector('[data-input]').disabled = swept.includes(field);
    });
  });
  element.querySelectorAll('tbody.dl-folded').forEach((body) => {
    body.querySelector('[data-more]').dataset.count = body.querySelectorAll('td.dl-set').length || '';
  });
  element.querySelectorAll('thead [data-arm]').forEach((head) => {
    const i = Number(head.dataset.arm);
    head.querySelector('b').textContent = isSweep() ? 'every arm' : armName(i);
    const button = head.querySelector('[data-remove-arm]');
    button.hidden = number <= 2;
    button.setAttribute('aria-label', `remove arm ${armName(i)}`);
  });
  element.querySelector('[data-hint]').textContent =
    isSweep() ? 'each value is an arm, the first the baseline' : 'a value that differs from A is marked';
  element.querySelectorAll('[data-add-arm], [data-add-preset]').forEach((node) => {
    node.hidden = isSweep() || arms.length >= maxArms;
  });
  element.querySelector('.dl-panel-head [data-add-sweep]').hidden = isSweep();
  element.querySelector('.dl-sweep [data-add-sweep]').hidden = !sweepRows[1].hidden;
  element.querySelectorAll('[data-when]').forEach((words) => { words.hidden = words.dataset.when !== noise(); });
}

function noise() { return shared.checked ? '' : 'own'; }

function sweeps() {
  return sweepRows.filter((row) => !row.hidden).map((row) => [
    row.querySelector('[data-sweep-field]').value, row.querySelector('[data-sweep-values]').value]);
}

function publish() {
  const forms = arms.map((arm) => Object.fromEntries(
    Object.entries(arm).filter(([field, text]) => text !== '' && text !== neutral[field])));
  props.value = { arms: isSweep() ? forms.slice(0, 1) : forms, sweep: sweeps(), seeds: seeds.value, noise: noise() };
}

function take() {
  const value = props.value || {};
  arms = (value.arms || []).map((arm) => ({ ...arm }));
  while (arms.length < (isSweepIn(value) ? 1 : 2)) arms.push({});
  sweepRows.forEach((row, i) => {
    const [field, values] = (value.sweep || [])[i] || [];
    row.hidden = !field;
    row.querySelector('[data-sweep-field]').value = field || ['temperature', 'top_p'][i];
    row.querySelector('[data-sweep-values]').value = values || '';
  });
  seeds.value = value.seeds && value.seeds !== '1' ? value.seeds : '';
  shared.checked = value.noise !== 'own';
  fill();
}

function isSweepIn(value) { return Boolean(value.sweep && value.sweep.length); }

element.addEventListener('input', (event) => {
  const input = event.target;
  if (input.matches('[data-input]')) {
    const index = Number(input.closest('[data-arm]').dataset.arm);
    arms[index][input.closest('[data-field]').dataset.field] =
      input.type === 'checkbox' ? (input.checked ? 'on' : '') : input.value;
  }
  mark();
  publish();
});

element.addEventListener('click', (event) => {
  const node = event.target;
  if (node.matches('[data-more]')) {
    node.setAttribute('aria-expanded', String(node.closest('tbody').classList.toggle('dl-open')));
  }
  if (node.matches('[data-add-arm]')) arms.push({ ...arms[arms.length - 1] });
  else if (node.matches('[data-remove-arm]')) arms.splice(Number(node.closest('[data-arm]').dataset.arm), 1);
  else if (node.matches('[data-add-sweep]')) openSweep(sweepRows.find((row) => row.hidden));
  else if (node.matches('[data-remove-sweep]')) closeSweep(node.closest('[data-sweep]'));
  else return;
  fill();
  publish();
});

/* An arm that starts from a preset; a mark beside its values says where it differs from A. */
element.querySelector('[data-add-preset]').addEventListener('change', ({ target }) => {
  const preset = props.presets.find(({ name }) => name === target.value);
  target.value = '';
  if (!preset) return;
  arms.push({ ...preset.form });
  fill();
  publish();
});

function openSweep(row) {
  row.hidden = false;
  row.querySelector('[data-sweep-values]').focus();
}

/* The second row takes the place of the first. */
function closeSweep(row) {
  if (row === sweepRows[0] && !sweepRows[1].hidden) {
    for (const part of ['[data-sweep-field]', '[data-sweep-values]']) {
      row.querySelector(part).value = sweepRows[1].querySelector(part).value;
    }
    row = sweepRows[1];
  }
  row.hidden = true;
  row.querySelector('[data-sweep-values]').value = '';
  while (arms.length < 2) arms.push({ ...arms[0] });
}

watch('value', take);
take();
