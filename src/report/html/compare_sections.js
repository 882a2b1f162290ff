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

// One bar per value: its speed-up over the test's baseline, which the marker shows.
function testsPart({ comparison, text }) {
  if (!text) return null;
  const percent = (value, sign) => (value === null ? '-' : `${sign && value >= 0 ? '+' : ''}${Math.abs(value) >= 1e5 ? value.toPrecision(2) : value.toFixed(1)} %`);
  const isRegression = (test, value) => comparison.regressions.some((one) =>
    one.test_name === test.test_name && one.figure === test.figure && ['file', 'configuration', 'mode'].every((key) => one[key] === value[key]));
  const rows = comparison.tests.filter((test) => test.figure !== null).flatMap((test) => {
    const longest = Math.max(1, ...test.values.map((value) => value.speedup ?? 0));
    return test.values.map((value) => {
      const isWorse = !value.success || isRegression(test, value), number = (content) => [content, isWorse ? 'bad short' : 'short'];
      const name = (content) => [content, isWorse ? 'bad' : null], mark = 100 / longest;
      const bar = () => svg('svg', { class: 'bar', viewBox: '0 0 100 10', preserveAspectRatio: 'none', 'aria-hidden': true },
        svg('rect', { width: value.speedup * mark, height: 10 }), svg('line', { x1: mark, x2: mark, y1: 0, y2: 10 }));
      return [name(`${test.test_name} (${test.figure})`), name(`${value.file}: ${value.configuration}${value.success ? '' : ', failed'}`),
        value.speedup === null ? '-' : bar(),
        number(value.speedup === null ? '-' : `${value.speedup < 1e4 ? value.speedup.toFixed(2) : value.speedup.toPrecision(3)}x`),
        number(value.value === null ? 'not measured' : amount(value.value, test.unit)),
        number(percent(value.efficiency === null ? null : 100 * value.efficiency, false)), number(percent(value.change_percent, true))];
    });
  });
  return table('Each test; a bar is the speed-up, so longer is better, and its rule is the baseline',
    ['test', 'file and devices', 'speed-up', 'times', 'value', 'efficiency', 'change'], rows, true);
}
