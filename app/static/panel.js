/* A settings panel: reads and writes the text of its controls as one object, marks what is not neutral. */

const neutral = props.neutral;
const form = { ...(props.value || {}) };

function publish() {
  props.value = Object.fromEntries(Object.entries(form).filter(([field, text]) => text !== '' && text !== neutral[field]));
}

function rowOf(node) { return node.closest('[data-field]'); }

function inputs() { return [...element.querySelectorAll('[data-input]')]; }

function fieldOf(input) { return input.dataset.name || rowOf(input).dataset.field; }

function textOf(input) {
  return input.type === 'checkbox' ? (input.checked ? 'on' : '') : input.value;
}

function isChanged(field) {
  const text = form[field];
  if (text === undefined || text.trim() === '' && field !== 'stop' || text === '') return false;
  const usual = neutral[field];
  return text !== usual && !(usual !== '' && !isNaN(usual) && text.trim() !== '' && Number(text) === Number(usual));
}

function fill() {
  for (const input of inputs()) {
    const field = fieldOf(input);
    const text = form[field] ?? '';
    if (input.type === 'checkbox') input.checked = text === 'on';
    else if (input.tagName === 'SELECT') input.value = text || neutral[field];
    else if (document.activeElement !== input || input.value !== text) input.value = text;
  }
  const order = element.querySelector('[data-order]');
  if (order) {
    for (const stage of (form.order || neutral.order).split(' ')) {
      const item = order.querySelector(`[data-stage="${stage}"]`);
      if (item) order.append(item);
    }
  }
  mark();
}

function mark() {
  const changed = [];
  element.querySelectorAll('[data-field]').forEach((row) => {
    const field = row.dataset.field;
    const is = isChanged(field);
    row.classList.toggle('dl-changed', is);
    if (is) changed.push(field);
    const slider = row.querySelector('[data-slider]');
    if (slider) slider.value = form[field] && !isNaN(form[field]) ? form[field] : neutral[field];
  });
  inputs().filter((i) => i.dataset.name && !rowOf(i)).forEach((i) => {
    i.classList.toggle('dl-changed', i.dataset.name !== 'seed' && isChanged(i.dataset.name));
  });
  const words = element.querySelector('.dl-changes');
  if (words) {
    words.textContent = changed.length ? `${changed.length} changed` : 'all neutral';
    words.title = changed.join(', ');
    element.querySelector('[data-reset]').hidden = !changed.length;
  }
  element.querySelectorAll('.dl-group').forEach((group) => {
    const number = group.querySelectorAll('.dl-changed').length;
    group.querySelector('.dl-group-changes').textContent = number ? String(number) : '';
  });
  markPreset();
}

/* The preset whose texts the form has, if any. */
function markPreset() {
  const choice = element.querySelector('[data-preset]');
  if (!choice) return;
  const fields = [...element.querySelectorAll('[data-field]')].map((row) => row.dataset.field).filter(isChanged);
  const found = props.presets.find((preset) => Object.keys(preset.form).length === fields.length &&
    fields.every((field) => Number(preset.form[field]) === Number(form[field]) && preset.form[field] !== undefined));
  choice.value = found ? found.name : '';
  element.querySelector('#dl-preset-help').textContent = found ? found.help : '';
}

function set(field, text) {
  form[field] = text;
  mark();
  publish();
}

element.addEventListener('input', (event) => {
  const node = event.target;
  if (node.matches('[data-slider]')) {
    const field = rowOf(node).dataset.field;
    rowOf(node).querySelector('[data-input]').value = node.value === neutral[field] ? '' : node.value;
    set(field, node.value === neutral[field] ? '' : node.value);
  } else if (node.matches('[data-preset]')) {
    const preset = props.presets.find((p) => p.name === node.value);
    if (!preset) return;
    Object.keys(form).forEach((field) => { form[field] = ''; });
    Object.assign(form, preset.form);
    fill();
    publish();
  } else if (node.matches('[data-input]')) set(fieldOf(node), textOf(node));
});

element.addEventListener('click', (event) => {
  const node = event.target;
  if (node.matches('[data-neutral]')) { form[rowOf(node).dataset.field] = ''; fill(); publish(); }
  if (node.matches('[data-reset]')) {
    event.preventDefault();
    Object.keys(form).forEach((field) => { form[field] = ''; });
    fill();
    publish();
  }
  if (node.matches('[data-new-seed]')) { newSeed(); fill(); publish(); }
  if (node.matches('[data-up], [data-down]')) {
    const item = node.closest('li');
    const other = node.matches('[data-up]') ? item.previousElementSibling : item.nextElementSibling;
    if (!other) return;
    if (node.matches('[data-up]')) other.before(item); else other.after(item);
    set('order', [...item.parentElement.children].map((i) => i.dataset.stage).join(' '));
    node.focus();
  }
});

function newSeed() { form.seed = String(crypto.getRandomValues(new Uint32Array(1))[0]); }

/* A page that opens a link gets its seed from the server. One drawn here meanwhile could arrive after it and win. */
const isOpening = /[?&](run|experiment|from)=/.test(location.search) || startText() !== null;

function take() {
  Object.keys(form).forEach((field) => { delete form[field]; });
  Object.assign(form, props.value || {});
  if (props.draws_seed && !form.seed && !isOpening) { newSeed(); publish(); }
  fill();
}

/* The sentence about a refused value stands at the top of the page; the control that it names is marked. */
function markRefused() {
  const field = document.querySelector('#dl-alert [data-field]')?.dataset.field;
  for (const input of inputs()) {
    const isRefused = fieldOf(input) === field;
    input.setAttribute('aria-invalid', String(isRefused));
    if (isRefused) input.closest('details.dl-group')?.setAttribute('open', '');
  }
}

const alertPlace = document.getElementById('dl-alert');
if (alertPlace) new MutationObserver(markRefused).observe(alertPlace, { childList: true, subtree: true });

const sheet = element.querySelector('details.dl-panel');
if (sheet && window.innerWidth < 860) sheet.open = false;
watch('value', take);
take();
