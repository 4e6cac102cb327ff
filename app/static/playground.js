const bar = element.querySelector('.dl-scalebar');
const note = element.querySelector('.dl-note');
const hover = element.querySelector('.dl-hover');
const strip = new TokenStrip(element.querySelector('.dl-text'), (index) => {
  keepInLink('token', index);
  trigger('select', { index, run: strip.run });
});
let asked = new URLSearchParams(location.search).get('token'); // of the link that was opened
new ScaleBar(bar, props.scales, (scale) => strip.colour(scale));
followPointer(strip.root, () => [strip], hover);

function keepInLink(parameter, value) {
  const here = new URL(location.href);
  here.searchParams.set(parameter, value);
  history.replaceState(history.state, '', here);
}

/* The token that the link names is chosen as soon as it is there. */
function chooseAsked() {
  if (asked === null || !strip.span(Number(asked))) return;
  const index = Number(asked);
  asked = null;
  strip.select(index);
}

function show() {
  const view = props.value;
  if (!view || !view.run) return;
  strip.update(view);
  note.textContent = view.note || '';
  element.dataset.state = view.state;
  element.querySelector('.dl-strip').dataset.state = view.state;
  const made = strip.tokens.length;
  element.querySelector('.dl-made').textContent = made ? `${made} token${made === 1 ? '' : 's'}` : '';
  if (view.fork !== null) strip.span(view.fork)?.classList.add('dl-fork');
  if (showLink('run', view.run)) dropDraft(); // what was typed has been run
  chooseAsked();
}

/* The inspector is another component, so what is pressed there is heard here: a rival's button, or a typed text. */
function branch(place, choice) {
  const index = Number(place.closest('[data-position]').dataset.position);
  trigger('submit', { run: strip.run, index, token_id: null, text: '', ...choice });
}

document.addEventListener('click', (event) => {
  const button = event.target.closest?.('[data-branch]');
  if (button && element.isConnected) branch(button, { token_id: Number(button.dataset.branch) });
});

document.addEventListener('submit', (event) => {
  const form = event.target.closest?.('[data-continue]');
  if (!form || !element.isConnected) return;
  event.preventDefault();
  branch(form, { text: form.elements.text.value });
});

stepButtons(() => strip);
watch('value', show);
show();
reloadOnBack();
runKeys('dl-run', 'dl-stop');
showAlerts();
