/* The what-if's controls and strip. `own` are the run's texts by field; a form holds what the person has moved since. */

const strip = new TokenStrip(element.querySelector('.dl-text'), (index) => {
  document.querySelector(`#dl-strip [data-i="${index}"]`)?.click();
});
strip.colour(props.scales[0]);
followPointer(strip.root, () => [strip], element.querySelector('.dl-hover'));

const rows = [...element.querySelectorAll('.dl-row')];
const restore = element.querySelector('[data-restore]');
const WAIT_MS = 250;
let own = null;
let form = {};
let timer = 0;

function fill() {
  for (const row of rows) {
    const [field, usual] = [row.dataset.field, row.dataset.neutralText];
    const text = form[field] ?? '';
    const input = row.querySelector('[data-input]');
    if (input !== document.activeElement || input.value !== text) input.value = text;
    const slider = row.querySelector('[data-slider]');
    if (slider) slider.value = text && !isNaN(text) ? text : usual;
    const was = own?.[field] ?? '';
    const isMoved = Number(text || usual) !== Number(was || usual);
    row.classList.toggle('dl-changed', isMoved);
    row.querySelector('.dl-was').textContent = isMoved ? `was ${was || input.placeholder}` : '';
  }
  restore.hidden = !rows.some((row) => row.classList.contains('dl-changed'));
}

function askLater() {
  fill();
  clearTimeout(timer);
  serial += 1; // what was asked before is not waited for any more
  setBusy(true);
  timer = setTimeout(() => run && ask({ form }), WAIT_MS);
}

element.addEventListener('input', (event) => {
  const row = event.target.closest('.dl-row');
  if (!row) return;
  const text = event.target.value;
  const isSlider = event.target.matches('[data-slider]');
  form[row.dataset.field] = isSlider && Number(text) === Number(row.dataset.neutralText) ? '' : text;
  askLater();
});

restore.addEventListener('click', () => {
  form = { ...own };
  askLater();
});

firstQuestion = () => ({ form: null });

forget = () => {
  clearTimeout(timer);
  own = null;
  form = {};
  strip.clear('');
  fill();
};

take = (value) => {
  if (value.own && !own) {
    own = value.own;
    form = { ...own };
    fill();
  }
  for (const row of rows) row.querySelector('[data-input]').setAttribute('aria-invalid', String(row.dataset.field === value.field));
  if (value.lines === undefined) return;
  strip.update({ run: `${value.run} ${value.serial}`, lines: value.lines });
  strip.mark = -1;
  strip.markDivergence(value.first);
};

fill();
