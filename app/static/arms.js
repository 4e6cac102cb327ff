/* The arms of a comparison: a column of controls each; the value is the list of their forms. */

const neutral = props.neutral;
let arms = (props.value || []).map((arm) => ({ ...arm }));

function cellInput(row, index) { return row.querySelector(`td[data-arm="${index}"] [data-input]`); }

function fill() {
  element.querySelectorAll('tr[data-field]').forEach((row) => {
    const field = row.dataset.field;
    arms.forEach((arm, i) => {
      const input = cellInput(row, i);
      const text = arm[field] ?? '';
      if (input.type === 'checkbox') input.checked = text === 'on';
      else if (input.tagName === 'SELECT') input.value = text || neutral[field];
      else if (input.value !== text) input.value = text;
    });
  });
  mark();
}

function mark() {
  element.querySelectorAll('[data-arm]').forEach((cell) => { cell.hidden = Number(cell.dataset.arm) >= arms.length; });
  element.querySelectorAll('tr[data-field]').forEach((row) => {
    const field = row.dataset.field;
    const base = arms[0][field] || neutral[field];
    arms.forEach((arm, i) => {
      const cell = row.querySelector(`td[data-arm="${i}"]`);
      cell.classList.toggle('dl-differs', i > 0 && (arm[field] || neutral[field]) !== base);
      cell.classList.toggle('dl-set', Boolean(arm[field]) && arm[field] !== neutral[field]);
    });
  });
  element.querySelectorAll('tbody.dl-folded').forEach((body) => {
    const number = body.querySelectorAll('td.dl-set:not([hidden])').length;
    body.querySelector('[data-more]').dataset.count = number || '';
  });
  element.querySelector('[data-add-arm]').hidden = arms.length >= 4;
  element.querySelectorAll('[data-remove-arm]').forEach((button) => { button.hidden = arms.length <= 2; });
}

function publish() {
  props.value = arms.map((arm) => Object.fromEntries(
    Object.entries(arm).filter(([field, text]) => text !== '' && text !== neutral[field])));
}

element.addEventListener('input', (event) => {
  const input = event.target;
  if (!input.matches('[data-input]')) return;
  const index = Number(input.closest('[data-arm]').dataset.arm);
  arms[index][input.closest('[data-field]').dataset.field] =
    input.type === 'checkbox' ? (input.checked ? 'on' : '') : input.value;
  mark();
  publish();
});

element.addEventListener('click', (event) => {
  const node = event.target;
  if (node.matches('[data-add-arm]')) { arms.push({ ...arms[arms.length - 1] }); fill(); publish(); }
  if (node.matches('[data-remove-arm]')) { arms.splice(Number(node.closest('[data-arm]').dataset.arm), 1); fill(); publish(); }
  if (node.matches('[data-more]')) node.closest('tbody').classList.toggle('dl-open');
});

watch('value', () => { arms = (props.value || []).map((arm) => ({ ...arm })); fill(); });
fill();
