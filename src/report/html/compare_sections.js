// The sections of results that are compared, of one run's configurations or of many files. Follows sections.js.

// The speed-up of a `bench` test over the number of devices, one line per mode and file, next to the ideal speed-up. A line
// starts at the baseline's number of devices, with its file's value or the baseline.
function speedupChart(test, files) {
  const values = listAt(test, 'values'), baseline = values[0], lines = new Map(), begins = new Map();
  const pointOf = (value) => [value.devices, value.speedup ?? 1];
  for (const value of values.filter((one) => numberAt(one, 'speedup') > 0)) {
    if (value.devices === baseline.devices) {
      if (!begins.has(value.file)) begins.set(value.file, pointOf(value));
      continue;
    }
    const name = (files.length > 1 ? `${value.file}, ` : '') + (value.mode ?? '');
    if (!lines.has(name)) lines.set(name, [begins.get(value.file) || pointOf(baseline)]);
    lines.get(name).push(pointOf(value));
  }
  const series = [...lines].map(([name, points]) => ({ name, points }));
  const ideal = series.flatMap((one) => one.points.map(([devices]) => [devices, devices / baseline.devices]));
  return lineChart(test.test_name, 'devices', 'speed-up', [...series, { name: 'ideal', points: ideal, isIdeal: true }]);
}

function scalingPart({ comparison }) {
  const isBench = (test) => test.better === 'higher' && listAt(test, 'values').some((value) => numberAt(value, 'ms_per_batch') !== null);
  const charts = listAt(comparison, 'tests').filter(isBench).map((test) => speedupChart(test, comparison.files)).filter(Boolean);
  return charts.length ? [html('p', {}, 'Against the fewest devices; both axes are logarithmic.'), html('div', { class: 'figures' }, charts)] : null;
}

function filesPart({ comparison, text }) {
  const cell = (file, key) => textAt(file, key) || '-';
  return text ? table('Files, the baseline first', ['file', 'path', 'command', 'verdict', 'version', 'left out'], listAt(comparison, 'files').map((file) =>
    [textAt(file, 'label'), ...['path', 'command', 'verdict', 'program_version', 'problem'].map((key) => cell(file, key))]), true) : null;
}

// A bar from the middle: to the right what is better than the baseline, to the left what is worse. `longest`: percent at the end.
function gainBar(percent, longest) {
  const length = (50 * Math.min(Math.abs(percent), longest)) / longest;
  return svg('svg', { class: `bar ${percent < 0 ? 'loss' : 'gain'}`, viewBox: '0 0 100 10', preserveAspectRatio: 'none', 'aria-hidden': true },
    svg('rect', { x: percent < 0 ? 50 - length : 50, width: length, height: 10 }), svg('line', { x1: 50, x2: 50, y1: 0, y2: 10 }));
}

// Values next to their baselines, the worst first. Those within the tolerance are collapsed if there are many.
function testsPart({ tests, comparison }) {
  const [head, ...rows] = tests || [];
  if (!head) return null;
  const gains = rows.map((row) => Math.abs(row.gain_percent ?? 0));
  const longest = Math.min(100, Math.max(100 * comparison.tolerance * 2, 1, ...gains)), hasBars = gains.some((gain) => gain > 0);
  const cells = (row) => {
    const bar = hasBars ? [row.gain_percent === null ? '-' : gainBar(row.gain_percent, longest)] : [];
    const kind = (column) => [column && column < head.cells.length - 1 ? 'short' : null, row.is_worse ? 'bad' : null].filter(Boolean).join(' ') || null;
    return [...row.cells.map((cell, column) => [cell, kind(column)]), ...bar];
  };
  const show = (caption, some) => table(caption, [...head.cells, ...(hasBars ? ['Worse | better'] : [])], some.map(cells), true);
  const within = rows.filter((row) => row.is_within), others = rows.filter((row) => !row.is_within);
  if (within.length < 8 || !others.length) return show('The worst first; a bar is the change, and its middle is the baseline', rows);
  return [show('The worst first; a bar is the change, and its middle is the baseline', others), details(`${counted(within.length, 'value')} within tolerance`, show('Within tolerance', within))];
}

// Of a comparison or a fleet.
function comparisonHeader({ comparison, fleet }) {
  if (fleet) return verdictHeader(fleet, counted(listAt(fleet, 'nodes').length, 'node'), '');
  return verdictHeader(comparison, counted(listAt(comparison, 'files').filter((file) => at(file, 'compared')).length, 'result'), '');
}

// One row per node. Rates are neutral within the tolerance and amber below it; only faults are red.
function fleetPart({ fleet }) {
  const names = listAt(fleet, 'rate_columns'), limit = 1 - (numberAt(fleet, 'tolerance') ?? 0);
  const percent = (ratio, digits) => (ratio === null ? '-' : `${fixed(100 * ratio, digits)} %`);
  const rate = (node, name) => {
    const own = listAt(node, 'rates').find((one) => at(one, 'name') === name), ratio = numberAt(own, 'ratio');
    if (ratio === null) return ['-', 'short'];
    const away = Math.abs(ratio - 1) < 5e-4 ? '0.0 %' : `${ratio > 1 ? '+' : ''}${percent(ratio - 1, 1)}`;
    return [html('span', { title: amount(own.value, own.unit) }, away), ratio < limit ? 'short notable' : 'short'];
  };
  const rows = listAt(fleet, 'nodes').map((node) => {
    const verdict = textAt(node, 'verdict'), kind = { pass: 'pass', fault: 'fault', suspect: 'fault' }[verdict] || 'warn';
    const colour = { pass: '', fault: ' bad', warn: ' notable' }[kind], errors = numberAt(node, 'errors') || 0;
    const command = textAt(node, 'action', 'command'), seconds = numberAt(node, 'duration_seconds');
    const advice = [textAt(node, 'reason') || null, isObject(at(node, 'action')) ? html('p', {}, `Action: ${textAt(node, 'action', 'text')}`,
      command ? ['. First: ', html('code', {}, command)] : null) : null].filter(Boolean);
    return [textAt(node, 'node'), [`${{ pass: '✓', fault: '✗', warn: '!' }[kind]} ${verdict}`, `short${colour}`],
      advice.length ? [html('div', {}, advice), 'wide'] : '-', [String(errors), errors ? 'bad' : null], percent(numberAt(node, 'power_ratio'), 0),
      numberAt(node, 'max_temperature_c') === null ? '-' : [`${fixed(node.max_temperature_c, 0)} °C`, 'short'], ...names.map((name) => rate(node, name)),
      seconds === null ? '-' : [duration(seconds), 'short'], textAt(node, 'ended_at') ? [textAt(node, 'ended_at').replace('T', ' ').slice(0, 16), 'short'] : '-',
      node.runs > 1 ? [`${node.runs}, before: ${textAt(node, 'earlier_verdict')}`, 'short'] : '1', textAt(node, 'command') || '-', [textAt(node, 'devices') || '-', 'short']];
  });
  return table('One row per node, what needs action first; rates against the median of nodes of the same model and options',
    ['node', 'verdict', 'first reason', 'errors', 'power of its limit', 'hottest', ...names, 'duration', 'ended (UTC)', 'runs', 'command', 'devices'], rows, true);
}
