/* The keyboard map and the hints. A hint leaves for good once its thing was used or it was put away. */

const dialog = element.querySelector('dialog');
const STORE = 'decodelab.hints';

function isTyping(event) {
  return event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.('input, textarea, select, [contenteditable]');
}

element.addEventListener('click', (event) => {
  if (event.target.closest('[data-keys]')) dialog.showModal();
  if (event.target.closest('[data-close]') || event.target === dialog) dialog.close();
});

document.addEventListener('keydown', (event) => {
  if (!element.isConnected || dialog.open || isTyping(event)) return;
  const scale = '12345'.indexOf(event.key);
  const place = { p: '#dl-prompt:not(.dl-away) textarea, .dl-messages:not([hidden]) textarea', t: '#dl-strip .dl-text' }[event.key];
  if (event.key === '?') dialog.showModal();
  else if (scale >= 0) document.querySelectorAll('#dl-strip [data-scale]')[scale]?.click();
  else if (place) document.querySelector(place)?.focus();
  else return;
  event.preventDefault();
});

/* Hints */

function done() {
  try { return new Set(JSON.parse(localStorage.getItem(STORE) || '[]')); } catch { return new Set(); }
}

function showHints() {
  const gone = done();
  element.querySelectorAll('[data-hint]').forEach((hint) => { hint.hidden = gone.has(hint.dataset.hint); });
}

function putAway(name) {
  localStorage.setItem(STORE, JSON.stringify([...done().add(name)]));
  const hint = element.querySelector(`[data-hint="${name}"]`);
  if (hint) hint.hidden = true;
}

element.querySelector('.dl-hints').addEventListener('click', (event) => {
  if (event.target.closest('a, [data-got-it]')) putAway(event.target.closest('[data-hint]').dataset.hint);
});

document.addEventListener('click', (event) => {
  if (event.target.closest?.('#dl-strip [data-i]')) putAway('token');
  if (event.target.closest?.('#dl-nav a[href="./compare"]')) putAway('compare');
  if (event.target.closest?.('#dl-nav a[href="./history"]')) putAway('history');
});

const facts = document.getElementById('dl-facts');
if (facts && done().size < element.querySelectorAll('[data-hint]').length) {
  const watcher = new MutationObserver(() => {
    if (!facts.querySelector('.dl-ending')) return;
    watcher.disconnect();
    showHints();
  });
  watcher.observe(facts, { childList: true, subtree: true });
}
