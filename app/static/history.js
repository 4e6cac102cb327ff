/* The table of runs. Its rows are HTML that the server has made and escaped; what a person typed enters as a value.
   The state of the page is its address: `parameters` are what stands there, and every list is asked for with them. */

const $ = (selector) => element.querySelector(selector);
const $$ = (selector) => [...element.querySelectorAll(selector)];
const place = $('.dl-place');
const moreButton = $('[data-more]');
const search = $('input[name=q]');
const panel = $('.dl-all-filters');
const NAMES = [search, ...panel.querySelectorAll('[name]')].map((input) => input.name);
const TYPING_MS = 250;
const AGAIN_MS = 5000;

let parameters = {};
let next = null;
let asked = 0;          // of several lists under way only the last one asked for is shown
let again = 0;
let typing = 0;

function readAddress() {
  const query = new URLSearchParams(window.location.search);
  parameters = {};
  for (const name of [...NAMES, 'sort', 'order']) if (query.get(name)) parameters[name] = query.get(name);
  showInputs({ withFocused: true });
}

function writeAddress(isNewPlace) {
  const here = new URL(window.location.href);
  for (const name of [...NAMES, 'sort', 'order']) {
    if (parameters[name]) here.searchParams.set(name, parameters[name]); else here.searchParams.delete(name);
  }
  if (here.href !== window.location.href) window.history[isNewPlace ? 'pushState' : 'replaceState'](null, '', here);
}

function showInputs({ withFocused = false } = {}) {
  for (const input of [search, ...panel.querySelectorAll('[name]')]) {
    if (input === document.activeElement && !withFocused) continue;
    const text = parameters[input.name] || '';
    if (input.tagName === 'SELECT' && text && ![...input.options].some((option) => option.value === text)) {
      input.add(new Option(text, text));
    }
    input.value = text;
  }
}

function change(changes, isNewPlace = true) {
  parameters = { ...parameters, ...changes };
  for (const name of Object.keys(parameters)) if (!parameters[name]) delete parameters[name];
  writeAddress(isNewPlace);
  showInputs();
  return list();
}

function say(text, kind = '') {
  const notice = $('.dl-notice');
  notice.textContent = text;
  notice.dataset.kind = kind;
}

/* One question to the server; null where it was refused or nobody answered, which is said then. */
async function ask(name, question) {
  let answer;
  try {
    answer = await server[name](question);
  } catch (error) {
    answer = { error: 'The page does not get an answer. It tries again by itself.', is_away: true };
  }
  if (!answer.error) return answer;
  say(answer.error, 'bad');
  return { ...answer, failed: true };
}

async function list(before = null) {
  const mine = ++asked;
  clearTimeout(again);
  element.setAttribute('aria-busy', 'true');
  const answer = await ask('list_runs', { parameters, before });
  if (mine !== asked) return;
  element.removeAttribute('aria-busy');
  if (answer.failed) {
    if (answer.is_away) again = setTimeout(() => list(before), AGAIN_MS);
    return;
  }
  if ($('.dl-notice').dataset.kind === 'bad') say('');
  next = answer.next;
  moreButton.hidden = !next;
  if (before) place.querySelector('tbody').insertAdjacentHTML('beforeend', answer.html);
  else place.innerHTML = answer.html;
  $('.dl-chips').innerHTML = answer.chips;
  const number = Object.keys(answer.filters).length;
  $('[data-filters]').textContent = number ? `filters (${number})` : 'filters';
  markRows();
}

/* What is searched follows the typing; everything else when it is chosen. */
search.addEventListener('input', () => {
  clearTimeout(typing);
  typing = setTimeout(() => change({ q: search.value.trim() }, false), TYPING_MS);
});
search.addEventListener('keydown', (event) => {
  if (event.key === 'Enter') { clearTimeout(typing); change({ q: search.value.trim() }); }
});
panel.addEventListener('change', (event) => change({ [event.target.name]: event.target.value.trim() }));
$('[data-filters]').addEventListener('click', (event) => {
  panel.hidden = !panel.hidden;
  event.target.setAttribute('aria-expanded', String(!panel.hidden));
});
$('.dl-chips').addEventListener('click', (event) => {
  const chip = event.target.closest('[data-drop]');
  if (chip) change({ [chip.dataset.drop]: '' });
});
element.addEventListener('click', (event) => {
  if (!event.target.closest('[data-drop-all]')) return;
  search.value = '';
  change(Object.fromEntries(NAMES.map((name) => [name, ''])));
});
moreButton.addEventListener('click', () => list(next));
window.addEventListener('popstate', () => { if (element.isConnected) { readAddress(); list(); } });

function sortBy(key) {
  const now = parameters.sort || 'time';
  const isUp = key === now && parameters.order !== 'up';
  change({ sort: key === 'time' ? '' : key, order: isUp ? 'up' : '' });
}
