'use strict';
// Draws the time series of the page's data with a common zoom, and updates the page of a running run.
(() => {
  let page = JSON.parse(document.getElementById('data').textContent);
  let data = page.lines || { charts: [] };  // of the time series
  const light = ['#0b57b0', '#b3140f', '#0b6b34', '#8a4fbe', '#b05a00', '#007a87', '#a3216f', '#5c6300'];
  const dark = ['#7fb2ff', '#ff8f87', '#6bd896', '#c9a0f5', '#ffb45e', '#5fd3df', '#ff8fcb', '#d3d867'];
  const isDark = matchMedia('(prefers-color-scheme: dark)');
  const isTouch = matchMedia('(pointer: coarse)').matches;  // a finger on a chart must scroll the page
  const hidden = new Set();
  const graphs = [];
  let charts, marks, faults, count, times, whole, names, shown;

  // Computes the values derived from the data.
  function derive() {
    const kinds = { loss: 'fault', finding: 'finding', restart: 'finding' };
    const fault = (one) => `${textAt(one, 'kind')} fault, rank ${figureAt(one, 'rank')}: ${textAt(one, 'where')}`;
    charts = data.charts.filter((chart) => chart.lines.length);  // the table shows constant values
    marks = [...listAt(page.result, 'faults').map((one) => ({ kind: 'fault', time: at(one, 'time'), text: fault(one) })),
      ...listAt(page, 'events').map((event) => ({ ...event, kind: kinds[event.what] })),
      ...listAt(page.result, 'parts_of_run').map((part, number) => ({ time: at(part, 'started_at'), text: `part ${number + 1} of the run begins` }))]
      .map((mark) => ({ ...mark, at: Date.parse(mark.time) })).filter((mark) => mark.at);
    faults = marks.filter((mark) => mark.kind === 'fault').sort((a, b) => a.at - b.at);
    count = charts.length ? charts[0].lines[0].mean.length : 0;
    times = Array.from({ length: count }, (_, at) => new Date((data.began + (at + 0.5) * data.seconds) * 1000));
    const all = [...times.slice(0, 1), ...times.slice(-1), ...marks.map((mark) => mark.at)].map(Number);
    whole = [Math.min(...all), Math.max(...all)];
    const margin = Math.max(whole[1] - whole[0], 1000) / 100;
    whole[0] -= margin;
    whole[1] += margin;
    names = [...new Set(charts.flatMap((chart) => chart.lines.map((line) => line.name)))];
  }

  const colour = (name) => (name.startsWith('all') ? style('--text') : (isDark.matches ? dark : light)[names.indexOf(name) % light.length]);
  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  // Draws phases, limits and events behind the lines.
  function drawMarks(canvas, area, graph, limits) {
    const [from, to] = graph.xAxisRange();
    data.phases.forEach((phase, at) => {
      const next = at + 1 < data.phases.length ? data.phases[at + 1].time * 1000 : to;
      const left = Math.max(graph.toDomXCoord(phase.time * 1000), area.x);
      const right = Math.min(graph.toDomXCoord(next), area.x + area.w);
      if (right <= left) return;
      canvas.fillStyle = style('--raised');
      if (at % 2) canvas.fillRect(left, area.y, right - left, area.h);
      canvas.fillStyle = style('--quiet');
      canvas.font = '11px sans-serif';
      if (right - left > 40) canvas.fillText(phase.name, left + 3, area.y + 11);
    });
    canvas.lineWidth = 1;
    canvas.strokeStyle = style('--text');
    canvas.setLineDash([6, 4]);
    for (const limit of limits) line(area.x, graph.toDomYCoord(limit), area.x + area.w, graph.toDomYCoord(limit));
    const drawn = new Set();  // limits the density of marks, so that the lines stay visible
    for (const mark of marks) {
      const x = graph.toDomXCoord(mark.at), place = mark.kind + Math.round(x / 6);
      if (mark.at < from || mark.at > to || drawn.has(place)) continue;
      drawn.add(place);
      canvas.strokeStyle = style(mark.kind === 'fault' ? '--fault' : mark.kind === 'finding' ? '--warn' : '--quiet');
      canvas.lineWidth = mark.kind === 'fault' ? 2 : 1;
      canvas.setLineDash(mark.kind === 'fault' ? [] : [2, 3]);
      line(x, area.y, x, area.y + area.h);
    }
    canvas.setLineDash([]);
    function line(x0, y0, x1, y1) {
      canvas.beginPath();
      canvas.moveTo(x0, y0);
      canvas.lineTo(x1, y1);
      canvas.stroke();
    }
  }

  function range(chart) {
    let low = Infinity, high = -Infinity;
    for (const line of chart.lines)
      for (const value of [...(line.least || line.mean), ...(line.most || line.mean)])
        if (value !== null) [low, high] = [Math.min(low, value), Math.max(high, value)];
    for (const limit of chart.limits) [low, high] = [Math.min(low, limit), Math.max(high, limit)];
    const more = (high - low || 1) * 0.06;
    return [low >= 0 && low < more ? 0 : low - more, high + more];
  }

  function values(chart, at) {
    return chart.lines.filter((line) => !hidden.has(line.name)).map((line) => {
      const band = line.least && line.least[at] !== line.most[at] ? ` (${short(line.least[at])} to ${short(line.most[at])})` : '';
      return `${line.name}: ${short(line.mean[at])}${band}`;
    }).join('; ');
  }

  function tell(at) {
    const near = marks.filter((mark) => Math.abs(mark.at - times[at]) <= Math.max(data.seconds * 1000, (shown[1] - shown[0]) / 150));
    const phase = data.phases.filter((one) => one.time * 1000 <= +times[at]).pop();
    document.getElementById('now').textContent =
      [clock(+times[at]), phase && phase.name, ...near.slice(0, 3).map((mark) => mark.text)].filter(Boolean).join(' · ');
    for (const one of graphs) one.values.textContent = values(one.chart, at);
  }

  function rowsOf(chart) {
    return times.map((time, at) => [time, ...chart.lines.map((line) => {
      const mean = line.mean[at];
      return mean === null ? [null, null, null] : [line.least ? line.least[at] : mean, mean, line.most ? line.most[at] : mean];
    })]);
  }

  function label({ box, chart }) {
    box.setAttribute('aria-label', `${chart.title}, ${clock(whole[0])} to ${clock(whole[1])}; the table below has its figures`);
  }

  function draw(chart, place) {
    const one = { chart, box: html('div', { class: 'chart', role: 'img' }), values: html('div', { class: 'values' }) };
    const limits = chart.limits.length ? ` (limit ${chart.limits.join(', ')})` : '';
    place.append(html('figure', {}, html('figcaption', {}, chart.title + limits), one.box, one.values));
    label(one);
    one.graph = new Dygraph(one.box, rowsOf(chart), {
      labels: ['time', ...chart.lines.map((line) => line.name)],
      colors: chart.lines.map((line) => colour(line.name)),
      customBars: true, connectSeparatedPoints: true, fillAlpha: 0.18, strokeWidth: 1.4, legend: 'never', labelsUTC: true,
      gridLineColor: style('--line'), axisLineColor: style('--line'), gridLineWidth: 0.4, animatedZooms: false,
      dateWindow: whole, valueRange: range(chart), axes: { y: { axisLabelWidth: 48 } }, drawPoints: count < 3,
      underlayCallback: (canvas, area, self) => drawMarks(canvas, area, self, one.chart.limits),
      drawCallback: (self, first) => first || show(self.xAxisRange(), self),
      highlightCallback: (event, x, points, at) => tell(at),
      ...(isTouch ? { interactionModel: {} } : {}),
    });
    graphs.push(one);
  }

  let busy = false;
  function show(range, source) {
    if (busy || (source && range[0] === shown[0] && range[1] === shown[1])) return;
    busy = true;
    shown = range[0] <= whole[0] && range[1] >= whole[1] ? whole : range;
    for (const { graph } of graphs) if (graph !== source) graph.updateOptions({ dateWindow: shown });
    busy = false;
  }
  function showAround(at, width) {
    show([at - width / 2, at + width / 2]);
  }

  let next = 0;
  const actions = {
    all: () => show(whole),
    in: () => showAround((shown[0] + shown[1]) / 2, (shown[1] - shown[0]) / 2),
    out: () => showAround((shown[0] + shown[1]) / 2, Math.min((shown[1] - shown[0]) * 2, whole[1] - whole[0])),
    back: () => show(shown.map((end) => end - (shown[1] - shown[0]) / 2)),
    on: () => show(shown.map((end) => end + (shown[1] - shown[0]) / 2)),
    fault: () => lookAt(faults[next++ % faults.length].at),
  };
  function lookAt(at) {
    showAround(at, Math.min(whole[1] - whole[0], Math.max(60 * data.seconds, 30) * 1000));
    tell(Math.max(0, Math.min(count - 1, Math.floor((at / 1000 - data.began) / data.seconds))));
  }

  function drawAll() {
    const place = document.getElementById('charts');
    graphs.splice(0).forEach(({ graph }) => graph.destroy());
    place.textContent = '';
    if (typeof Dygraph === 'undefined' || !count) return;
    tools.hidden = false;
    nameRanks();
    for (const chart of charts) draw(chart, place);
    hideRanks();
    const now = shown;
    shown = whole;
    if (now !== whole) show(now);
  }
  function hideRanks() {
    for (const button of document.querySelectorAll('#ranks button')) {
      button.setAttribute('aria-pressed', String(!hidden.has(button.textContent)));
      button.style.setProperty('--of-rank', colour(button.textContent));
    }
    if (hidden.size || graphs.some(({ graph }) => graph.visibility().includes(false)))
      for (const { graph, chart } of graphs) graph.updateOptions({ visibility: chart.lines.map((line) => !hidden.has(line.name)) });
  }

  const tools = document.getElementById('tools');
  function nameRanks() {
    tools.querySelector('[data-do=fault]').hidden = !faults.length;
    const place = document.getElementById('ranks');
    if (place.dataset.names === names.join()) return;
    place.dataset.names = names.join();
    place.textContent = '';
    for (const name of names.length > 1 ? names : []) {
      const button = html('button', { type: 'button' }, name);
      place.append(button);
      button.addEventListener('click', () => {
        if (!hidden.delete(name)) hidden.add(name);
        hideRanks();
      });
    }
  }
  tools.addEventListener('click', (event) => {
    const action = actions[event.target.dataset.do];
    if (action) action();
  });
  document.addEventListener('click', (event) => {
    if (!event.target.matches('.moment') || !count) return;
    document.getElementById('time').scrollIntoView();
    lookAt(Date.parse(event.target.dataset.time));
  });

  // Accepts an update of a running run: further points, or all points again.
  function take(fresh) {
    const shape = (all) => JSON.stringify(all.charts.map((chart) => [chart.title, chart.lines.map((line) => line.name)]));
    const isMore = fresh.from > 0, isSame = shape(fresh) === shape(data);
    if (isMore && !(isSame && fresh.began === data.began)) return false;
    const before = data, wasWhole = shown === whole;
    data = fresh;
    if (isMore) data.charts.forEach((chart, at) => chart.lines.forEach((line, of) => join(before.charts[at].lines[of], line, fresh.from)));
    derive();
    if (wasWhole) shown = whole;
    if (!isSame || !graphs.length) {
      drawAll();
    } else {
      nameRanks();
      busy = true;
      graphs.forEach((one, at) => {
        one.chart = charts[at];
        label(one);
        one.graph.updateOptions({ file: rowsOf(one.chart), valueRange: range(one.chart), dateWindow: shown, drawPoints: count < 3 });
      });
      busy = false;
    }
    return true;
  }
  function join(old, line, from) {
    const more = line.mean;
    for (const part of ['least', 'most', 'mean'])
      if (part === 'mean' || old[part] || line[part]) line[part] = (old[part] || old.mean).slice(0, from).concat(line[part] || more);
  }

  const period = Number(document.documentElement.dataset.live);
  async function ask(path, more) {
    const query = new URLSearchParams(location.search);  // may contain the token
    for (const [name, value] of Object.entries(more)) query.set(name, value);
    const answer = await fetch(`${path}?${query}`, { cache: 'no-store' });
    if (!answer.ok) throw new Error(`${answer.status} ${answer.statusText}`);
    return answer;
  }
  async function follow() {
    const line = document.getElementById('live');
    line.hidden = false;
    let text = 'Live: this page follows the run.', wait = period;
    try {
      page = await (await ask('api/page', {})).json();
      const from = Math.max(count - 1, 0);  // the last point may have grown
      if (!take(await (await ask('api/lines', { from, seconds: data.seconds })).json())) take(await (await ask('api/lines', { from: 0 })).json());
      render({ ...page, lines: data });
      document.title = `${textAt(page.result, 'verdict')}: ${textAt(page.result, 'command')}`;
    } catch (error) {
      text = `No answer since ${clock(Date.now())}: the run has ended, or cannot be reached; at its end it writes report.html.`;
      wait *= 5;
      if (line.dataset.lost) text = line.textContent;
    }
    line.dataset.lost = wait > period ? 'yes' : '';
    if (line.textContent !== text) line.textContent = text;
    setTimeout(follow, wait);
  }

  derive();
  shown = whole;
  isDark.addEventListener('change', drawAll);
  render(page);
  drawAll();
  if (period) follow();
})();
