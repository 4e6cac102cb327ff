/* A comparison: up to four arms side by side; any number as a grid (grid.js), whose cells open as arms. */

const MAX_COLUMNS = 4;
const place = find('.dl-columns');
const cells = find('.dl-grid');
const baselineChoice = find('[data-baseline]');
const shadeChoice = find('[data-shade-by]');
const diffSwitch = find('[data-diff]');
const gridSwitch = find('[data-grid]');
let shown = '';
let opened = []; // the arms that have a column, by their index
let strips = []; // of those
let scale = null;
let leader = null; // the strip that the person scrolls
let chosen = null; // the strip whose token was chosen last
let hasChosen = false;
let revealing = new MutationObserver(() => {});
new ScaleBar(find('.dl-scalebar'), props.scales, (choice) => { scale = choice; strips.forEach((s) => s.colour(choice)); });
stepButtons(() => (strips.includes(chosen) ? chosen : strips[0]));
followPointer(place, () => strips, find('.dl-hover'));

/* Columns */

/* The columns show the same positions: the one that the person scrolls leads. */
function scrollOthers(strip) {
  const index = strip.topToken();
  strips.forEach((other) => { if (other !== strip) other.scrollTo(strip.root.scrollTop > 0 ? index : 0); });
}

function select(index, { arms = opened, parted = false } = {}) {
  hasChosen = true;
  revealing.disconnect();
  strips.forEach((strip) => strip.highlight(index));
  const there = arms.map((i) => props.value.arms[i]).filter((arm) => arm.lines.split('\n').length - 1 > index);
  const named = there.map((arm) => ({ run: arm.run, name: arm.name }));
  trigger('select', { index, arms: named, parted, experiment: shown });
}

function column(arm) {
  const section = make('section', 'dl-column', '');
  section.setAttribute('aria-label', 'Arm ' + arm.name);
  const head = make('header', '', '');
  const stop = make('button', 'dl-link dl-stop-arm', 'stop');
  stop.type = 'button';
  stop.setAttribute('aria-label', 'stop arm ' + arm.name);
  stop.addEventListener('click', () => trigger('stop', { runs: arm.runs }));
  head.append(make('b', '', arm.name), make('span', 'dl-label', arm.label), stop);
  const area = make('div', 'dl-text', '');
  area.tabIndex = 0;
  area.setAttribute('role', 'group');
  area.setAttribute('aria-label', `text of arm ${arm.name}; arrow keys choose a token`);
  section.append(head, area, make('p', 'dl-note', ''));
  return section;
}

function stripIn(area) {
  const strip = new TokenStrip(area, (index) => { chosen = strip; select(index); });
  if (scale) strip.colour(scale);
  for (const kind of ['pointerenter', 'wheel', 'touchstart', 'focus']) {
    area.addEventListener(kind, () => { leader = strip; }, { passive: true });
  }
  area.addEventListener('scroll', () => { if (leader === strip) scrollOthers(strip); }, { passive: true });
  return strip;
}

function buildColumns() {
  const sections = opened.map((i) => column(props.value.arms[i]));
  place.replaceChildren(...sections);
  place.style.setProperty('--dl-arms', opened.length);
  strips = sections.map((section) => stripIn(section.querySelector('.dl-text')));
}

function showColumns(value) {
  opened.forEach((i, at) => {
    const [arm, strip, section] = [value.arms[i], strips[at], place.children[at]];
    if (strip.mark >= 0 && strip.mark !== arm.divergence) {
      strip.span(strip.mark)?.classList.remove('dl-diverges');
      strip.mark = -1;
    }
    strip.update(arm);
    strip.markDivergence(arm.divergence);
    section.querySelector('.dl-note').textContent = arm.note || '';
    section.querySelector('.dl-stop-arm').hidden = arm.is_over;
    section.dataset.state = arm.state;
    section.dataset.arm = i;
    showDiff(value, arm, strip);
  });
}

/* Instead of the plain text: what is not in the baseline's marked, what only that has struck through where it stood. */
function showDiff(value, arm, strip) {
  const isOn = diffSwitch.getAttribute('aria-pressed') === 'true';
  const sign = isOn ? `${value.baseline} ${JSON.stringify(arm.changes)}` : '';
  if (sign === (strip.root.dataset.diff || '')) return;
  strip.root.dataset.diff = sign;
  strip.root.querySelectorAll('.dl-del').forEach((node) => node.remove());
  strip.root.querySelectorAll('.dl-ins').forEach((node) => node.classList.remove('dl-ins'));
  strip.root.classList.toggle('dl-diff', isOn);
  if (!isOn || !arm.changes.length) return;
  strip.flow.join(); // what is put in wraps the lines anew
  const base = tokensOf(value.arms[value.baseline]);
  for (const [baseStart, baseEnd, start, end] of arm.changes) {
    for (let i = start; i < end; i++) strip.span(i).classList.add('dl-ins');
    if (baseEnd === baseStart) continue;
    const gone = make('del', 'dl-del', base.slice(baseStart, baseEnd).map(textOf).join(''));
    const at = strip.span(start);
    if (at) at.before(gone); else strip.root.append(gone);
  }
}

/* A cell opens as an arm beside the baseline and closes again; a fifth takes the place of the one opened first. */
function toggle(i) {
  const { baseline } = props.value;
  if (opened.includes(i)) opened = opened.length > 1 ? opened.filter((arm) => arm !== i) : opened;
  else {
    const kept = opened.filter((arm) => arm !== baseline);
    while (kept.length > MAX_COLUMNS - 2) kept.shift();
    opened = [...(opened.includes(baseline) ? [baseline] : []), ...kept, i];
  }
  buildColumns();
  show();
}

/* The whole */

function build(value) {
  shown = value.experiment;
  hasChosen = false;
  delete gridSwitch.dataset.choice;
  const number = value.arms.length <= MAX_COLUMNS ? value.arms.length : 2;
  opened = value.arms.map((_, i) => i).slice(0, number);
  if (!opened.includes(value.baseline)) opened = [value.baseline, ...opened.slice(0, MAX_COLUMNS - 1)];
  buildColumns();
  buildCells(value);
}

function showProgress({ words, ended, total }) {
  const bar = find('progress');
  bar.max = total;
  bar.value = ended;
  bar.hidden = ended === total;
  put(find('.dl-progress [role=status]'), ended === total && total <= MAX_COLUMNS ? '' : words);
}

/* Once all arms have ended the ledgers of the first divergence open, unless the person is looking at something. */
function openFirstDivergence(value) {
  if (hasChosen || value.arms.some((arm) => arm.state !== 'ended')) return;
  const parted = value.arms.map((arm, i) => [arm.divergence, i])
    .filter(([at, i]) => i !== value.baseline && at !== null && hasToken(value, i, at) && hasToken(value, value.baseline, at))
    .sort((a, b) => a[0] - b[0]);
  if (parted.length) openLedgers(parted[0][1]);
}

function hasToken(value, i, at) { return value.arms[i].lines.split('\n').length - 1 > at; }

function openLedgers(i) {
  const { baseline, arms } = props.value;
  if (!opened.includes(i)) toggle(i);
  // Few arms have their sentence above already.
  select(arms[i].divergence, { arms: [baseline, i], parted: arms.length > MAX_COLUMNS });
}

function showAddress(value) {
  showLink('experiment', value.experiment);
  const here = new URL(location.href);
  if ((here.searchParams.get('baseline') || '0') === String(value.baseline)) return;
  if (value.baseline) here.searchParams.set('baseline', value.baseline); else here.searchParams.delete('baseline');
  history.replaceState(null, '', here);
}

function show() {
  const value = props.value;
  if (!value || !value.experiment) return;
  const isNew = value.experiment !== shown || cells.querySelectorAll('[data-cell]').length !== value.arms.length;
  if (isNew) build(value);
  find('.dl-viewbar').hidden = false;
  options(baselineChoice, value.arms.map((arm, i) => [i, arm.name]), value.baseline);
  options(shadeChoice, value.measures, shadeChoice.value || value.measures[0][0]);
  showProgress(value.progress);
  showColumns(value);
  showCells(value);
  showAddress(value);
  openFirstDivergence(value);
}

baselineChoice.addEventListener('change', () => {
  const baseline = Number(baselineChoice.value);
  if (!opened.includes(baseline)) toggle(baseline);
  trigger('apply', { experiment: shown, baseline });
});
shadeChoice.addEventListener('change', show);
diffSwitch.addEventListener('click', () => {
  diffSwitch.setAttribute('aria-pressed', String(diffSwitch.getAttribute('aria-pressed') !== 'true'));
  show();
});
gridSwitch.addEventListener('click', () => {
  gridSwitch.dataset.choice = gridSwitch.getAttribute('aria-pressed') === 'true' ? 'off' : 'on';
  show();
});
cells.addEventListener('click', (event) => {
  const button = event.target.closest('[data-cell]');
  if (button) toggle(Number(button.dataset.cell));
});
/* The sentences and the table are another component; their buttons name an arm by its run. */
document.addEventListener('click', (event) => {
  const button = event.target.closest?.('[data-ledgers]');
  if (!button || !element.isConnected) return;
  const i = props.value.arms.findIndex((arm) => arm.run === button.dataset.ledgers);
  if (i < 0) return;
  openLedgers(i);
  revealLedgers(props.value.arms[i].divergence);
});

/* Scroll to the ledgers of token `at` as soon as they are there; what comes before them while arms stream is not it. */
function revealLedgers(at) {
  const ledgers = document.getElementById('dl-inspectors');
  const reveal = () => {
    if (!ledgers.querySelector(`[data-position="${at}"]`)) return;
    revealing.disconnect();
    ledgers.scrollIntoView({ block: 'nearest' });
  };
  revealing = new MutationObserver(reveal); // until they are there, or something else is chosen
  revealing.observe(ledgers, { childList: true, subtree: true });
  reveal();
}

watch('value', show);
show();
reloadOnBack();
runKeys('dl-run', 'dl-stop');
showAlerts();
