/* The arms as a grid of small texts, one of their figures as the cell's shade. */

const NUM_SHADES = 8;
const NUM_CHARACTERS = 220; // of a text in a cell
const find = (selector) => element.querySelector(selector);

function make(tag, className, words) {
  const node = document.createElement(tag);
  node.className = className;
  node.textContent = words;
  return node;
}

function options(select, pairs, chosenKey) {
  if (select.options.length !== pairs.length || [...select.options].some((o, i) => o.textContent !== pairs[i][1])) {
    select.replaceChildren(...pairs.map(([key, words]) => {
      const option = make('option', '', words);
      option.value = key;
      return option;
    }));
  }
  if (select.value !== String(chosenKey)) select.value = String(chosenKey);
}

function textOf(token) { return (token[5] || 0) === 0 || token[5] === 4 ? token[0] : token[6]; }

function tokensOf(arm) { return arm.lines.split('\n').filter(Boolean).map((line) => JSON.parse(line)); }

/* The start of an arm's text, from no more of its lines than that takes. */
function startOf(arm) {
  let text = '';
  let from = 0;
  while (from < arm.lines.length && text.length < NUM_CHARACTERS) {
    const to = arm.lines.indexOf('\n', from);
    text += textOf(JSON.parse(arm.lines.slice(from, to)));
    from = to + 1;
  }
  return text.slice(0, NUM_CHARACTERS);
}

function isGrid(value) {
  const choice = gridSwitch.dataset.choice;
  return choice ? choice === 'on' : value.arms.length > MAX_COLUMNS || value.axes.length === 2;
}

function cell(arm, i, hasLabel) {
  const button = make('button', 'dl-cell', '');
  button.type = 'button';
  button.dataset.cell = i;
  button.append(make('b', '', arm.name), make('span', 'dl-label', hasLabel ? arm.label : ''),
    make('span', 'dl-num dl-figure', ''), make('span', 'dl-start', ''));
  return button;
}

function buildCells(value) {
  const buttons = value.arms.map((arm, i) => cell(arm, i, value.axes.length !== 2));
  if (value.axes.length !== 2) {
    const flow = make('div', 'dl-cells', '');
    flow.append(...buttons);
    cells.replaceChildren(flow);
    return;
  }
  const [rowNames, columnNames] = value.axes;
  const table = make('table', 'dl-cross', '');
  table.style.setProperty('--dl-across', columnNames.length);
  const head = table.createTHead().insertRow();
  const heading = (row, words, scope) => {
    const th = make('th', '', words);
    th.scope = scope;
    row.append(th);
  };
  head.insertCell();
  columnNames.forEach((name) => heading(head, name, 'col'));
  const body = table.createTBody();
  rowNames.forEach((name, r) => {
    const row = body.insertRow();
    heading(row, name, 'row');
    columnNames.forEach((_, c) => row.insertCell().append(buttons[r * columnNames.length + c]));
  });
  cells.replaceChildren(table);
}

function shades(values) {
  const known = values.filter((value) => value !== null);
  const [low, high] = [Math.min(...known), Math.max(...known)];
  return values.map((value) => (value === null || high === low ? 0 : Math.round((NUM_SHADES - 1) * (value - low) / (high - low))));
}

function showCells(value) {
  const isOn = isGrid(value);
  gridSwitch.setAttribute('aria-pressed', String(isOn));
  cells.hidden = !isOn;
  find('.dl-shading').hidden = !isOn;
  if (!isOn) return;
  const key = shadeChoice.value || value.measures[0][0];
  const figures = value.arms.map((arm) => arm.figures[key]);
  const levels = shades(figures.map(([number]) => number));
  const known = figures.filter(([number]) => number !== null).sort((a, b) => a[0] - b[0]);
  find('.dl-range').textContent = known.length ? `${known[0][1]} lightest, ${known[known.length - 1][1]} darkest` : '';
  cells.querySelectorAll('[data-cell]').forEach((button) => {
    const i = Number(button.dataset.cell);
    const arm = value.arms[i];
    button.dataset.shade = levels[i];
    button.dataset.value = figures[i][0] ?? '';
    button.dataset.state = arm.state;
    button.classList.toggle('dl-base', i === value.baseline);
    button.setAttribute('aria-pressed', String(opened.includes(i)));
    put(button.querySelector('.dl-figure'), figures[i][1]);
    put(button.querySelector('.dl-start'), startOf(arm) || arm.note);
  });
}

function put(node, words) { if (node.textContent !== words) node.textContent = words; }

