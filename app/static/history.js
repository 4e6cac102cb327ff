/* The table of runs: a page of rows replaces what is there or, asked for with "Older runs", goes under it.
   The rows are HTML that the server has made and escaped. */

const place = element.querySelector('.dl-place');

function show() {
  const page = props.value;
  if (!page || page.html === undefined) return;
  const body = page.is_more && place.querySelector('tbody');
  if (body) body.insertAdjacentHTML('beforeend', page.html);
  else place.innerHTML = page.html;
}

/* A line opens its run wherever it is clicked; its own links and a selection of text go first. */
place.addEventListener('click', (event) => {
  const link = event.target.closest('tr')?.querySelector('.dl-start a');
  if (link && !event.target.closest('a') && getSelection().isCollapsed) link.click();
});

watch('value', show);
show();
