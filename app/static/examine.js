/* A fold that looks back at the page's run once that has ended. It asks when it is opened, or at its button, and shows
   the answer, which is HTML that the server has made and escaped. */

const fold = element.querySelector('details');
const place = element.querySelector('.dl-fold-place');
const button = element.querySelector('[data-ask]');
let run = ''; // the ended run that the fold is about; '' while there is none
let asked = ''; // the run that was asked about last
let serial = 0; // of the last question: its answer carries it, and so is never what stood here before

function say(words) {
  const line = document.createElement('p');
  line.className = 'dl-hint';
  line.textContent = words;
  place.replaceChildren(line);
}

function setBusy(is) {
  fold.toggleAttribute('data-busy', is);
  place.setAttribute('aria-busy', String(is));
  if (button) button.disabled = is;
}

function ask(more = {}) {
  asked = run;
  serial += 1;
  if (!place.children.length) say('Computing …');
  setBusy(true);
  trigger('select', { run, serial, ...more });
}

function open() {
  if (fold.open && run && asked !== run && !button) ask(firstQuestion());
}

/* The page's run: its facts tell that it has ended, the address which one it is. */
function look() {
  const id = document.querySelector('#dl-facts .dl-ending') ? new URLSearchParams(location.search).get('run') || '' : '';
  if (id === run) return;
  run = id;
  asked = '';
  place.replaceChildren();
  setBusy(false);
  forget();
  fold.hidden = !run;
  element.querySelector('[data-score]')?.setAttribute('href', `./score?run=${encodeURIComponent(run)}`);
  open();
}

function show() {
  const value = props.value;
  if (!value || value.run !== run || !run || value.serial !== serial) return;
  place.innerHTML = value.html;
  setBusy(value.busy);
  take(value);
}

/* What a fold with controls of its own does beside that. */
let firstQuestion = () => ({});
let forget = () => {};
let take = () => {};

fold.addEventListener('toggle', open);
button?.addEventListener('click', () => run && ask());
new MutationObserver(look).observe(document.getElementById('dl-facts') || document.body, { childList: true, subtree: true });
watch('value', show);
queueMicrotask(look);
