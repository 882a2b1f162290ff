'use strict';
// Draws the time series of the page's data with a common zoom, and updates the page of a running run.
(() => {
  let page = JSON.parse(document.getElementById('data').textContent);
  let data = page.lines || { charts: [], phases: [] };  // of the time series
  const isDark = matchMedia('(prefers-color-scheme: dark)');
  const isTouch = matchMedia('(pointer: coarse)').matches;  // a finger on a chart must scroll the page
  const timeSteps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400];  // seconds
  const chosen = new Map();  // by name of a line: whether its button shows it; others are shown as the chart wants
  const graphs = [];
  let charts, marks, faults, count, times, start, whole, names, phases, shown;

  // Computes the values derived from the data.
  function derive() {
    const kinds = { loss: 'fault', finding: 'finding', restart: 'finding' };
    const fault = (one) => `${textAt(one, 'kind')} fault, rank ${figureAt(one, 'rank')}: ${textAt(one, 'where')}`;
    charts = data.charts.filter((chart) => chart.lines.length);  // the table shows constant values
    marks = [...listAt(page.result, 'faults').map((one) => ({ kind: 'fault', time: at(one, 'time'), text: fault(one) })),
      ...listAt(page, 'events').map((event) => ({ ...event, kind: kinds[event.what] })),
      ...listAt(page.result, 'parts_of_run').map((part, number) => ({ kind: 'part', time: at(part, 'started_at'), text: `part ${number + 1} of the run begins` }))]
      .map((mark) => ({ ...mark, at: Date.parse(mark.time) })).filter((mark) => mark.at);
    faults = marks.filter((mark) => mark.kind === 'fault').sort((a, b) => a.at - b.at);
    count = charts.length ? charts[0].lines[0].mean.length : 0;
    times = Array.from({ length: count }, (_, at) => (data.began + (at + 0.5) * data.seconds) * 1000);
    start = Math.min(Date.parse(textAt(page.result, 'system_info', 'started_at')) || Infinity, data.began * 1000);
    const all = [...times.slice(0, 1), ...times.slice(-1), ...marks.map((mark) => mark.at)];
    whole = [Math.min(...all), Math.max(...all)];
    const margin = Math.max(whole[1] - whole[0], 1000) / 100;
    whole[0] -= margin;
    whole[1] += margin;
    names = [...new Set(charts.flatMap((chart) => chart.lines.map((line) => line.name)))];
    const lasts = new Map();
    data.phases.forEach(({ name, time }, at) => lasts.set(name, (lasts.get(name) || 0) + ((data.phases[at + 1]?.time ?? whole[1] / 1000) - time)));
    phases = [...lasts].sort((a, b) => b[1] - a[1]).map(([name]) => name);  // the longest has no band
  }

  const isRank = (name) => name.startsWith('rank ');
  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const colour = (name) => style(isRank(name) ? `--of-${name.slice(5) % 6}` : '--text');
  const tint = (name) => 5 - (phases.indexOf(name) % 6);  // the palette from its end, since few ranks use that
  const isShown = (chart, name) => chosen.get(name) ?? (!isRank(name) || chart.own_lines.includes(name));

  // "0:10", "1:02:30": time since the start of the run
  function elapsed(ms) {
    const all = Math.max(0, Math.round((ms - start) / 1000)), two = (value) => String(Math.floor(value)).padStart(2, '0');
    return (all < 3600 ? Math.floor(all / 60) : `${Math.floor(all / 3600)}:${two((all / 60) % 60)}`) + `:${two(all % 60)}`;
  }
  function timeTicks(from, to, pixels) {
    const seconds = (to - from) / 1000, room = Math.max(pixels / 70, 2), ticks = [];
    const step = 1000 * (timeSteps.find((one) => seconds / one <= room) || 86400 * Math.ceil(seconds / 86400 / room));
    for (let v = start + Math.max(0, Math.ceil((from - start) / step)) * step; v <= to; v += step) ticks.push({ v, label: elapsed(v) });
    return ticks;
  }
  // At 1, 2 or 5 times a power of ten of the unit that the chart shows, with as many decimals as make them distinct.
  function valueTicks(from, to, pixels, factor) {
    const least = ((to - from) * factor) / Math.max(pixels / 30, 2), power = 10 ** Math.floor(Math.log10(least)), ticks = [];
    const step = power * [1, 2, 5, 10].find((one) => one * power >= least * 0.999), decimals = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
    for (let at = Math.ceil((from * factor) / step); at <= Math.floor((to * factor) / step); ++at)
      ticks.push({ v: (at * step) / factor, label: decimals > 4 ? (at * step).toExponential(1) : (at * step).toFixed(decimals) });
    return ticks;
  }

  // Draws phases, limits and events behind the lines.
  function drawMarks(canvas, area, graph, chart) {
    const [from, to] = graph.xAxisRange();
    data.phases.forEach((phase, at) => {
      const next = at + 1 < data.phases.length ? data.phases[at + 1].time * 1000 : to;
      const left = Math.max(graph.toDomXCoord(phase.time * 1000), area.x);
      const right = Math.min(graph.toDomXCoord(next), area.x + area.w);
      if (right <= left || phase.name === phases[0]) return;
      canvas.globalAlpha = 0.18;
      canvas.fillStyle = style(`--of-${tint(phase.name)}`);
      canvas.fillRect(left, area.y, right - left, area.h);
      canvas.globalAlpha = 1;
    });
    canvas.lineWidth = 1;
    canvas.strokeStyle = canvas.fillStyle = style('--text');
    canvas.font = '11px sans-serif';
    canvas.textAlign = 'right';
    canvas.setLineDash([6, 4]);
    for (const limit of chart.limits) {
      const y = graph.toDomYCoord(limit);
      line(area.x, y, area.x + area.w, y);
      canvas.fillText(`${short(limit)} ${chart.unit} limit`, area.x + area.w - 3, y - 4);
    }
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

  // Percentages from 0 to 100; others span a tenth of their maximum or more, so that noise does not look like a collapse.
  function range(chart) {
    let low = Infinity, high = -Infinity;
    for (const line of chart.lines)
      for (const value of [...(line.least || line.mean), ...(line.most || line.mean)])
        if (value !== null) [low, high] = [Math.min(low, value), Math.max(high, value)];
    if (chart.unit.startsWith('%')) return [0, Math.max(high, 100) * 1.02];
    for (const limit of chart.limits) [low, high] = [Math.min(low, limit), Math.max(high, limit)];
    const more = Math.max((high - low || 1) * (chart.limits.length ? 0.12 : 0.06), (Math.abs(high) / 10 - (high - low)) / 2);
    return [low >= 0 && low < more ? 0 : low - more, high + more];
  }

  function values(chart, at) {
    const { factor } = unitFor(chart), number = (value) => short(value === null ? null : value * factor);
    return chart.lines.filter((line) => isShown(chart, line.name)).map((line) => {
      const band = line.least && line.least[at] !== line.most[at] ? ` (${number(line.least[at])} to ${number(line.most[at])})` : '';
      return `${line.name}: ${number(line.mean[at])}${band}`;
    }).join('; ');
  }

  // Writes the moment of that point, and each chart's values, next to the charts.
  function showValues(at) {
    const near = marks.filter((mark) => Math.abs(mark.at - times[at]) <= Math.max(data.seconds * 1000, (shown[1] - shown[0]) / 150));
    const phase = data.phases.filter((one) => one.time * 1000 <= times[at]).pop();
    document.getElementById('now').textContent = [`${elapsed(times[at])} since the start, ${clock(times[at])} UTC`, phase && phase.name,
      ...near.slice(0, 3).map((mark) => mark.text)].filter(Boolean).join(' · ');
    for (const one of graphs) one.values.textContent = values(one.chart, at);
  }

  function rowsOf(chart) {
    return times.map((time, at) => [time, ...chart.lines.map((line) => {
      const mean = line.mean[at];
      return mean === null ? [null, null, null] : [line.least ? line.least[at] : mean, mean, line.most ? line.most[at] : mean];
    })]);
  }

  function label({ box, caption, chart }) {
    const apart = chart.lines[0].name.startsWith('median') ? chart.own_lines : [];
    box.setAttribute('aria-label', `${chart.title}, ${clock(whole[0])} to ${clock(whole[1])} UTC; the table below has its figures`);
    caption.replaceChildren(titleOf(chart), ...apart.flatMap((name) => [' ', html('small', { class: `key of-${name.slice(5) % 6}` }, html('span', {}, name))]));
  }

  function draw(chart, place) {
    const one = { chart, caption: html('figcaption', {}), box: html('div', { class: 'chart', role: 'img' }), values: html('div', { class: 'values' }) };
    place.append(html('figure', {}, one.caption, one.box, one.values));
    label(one);
    one.graph = new Dygraph(one.box, rowsOf(chart), {
      labels: ['time', ...chart.lines.map((line) => line.name)],
      colors: chart.lines.map((line) => colour(line.name)), visibility: chart.lines.map((line) => isShown(chart, line.name)),
      customBars: true, connectSeparatedPoints: true, fillAlpha: 0.18, strokeWidth: 1.4, legend: 'never',
      gridLineColor: style('--line'), axisLineColor: style('--line'), gridLineWidth: 0.4, animatedZooms: false,
      dateWindow: whole, valueRange: range(chart), drawPoints: count < 3,
      axes: { x: { ticker: timeTicks }, y: { axisLabelWidth: 48, ticker: (from, to, pixels) => valueTicks(from, to, pixels, unitFor(one.chart).factor) } },
      underlayCallback: (canvas, area, self) => drawMarks(canvas, area, self, one.chart),
      drawCallback: (self, first) => first || show(self.xAxisRange(), self),
      highlightCallback: (event, x, points, at) => showValues(at),
      ...(isTouch ? { interactionModel: {} } : {}),
    });
    graphs.push(one);
  }

  // What the colours, bands and lines of all charts mean.
  function legend() {
    const key = (name, kind) => html('li', { class: `key ${kind}` }, html('span', {}, name)), has = (kind) => marks.some((mark) => mark.kind === kind);
    const hasMedian = names.some((name) => name.startsWith('median'));
    document.getElementById('legend').replaceChildren(
      html('p', {}, `Horizontal axis: time since the start of the run at ${clock(start)} UTC, as m:ss or h:mm:ss.${hasMedian
        ? ' Line and band: median of the ranks, between their minimum and maximum. Ranks far from the median, or with faults or findings, have their own lines; the buttons show others.' : ''}`),
      html('ul', {}, phases.map((name, at) => (at ? key(name, `band of-${tint(name)}`) : html('li', {}, `Precision: ${name}${phases[1] ? ' (no band)' : ''}`))),
        has('fault') ? key('fault', 'fault') : null, has('finding') ? key('finding or restart', 'finding') : null,
        page.result.parts_of_run?.length > 1 ? key('part of the run', 'part') : null));
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
    showValues(Math.max(0, Math.min(count - 1, Math.floor((at / 1000 - data.began) / data.seconds))));
  }

  function drawAll() {
    graphs.splice(0).forEach(({ graph }) => graph.destroy());
    const places = [...document.querySelectorAll('.charts')];
    for (const place of places) place.textContent = '';
    if (typeof Dygraph === 'undefined' || !count) return;
    tools.hidden = false;
    nameRanks();
    for (const chart of charts) draw(chart, places.find((place) => place.dataset.group === chart.group));
    showRanks();
    const now = shown;
    shown = whole;
    if (now !== whole) show(now);
  }
  // A button is pressed if all charts show its line, "mixed" if some do.
  function showRanks() {
    for (const button of document.querySelectorAll('#ranks button')) {
      const name = button.textContent, on = charts.filter((chart) => chart.lines.some((line) => line.name === name)).map((chart) => isShown(chart, name));
      button.setAttribute('aria-pressed', on.every(Boolean) ? 'true' : on.some(Boolean) ? 'mixed' : 'false');
      button.style.setProperty('--of-rank', colour(name));
    }
    for (const { graph, chart } of graphs) {
      const visible = chart.lines.map((line) => isShown(chart, line.name));
      if (visible.join() !== graph.visibility().join()) graph.updateOptions({ visibility: visible });
    }
  }

  const tools = document.getElementById('tools');
  function nameRanks() {
    legend();
    tools.querySelector('[data-do=fault]').hidden = !faults.length;
    const place = document.getElementById('ranks');
    if (place.dataset.names === names.join()) return;
    place.dataset.names = names.join();
    place.textContent = '';
    for (const name of names.length > 1 ? names : []) {
      const button = html('button', { type: 'button' }, name);
      place.append(button);
      button.addEventListener('click', () => {
        chosen.set(name, button.getAttribute('aria-pressed') !== 'true');
        showRanks();
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
    render({ ...page, lines: data });
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
  // The state of a running run: the newest answer, and when its parts arrived by this computer's clock.
  const live = { at: 0, isLost: false, isWaiting: false, heard: new Map() };
  function accept(fresh) {
    page = fresh;
    live.at = Date.now();
    live.isLost = false;
    listAt(page, 'live', 'heard').forEach((time, rank) => {
      if (time !== null && live.heard.get(rank)?.time !== time) live.heard.set(rank, { time, at: live.at - (page.live.now - time) * 1000 });
    });
  }
  const hasEnded = () => at(page.result, 'running') !== true;
  // Asks for the result, which the server sends when the run ends.
  async function awaitEnd() {
    if (live.isWaiting) return;
    live.isWaiting = true;
    try {
      accept(await (await ask('api/end', {})).json());
      render({ ...page, lines: data });
    } catch { /* asked again with the next update */ }
    live.isWaiting = false;
    showLive();
  }
  async function follow() {
    if (hasEnded()) return;
    awaitEnd();
    try {
      const fresh = await (await ask('api/page', {})).json();
      if (hasEnded()) return;
      accept(fresh);
      const from = Math.max(count - 1, 0);  // the last point may have grown
      if (!take(await (await ask('api/lines', { from, seconds: data.seconds })).json())) take(await (await ask('api/lines', { from: 0 })).json());
    } catch {
      live.isLost = true;
    }
    showLive();
    if (!hasEnded()) setTimeout(follow, live.isLost ? 5 * period : period);
  }
  // Seconds since each rank's last record; of many ranks the longest.
  function silences() {
    const all = listAt(page, 'live', 'heard').map((_, rank) => ({ rank, age: (Date.now() - (live.heard.get(rank)?.at ?? -Infinity)) / 1000 })), most = 16;
    const text = ({ rank, age }) => html('span', { class: age > 10 ? 'bad' : null }, `rank ${rank} ${age < Infinity ? `${duration(Math.max(0, age))} ago` : 'never'}`);
    if (all.length > most) all.sort((a, b) => (a.age > b.age ? -1 : a.age < b.age ? 1 : a.rank - b.rank));
    return [...all.slice(0, most).flatMap((one, at) => [at ? ', ' : '', text(one)]), all.length > most ? `, and ${all.length - most} later ones` : ''];
  }
  function showLive() {
    const box = document.getElementById('live'), [state, bar, more] = box.children, report = textAt(page, 'live', 'report');
    const age = (Date.now() - live.at) / 1000, done = numberAt(page, 'live', 'done') || 0, seconds = (numberAt(page, 'live', 'elapsed_seconds') || 0) + age;
    const text = hasEnded() ? `The run has ended: ${textAt(page.result, 'verdict')}.${report ? ` The final report is ${report}.` : ''}`
      : live.isLost ? `No answer since ${clock(live.at)} UTC: the run has ended or its first rank was lost; see ${report}.` : 'Live: this page follows the run.';
    const total = done ? (seconds - age) / done : 0, left = total - seconds, isRunning = !hasEnded() && !live.isLost;
    box.hidden = false;
    box.dataset.lost = isRunning ? '' : 'yes';
    if (state.textContent !== text) state.textContent = text;
    bar.hidden = !(isRunning && done);
    bar.value = total ? Math.min(1, seconds / total) : 0;
    more.replaceChildren(...(isRunning ? [`${duration(seconds)} elapsed, `, done && (done === 1 || left < 0.5 ? 'finishing checks, ' : `${duration(left)} left, `),
      `updated ${duration(age)} ago. Last reports: `, ...silences()] : [`The page shows the ${hasEnded() ? 'result' : 'last state'}.`]).filter(Boolean));
    if (document.title !== textAt(page, 'title')) document.title = textAt(page, 'title');
  }

  derive();
  shown = whole;
  isDark.addEventListener('change', drawAll);
  render(page);
  drawAll();
  if (period) {
    accept(page);
    follow();
    setInterval(showLive, 1000);
  }
})();
