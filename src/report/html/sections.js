'use strict';
// Builds the sections of the page from its data. Names of hosts, files and devices are untrusted: they become text nodes
// and attributes, never markup. The result may be truncated or from another version: `at` and its variants read any value.

const maxReasons = 8;    // visible without expanding
const maxRows = 1000;    // of faults; result.json has all
const maxEntries = 500;  // of results of one kind
const maxText = 80;      // longer texts are not shown as metrics

const isObject = (value) => value !== null && typeof value === 'object';
const at = (json, ...keys) => keys.reduce((value, key) => (isObject(value) && Object.hasOwn(value, key) ? value[key] : null), json);
const textAt = (json, ...keys) => (typeof at(json, ...keys) === 'string' ? at(json, ...keys) : '');
const numberAt = (json, ...keys) => (typeof at(json, ...keys) === 'number' ? at(json, ...keys) : null);
const listAt = (json, ...keys) => (Array.isArray(at(json, ...keys)) ? at(json, ...keys) : []);
const entriesAt = (json, ...keys) => Object.entries(isObject(at(json, ...keys)) ? at(json, ...keys) : {});

// Numbers as the console prints them; a dash for null.
function short(value) {
  const digits = +value?.toPrecision(4);
  if (value === null || value === undefined) return '-';
  return digits && Math.abs(digits) < 1e-4 ? digits.toExponential() : String(digits);
}
const fixed = (value, digits) => (value === null ? '-' : value.toFixed(digits));
const counted = (count, noun) => `${count} ${noun}${count === 1 ? '' : 's'}`;
const spoken = (name) => name.replaceAll('_', ' ');
const clock = (ms) => new Date(ms).toISOString().replace('T', ' ').slice(0, 19);

// `value` divided by a power of 1000, and the prefix of that power. The power grows at the value `first`, then at `next`.
function scaled(value, first, next) {
  let power = 0;
  for (; value >= (power ? next : first) && power < 6; ++power) value /= 1000;
  return [value, ['', 'K', 'M', 'G', 'T', 'P', 'E'][power]];
}
// "1.50 GB"
function bytes(count) {
  const [value, power] = scaled(count, 999.5, 999.5);
  return `${value.toFixed(!power || value >= 99.95 ? 0 : value < 9.995 ? 2 : 1)} ${power}B`;
}
// "12.35 k samples/s"
function amount(count, unit) {
  const [value, power] = scaled(count, 1e4, 1e3);
  return `${short(value)} ${power && power.replace('K', 'k') + ' '}${unit}`;
}
// "1 m 05 s"
function duration(seconds) {
  const all = Math.round(seconds), two = (value) => String(Math.floor(value)).padStart(2, '0');
  if (all < 60) return `${all} s`;
  if (all < 3600) return `${Math.floor(all / 60)} m ${two(all % 60)} s`;
  if (all < 86400) return `${Math.floor(all / 3600)} h ${two((all / 60) % 60)} m`;
  return `${Math.floor(all / 86400)} d ${two((all / 3600) % 24)} h`;
}
// A value of the result; a number of bytes if its name begins or ends with that word.
function figure(value, name = '') {
  if (value === null || typeof value === 'string') return value ?? '-';
  if (typeof value === 'boolean') return value ? 'yes' : 'no';
  if (typeof value !== 'number') return JSON.stringify(value);
  if (name.startsWith('bytes') || name.endsWith('bytes')) return bytes(value);
  return Number.isInteger(value) ? String(value) : short(value);
}
const figureAt = (json, ...keys) => figure(at(json, ...keys), keys.at(-1));

// Functions that build an element. Attributes and children that are null are left out; a child is a node or a text.
const builder = (space) => (tag, attributes, ...children) => {
  const element = document.createElementNS(`http://www.w3.org/${space}`, tag);
  for (const [name, value] of Object.entries(attributes)) if (value !== null) element.setAttribute(name, value);
  element.append(...children.flat().filter((child) => child !== null));
  return element;
};
const html = builder('1999/xhtml'), svg = builder('2000/svg');

const items = (lines) => html('ul', {}, lines.map((line) => html('li', {}, line)));
const details = (title, ...content) => html('details', {}, html('summary', {}, title), ...content);
const terminal = (label, text) => html('pre', { tabindex: 0, role: 'region', 'aria-label': label }, text);

// A cell is a text, a node, or one of them with its class: [content, class]. The first one of a row is its header.
// `cards`: narrow screens show each row as a card; otherwise the table scrolls. Null without rows.
function table(caption, columns, rows, cards = false) {
  if (!rows.length) return null;
  const role = (name) => (cards ? name : null);
  const cell = (content, column) => {
    const [inner, kind] = Array.isArray(content) ? content : [content, null];
    return html(column ? 'td' : 'th', { scope: column ? null : 'row', class: kind, role: role(column ? 'cell' : 'rowheader'),
      'data-label': role(columns[column]), 'data-none': role(inner === '-' ? '' : null) }, inner);
  };
  const head = columns.map((column) => html('th', { scope: 'col', role: role('columnheader') }, column));
  return html('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': caption },
    html('table', { class: role('cards'), role: role('table') }, html('caption', {}, caption), html('thead', {}, html('tr', { role: role('row') }, head)),
      html('tbody', {}, rows.map((cells) => html('tr', { role: role('row') }, cells.map(cell))))));
}

// Whether the page has charts, in which a time can be shown.
const hasCharts = (data) => typeof Dygraph !== 'undefined' && listAt(data, 'lines', 'charts').some((chart) => chart.lines.length);
function moment(data, time) {
  if (!Date.parse(time)) return time || '-';
  if (!hasCharts(data)) return html('time', { datetime: time }, time);
  return html('button', { type: 'button', class: 'moment', 'data-time': time, title: 'Show this moment in the charts' }, clock(Date.parse(time)));
}

// All faults of selftest are injected, so they are no evidence against a device.
const isSelftest = (result) => textAt(result, 'command') === 'selftest';

// Number of faults per rank, for each rank with faults or a loss.
function faultsByRank(result) {
  const counts = new Map(listAt(result, 'losses').map((loss) => [at(loss, 'rank'), 0]));
  for (const fault of listAt(result, 'faults')) counts.set(at(fault, 'rank'), (counts.get(at(fault, 'rank')) || 0) + 1);
  return counts;
}

// The verdict and its reasons, for a run or a comparison. `of`: its subject; `when`: its time.
function verdictHeader(result, of, when) {
  const verdict = textAt(result, 'verdict'), code = numberAt(result, 'exit_code') ?? 4;
  const isRunning = at(result, 'running') === true, isOpen = isRunning && verdict === 'running';
  const kind = isOpen ? 'running' : { 0: 'pass', 1: 'fault' }[code] || 'warn';
  const reasons = listAt(result, 'reasons').map((reason) => figure(reason)), notRun = listAt(result, 'checks_not_run');
  return html('header', { class: `verdict ${kind}` }, html('p', {}, `${textAt(result, 'command')}, ${of}`),
    html('h1', {}, html('span', { 'aria-hidden': true }, { running: '●', pass: '✓', fault: '✗', warn: '!' }[kind]), ` ${verdict || 'no verdict'} `,
      html('small', {}, isOpen ? 'no verdict yet' : isRunning ? 'so far' : `exit code ${code}`)),
    items(reasons.slice(0, maxReasons)),
    reasons.length > maxReasons ? details(counted(reasons.length - maxReasons, 'more reason'), items(reasons.slice(maxReasons))) : null,
    notRun.length ? details(`Checks not run: ${notRun.length}`, items(notRun.map((one) =>
      `${textAt(one, 'check')}${numberAt(one, 'rank') === null ? '' : ` (rank ${at(one, 'rank')})`}: ${textAt(one, 'reason')}`))) : null,
    html('p', {}, when));
}

// Devices blamed by faults, most faults first, so that an operator can locate them.
function namedDevices(result) {
  const counts = faultsByRank(result), faults = (rank) => counts.get(at(rank, 'rank'));
  const named = listAt(result, 'ranks').filter((rank) => faults(rank) !== undefined).sort((a, b) => faults(b) - faults(a));
  if (isSelftest(result) || !named.length) return [];
  return [html('h2', {}, 'Named by the checks'), html('ul', { class: 'named' }, named.map((rank) => html('li', {},
    html('b', {}, `rank ${at(rank, 'rank')}`), ' on ', html('b', {}, textAt(rank, 'hostname')), `: ${textAt(rank, 'device', 'name')}`,
    ['uuid', 'pci_bus_id', 'serial'].filter((key) => textAt(rank, 'device', key)).flatMap((key) => [', ', html('code', {}, textAt(rank, 'device', key))]),
    faults(rank) ? ` (${counted(faults(rank), 'fault')})` : ' (lost)')))];
}

// The recommended action of each node that needs one.
function actions(result) {
  const nodes = listAt(result, 'nodes').filter((node) => !['', 'none'].includes(textAt(node, 'action', 'name')));
  return nodes.length ? [html('h2', {}, 'What to do'), html('ul', { class: 'named' }, nodes.map((node) => html('li', {},
    html('b', {}, textAt(node, 'hostname')), `: ${textAt(node, 'action', 'text')}`,
    numberAt(node, 'action', 'rank') === null ? '' : ` (rank ${at(node, 'action', 'rank')})`,
    textAt(node, 'action', 'command') ? ['. First: ', html('code', {}, textAt(node, 'action', 'command'))] : '')))] : [];
}

function tiles(data) {
  const result = data.result, telemetry = entriesAt(result, 'telemetry').map(([, one]) => one);
  const seconds = numberAt(result, 'test_summary', 'actual_duration_seconds');
  const repeats = listAt(result, 'fault_repeats').reduce((sum, repeat) => sum + (numberAt(repeat, 'count') || 0), 0);
  const faults = listAt(result, 'faults').length;
  const hottest = telemetry.map((one) => numberAt(one, 'temperature_c', 'max')).filter((celsius) => celsius !== null);
  const power = telemetry.filter((one) => numberAt(one, 'power_w_mean') !== null && numberAt(one, 'power_limit_w') > 0)
    .map((one) => fixed((100 * one.power_w_mean) / one.power_limit_w, 0)).sort((a, b) => a - b);
  const all = [
    seconds === null ? null : ['Duration', duration(seconds)],
    ['Faults', repeats ? `${faults} + ${repeats} repeats` : faults],
    power.length ? ['Power of its limit', `${power[0] === power.at(-1) ? '' : `${power[0]} to `}${power.at(-1)} %`] : null,
    hottest.length ? ['Hottest', `${fixed(Math.max(...hottest), 0)} °C`] : null,
    ...listAt(data, 'work'),
    ...entriesAt(result, 'verified_share').map(([kind, share]) => (typeof share === 'number' ? [`Verified: ${spoken(kind)}`, `${short(100 * share)} %`] : null)),
  ];
  return html('dl', { class: 'tiles' }, all.filter(Boolean).map(([name, value]) => html('div', {}, html('dt', {}, name), html('dd', {}, value))));
}

function verdictPart(data) {
  if (data.text) return verdictHeader(data.comparison, counted(listAt(data.comparison, 'files').filter((file) => at(file, 'compared')).length, 'result'), '');
  const { result } = data, ranks = listAt(result, 'ranks'), hosts = listAt(result, 'system_info', 'hostnames').length;
  const names = [...new Set(ranks.map((rank) => textAt(rank, 'device', 'name')))];
  const place = hosts === 1 ? textAt(result, 'system_info', 'hostname') : `${hosts} hosts`;
  return [verdictHeader(result, `${counted(ranks.length, 'rank')} on ${place}: ${names.join(', ')}`,
    `${textAt(result, 'system_info', 'started_at')} to ${textAt(result, 'system_info', 'ended_at')} (UTC)`), ...namedDevices(result), ...actions(result), tiles(data)];
}

// "0x02000080 (bits 7, 25)", which distinguishes a stuck bit from a lost line.
function xorText(mask) {
  if (!/^0x[0-9a-f]{1,16}$/.test(mask)) return mask;
  const bits = [...BigInt(mask).toString(2)].reverse().flatMap((digit, bit) => (digit === '1' ? [bit] : []));
  if (!bits.length) return mask;
  return bits.length > 4 ? `${mask} (${bits.length} bits)` : `${mask} (bit${bits.length === 1 ? '' : 's'} ${bits.join(', ')})`;
}

const spacing = (of, unit = '') => numberAt(of, 'period') && `${numberAt(of, 'stride') ? 'stride' : 'period'} ${numberAt(of, 'period')}${unit}`;

// Wrong words: addresses from left to right, bit 0 at the bottom. A bad cell of every row is a line from left to right, a wrong word one
// from top to bottom.
function wordMap(map) {
  const offsets = listAt(map, 'offsets'), ends = [offsets[0], offsets.at(-1)], readers = numberAt(map, 'readers');
  const bitsOf = (xor) => [...Array(32).keys()].filter((bit) => (parseInt(xor, 16) >>> bit) & 1);
  return { label: 'Wrong bits by address', x: ends, y: [0, 31], points: offsets.flatMap((offset, i) => bitsOf(listAt(map, 'xors')[i]).map((bit) => [offset, 31 - bit])),
    text: [`${offsets.length} positions from ${ends[0]} to ${ends[1]}`, spacing(map, ' bytes'), `bits ${textAt(map, 'xor_or')}`,
      readers && `read by ${counted(readers, 'multiprocessor')}`] };
}

// Wrong elements of a GEMM, as its matrix is written.
function elementMap(map) {
  const ends = (name) => [numberAt(map, name, 'first'), numberAt(map, name, 'last')], tile = at(map, 'tile'), rows = listAt(map, 'rows');
  const lines = (name) => [`${name}s ${ends(name).join(' to ')}`, spacing(at(map, name))];
  return { label: 'Wrong elements by row and column', x: ends('column'), y: ends('row'), points: listAt(map, 'columns').map((column, i) => [column, rows[i]]),
    text: [`${rows.length} of ${counted(numberAt(map, 'wrong'), 'wrong element')}`, ...lines('row'), ...lines('column'),
      tile && `tile ${figureAt(tile, 'rows')} x ${figureAt(tile, 'columns')} at row ${figureAt(tile, 'row')}, column ${figureAt(tile, 'column')}`] };
}

// `where`, and a picture of the known wrong positions.
function errorMap(map, where) {
  const { label, x, y, points, text } = listAt(map, 'columns').length ? elementMap(map) : wordMap(map);
  if (points.length < 2 || [x, y, ...points].flat().some((value) => !Number.isFinite(value))) return where;
  const along = ([first, last], size, least) => {
    const extent = Math.max(least, size / (last - first + 1));
    return (value) => [(size - extent) * (value - first) / (last - first || 1), extent];
  };
  const across = along(x, 240, 2), down = along(y, 32, 1), title = text.filter(Boolean).join(', ');
  return [where, svg('svg', { class: 'map', viewBox: '0 0 240 32', preserveAspectRatio: 'none', role: 'img', 'aria-label': `${label}: ${title}` }, svg('title', {}, title),
    ...points.map(([column, row]) => svg('rect', { x: across(column)[0], y: down(row)[0], width: across(column)[1], height: down(row)[1] })))];
}

function faultTable(data) {
  const code = (text) => html('code', {}, text), faults = listAt(data.result, 'faults');
  const rows = faults.slice(0, maxRows).map((fault) => [
    figureAt(fault, 'kind'), figureAt(fault, 'rank'), figureAt(fault, 'hostname'), figureAt(fault, 'device_uuid'), moment(data, textAt(fault, 'time')),
    figureAt(fault, 'step'), [errorMap(at(fault, 'map'), figureAt(fault, 'where')), 'wide'], figureAt(fault, 'offset'), code(textAt(fault, 'expected')), code(textAt(fault, 'actual')),
    code(xorText(textAt(fault, 'xor'))), figureAt(fault, 'count'), figureAt(fault, 'detector'),
    textAt(fault, 'blame') + (listAt(fault, 'suspects').length ? `: ranks ${figureAt(fault, 'suspects')}` : '')]);
  return [table('Faults: every wrong result', ['kind', 'rank', 'host', 'device', 'time', 'step', 'where', 'offset', 'expected', 'actual', 'xor', 'count',
    'detector', 'blame'], rows, true),
  faults.length > maxRows ? html('p', {}, `The first ${maxRows} of ${faults.length}; all are in result.json.`) : null];
}

// Other events, one line each.
function eventTable(data) {
  const row = (what, entry, text) => [what, figureAt(entry, 'rank'), moment(data, textAt(entry, 'time')), text];
  return table('Losses, findings, restarts, injected faults', ['what', 'rank', 'time', 'text'], [
    ...listAt(data, 'events').map((event) => row(event.what, event, event.text)),
    ...listAt(data.result, 'fault_repeats').map((entry) =>
      row('repeats', entry, `${counted(numberAt(entry, 'count') || 0, 'more fault')} like one above: ${figure(entry)}`)),
    ...listAt(data.result, 'injections').map((entry) => row('injected', entry, `${textAt(entry, 'planned') || textAt(entry, 'kind')}: ${textAt(entry, 'where')}`
      + (at(entry, 'found') === null ? '' : at(entry, 'found') === true ? '; found' : '; NOT found')))], true);
}

function happened(data) {
  const all = [...faultTable(data), eventTable(data)].filter(Boolean);
  return isSelftest(data.result) && all.length ? details('Injected faults and their detection', all) : all;
}

// "691 (700)"
const withBracket = (value, next) => (next === '-' ? value : `${value} (${next})`);

// One row per rank.
function ranksPart({ result }) {
  const faults = faultsByRank(result);
  const rows = listAt(result, 'ranks').map((rank) => {
    const number = at(rank, 'rank'), count = faults.get(number) || 0, error = at(rank, 'error');
    const of = (...keys) => numberAt(result, 'telemetry', number, ...keys);
    const cells = [figure(number), String(count), textAt(rank, 'hostname'), textAt(rank, 'device', 'name'),
      withBracket(fixed(of('power_w_mean') ?? of('power_w', 'avg'), 0), fixed(of('power_limit_w'), 0)), fixed(of('temperature_c', 'max'), 0),
      fixed(of('sm_clock_mhz', 'avg'), 0), fixed(of('gpu_utilization_percent', 'avg'), 1), figure(of('memory_used_bytes', 'max'), 'bytes'),
      figureAt(rank, 'steps'), figureAt(rank, 'end_reason'), textAt(error, 'what') || figure(error)];
    return cells.map((cell, column) => (column < 4 && count && !isSelftest(result) ? [cell, 'bad'] : cell));
  });
  return [table('Ranks: one per device', ['rank', 'faults', 'host', 'device', 'power W (limit)', 'hottest °C', 'clock MHz', 'utilization %', 'memory used',
    'steps', 'ended', 'error'], rows), peersTable(result)];
}

function peersTable(result) {
  const peers = entriesAt(result, 'peers');
  const figures = [...new Set(peers.flatMap(([, own]) => Object.keys(own ?? {}).filter((name) => numberAt(own, name, 'ratio') !== null)))].sort();
  if (!figures.length) return null;
  return table('Each rank compared with the median of its device model (1 is the median)', ['rank', ...figures.map(spoken)], peers.map(([rank, own]) =>
    [rank, ...figures.map((name) => withBracket(figureAt(own, name, 'value'), fixed(numberAt(own, name, 'ratio'), 3)))]));
}

// One matrix per method of measuring pairs, and per metric.
function linksPart({ result }) {
  const matrices = new Map();
  const add = (caption, from, to, value, kind) => {
    if (value === null) return;
    if (!matrices.has(caption)) matrices.set(caption, new Map());
    matrices.get(caption).set(`${from} ${to}`, [String(+value.toPrecision(3)), kind]);
  };
  for (const unit of ['gb_per_second', 'latency_us'])
    for (const entry of listAt(result, 'results')) {
      const from = numberAt(entry, 'from'), to = numberAt(entry, 'to'), method = textAt(entry, 'method');
      if (textAt(entry, 'measurement') !== 'pair' || from === null || to === null) continue;
      for (const [a, b] of [[from, to], [to, from]]) {
        const way = at(entry, 'one_way', `${a}->${b}`);
        if (unit === 'latency_us') add(`Latency in microseconds, by ${method}`, a, b, numberAt(entry, unit), null);
        else add(`GB/s one way, from the row's rank to the column's, by ${method}; marked: below its limit`, a, b, numberAt(way, unit),
          at(way, 'below_limit') === true ? 'heat' : null);
      }
    }
  return [...matrices].map(([caption, cells]) => {
    const ranks = [...new Set([...cells.keys()].flatMap((pair) => pair.split(' ')))].sort((a, b) => a - b);
    return table(caption, ['from \\ to', ...ranks], ranks.map((from) => [from, ...ranks.map((to) => cells.get(`${from} ${to}`) || '')]));
  });
}

// Numbers, short texts and booleans at any depth, by name: "step_ms p50".
function flatten(json, prefix = '', flat = new Map()) {
  for (const [name, value] of Object.entries(json)) {
    const key = prefix ? `${prefix} ${name}` : name;
    if (isObject(value) && !Array.isArray(value)) flatten(value, key, flat);
    else if (['number', 'boolean'].includes(typeof value) || (typeof value === 'string' && value.length <= maxText)) flat.set(key, value);
  }
  return flat;
}

// Entries of one kind. If there are more metrics than entries, each metric is a row.
function figuresTable(name, entries) {
  const all = entries.map((entry) => flatten(isObject(entry) ? entry : {}));
  const titles = entries.map((entry) => {
    const rank = numberAt(entry, 'rank'), test = textAt(entry, 'test_name');
    if (rank === null) return test;
    return entries.length > 1 && test === name ? `rank ${rank}` : `${test}, rank ${rank}`;
  });
  for (const flat of all) for (const shown of ['test_name', 'test_type', 'description', 'rank', 'measurement']) flat.delete(shown);
  const keys = [...new Set(all.flatMap((flat) => [...flat.keys()]))].sort();
  const cell = (flat, key) => figure(flat.get(key) ?? null, key);
  if (keys.length > entries.length) return table(name, ['figure', ...titles], keys.map((key) => [spoken(key), ...all.map((flat) => cell(flat, key))]));
  return table(name, ['of', ...keys.map(spoken)], all.map((flat, row) => [titles[row], ...keys.map((key) => cell(flat, key))]));
}

// All metrics of all parts, in tables by subject, below the text that the terminal shows.
function resultsPart({ result, summary }) {
  const groups = new Map();
  for (const entry of listAt(result, 'results')) {
    const name = textAt(entry, 'measurement') || (textAt(result, 'command') === 'burn' && textAt(entry, 'test_name')) || textAt(entry, 'test_type');
    groups.set(name, [...(groups.get(name) || []), entry]);
  }
  const tables = [...groups].map(([name, entries]) =>
    details(`${name} (${Math.min(entries.length, maxEntries)})`, figuresTable(name, entries.slice(0, maxEntries))));
  if (!summary && tables.length === 1) tables[0].open = true;  // selftest has no other summary
  const left = [...groups.values()].reduce((sum, entries) => sum + Math.max(entries.length - maxEntries, 0), 0);
  return [summary ? terminal('Results as the terminal shows them', summary) : null, ...tables,
    left ? html('p', {}, `Not shown here: ${counted(left, 'result')} of result.json.`) : null];
}

// The counters of a rank and of its NVLinks, as far as the device reports them, by display name.
function flatCounters(counters) {
  const links = listAt(counters, 'nvlinks').flatMap((link) => entriesAt(link).filter(([, value]) => at(value, 'before') !== at(value, 'after'))
    .map(([name, value]) => [`nvlink ${figureAt(link, 'link')} ${name}`, value]));
  const isReported = (value) => (isObject(value) ? Object.values(value).some((one) => one !== null) : value !== null);
  return new Map([...entriesAt(counters).filter(([name]) => name !== 'nvlinks'), ...links].filter(([, value]) => isReported(value)));
}

function counterCell(value) {
  const before = at(value, 'before'), after = at(value, 'after'), moved = before !== after && after !== null;
  if (!isObject(value) || !Object.hasOwn(value, 'after')) return figure(value);
  const more = [['under load', at(value, 'under_load')], ['max', at(value, 'max')]].filter(([, one]) => one !== null);
  const text = (moved ? `${figure(before)} → ` : '') + figure(after) + more.map(([name, one]) => `, ${name} ${figure(one)}`).join('');
  return [text, moved && !Object.hasOwn(value, 'max') ? 'bad' : null];
}

function countersPart({ result }) {
  const ranks = entriesAt(result, 'counters').map(([rank, counters]) => [`rank ${rank}`, flatCounters(counters)]);
  const names = [...new Set(ranks.flatMap(([, counters]) => [...counters.keys()]))].sort();
  if (ranks.length && !names.length) return html('p', {}, 'No device reported any.');
  return table('Error counters: what they were before the run → after it; one number: they did not move', ['counter', ...ranks.map(([rank]) => rank)],
    names.map((name) => [spoken(name), ...ranks.map(([, counters]) => counterCell(counters.get(name) ?? null))]));
}

// System data that a vendor's support needs.
function systemPart({ result }) {
  const devices = listAt(result, 'ranks').map((rank) => [figureAt(rank, 'rank'), textAt(rank, 'hostname'), textAt(rank, 'device', 'name'),
    ...['uuid', 'pci_bus_id'].map((key) => figureAt(rank, 'device', key)), figureAt(rank, 'numa_node'), figureAt(rank, 'device', 'compute_capability'),
    figureAt(rank, 'device', 'memory_total_bytes')]);
  const options = table('Options in effect', ['option', 'value'], entriesAt(result, 'options').map(([name, value]) => [name, figure(value)]));
  return [table('Devices', ['rank', 'host', 'device', 'UUID', 'PCI', 'NUMA node', 'compute capability', 'memory'], devices, true),
    table('System', ['what', 'value'], [['program version', textAt(result, 'program_version')],
      ...entriesAt(result, 'system_info').map(([name, value]) => [spoken(name), figure(value, name)]), ['arguments', JSON.stringify(at(result, 'arguments'))]]),
    options && details('Options', options)];
}

// Logarithmic axis: equal ratios have equal distances. `all`: the values in ascending order; every n-th is a tick.
function logAxis(all, from, to) {
  const stride = Math.ceil(all.length / 8), least = all[0], most = all.at(-1);
  const of = (value) => +(from + ((to - from) * Math.log2(value / least)) / Math.log2(most / least)).toFixed(1);
  return { ticks: all.filter((_, at) => at % stride === 0), of };
}

// A figure with a legend and two logarithmic axes. series: { name, points: [[x, y], ..], isIdeal }, with x and y above 0.
// Series differ by marker shape as well as by colour. Null if there are fewer than two distinct x values.
function lineChart(title, xTitle, yTitle, series) {
  const width = 400, height = 250, left = 48, right = 12, top = 10, bottom = 42;  // about the pixels of a phone
  const shapes = ['M-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0Z', 'M-3.5,-3.5h7v7h-7Z', 'M0,-4.5L4.5,3.5H-4.5Z', 'M0,-5L5,0L0,5L-5,0Z'];
  const points = series.flatMap((one) => one.points), places = [...new Set(points.map(([x]) => x))].sort((a, b) => a - b);
  if (places.length < 2) return null;
  const powers = points.map(([, y]) => Math.log2(y)), least = Math.floor(Math.min(...powers)), most = Math.max(Math.ceil(Math.max(...powers)), least + 1);
  const x = logAxis(places, left + 8, width - right), y = logAxis(Array.from({ length: most - least + 1 }, (_, at) => 2 ** (least + at)), height - bottom, top);
  const group = (one, kind, ...content) => svg('g', { class: one.isIdeal ? 'ideal' : `of-${kind % 6}` }, ...content);
  const mark = (kind, px, py, name) => svg('path', { class: 'mark', d: shapes[kind % 4], transform: `translate(${px},${py})` }, name && svg('title', {}, name));
  const label = (attributes, text) => svg('text', { 'text-anchor': 'middle', ...attributes }, text);
  const drawn = series.map((one, kind) => {
    const sorted = [...one.points].sort((a, b) => a[0] - b[0] || a[1] - b[1]);
    return group(one, kind, svg('polyline', { points: sorted.map(([px, py]) => `${x.of(px)},${y.of(py)}`).join(' ') }),
      one.isIdeal ? null : sorted.map(([px, py]) => mark(kind, x.of(px), y.of(py), `${one.name}, ${short(px)}: ${short(py)}`)));
  });
  return html('figure', { class: 'lines' }, html('figcaption', {}, title),
    svg('svg', { viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': title },
      y.ticks.flatMap((tick) => [svg('line', { x1: left, x2: width - right, y1: y.of(tick), y2: y.of(tick) }),
        label({ x: left - 6, y: y.of(tick) + 4, 'text-anchor': 'end' }, short(tick))]),
      x.ticks.map((tick) => label({ x: x.of(tick), y: height - bottom + 16 }, short(tick))), label({ x: (left + width) / 2, y: height - 6 }, xTitle),
      label({ transform: `translate(11,${(height - bottom + top) / 2}) rotate(-90)` }, yTitle), drawn),
    html('ul', {}, series.map((one, kind) => html('li', {}, svg('svg', { viewBox: '0 0 28 12', 'aria-hidden': true },
      group(one, kind, svg('polyline', { points: '0,6 28,6' }), one.isIdeal ? null : mark(kind, 14, 6, null))), one.name))));
}

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

// A line of the means within a band from min to max over all ranks.
function spark(chart) {
  const lines = chart.lines.slice(0, chart.lines[0].name.startsWith('all') ? 1 : undefined), height = 28, range = chart.most - chart.least || 1;
  const y = (value) => (1 + (height - 2) * (1 - (value - chart.least) / range)).toFixed(1);
  const points = lines[0].mean.map((_, x) => {
    const values = (part) => lines.map((line) => (line[part] || line.mean)[x]).filter((value) => value !== null);
    const means = values('mean');
    const mean = means.reduce((sum, value) => sum + value, 0) / means.length;
    return means.length && { x, mean, least: Math.min(...values('least')), most: Math.max(...values('most')) };
  }).filter(Boolean);
  const along = (part, of = points) => of.map((point) => `${point.x},${y(point[part])}`).join(' ');
  return svg('svg', { viewBox: `0 0 ${lines[0].mean.length - 1} ${height}`, preserveAspectRatio: 'none', role: 'img',
    'aria-label': `${chart.title}: ${short(chart.least)} to ${short(chart.most)}` },
  svg('polygon', { points: `${along('most')} ${along('least', [...points].reverse())}` }), svg('polyline', { points: along('mean') }));
}

// A table of the time series, with a small chart for each.
function timePart({ lines }) {
  if (!lines) return null;
  if (!lines.charts.length) return html('p', {}, 'The journals have no time series.');
  const extreme = (value, rank) => [rank === null ? short(value) : `${short(value)} (rank ${rank})`, 'short'];
  const note = 'This program was built without dygraphs (Debian: libjs-dygraphs), so there are drawings in the table, and no charts to zoom into.';
  return [typeof Dygraph === 'undefined' ? html('p', {}, note) : null,
    table('Time series: mean over all ranks, between their minimum and maximum', ['figure', 'over time', 'least', 'mean', 'most'], lines.charts.map((chart) =>
      [chart.title, chart.lines.length ? spark(chart) : '', extreme(chart.least, chart.least_rank), extreme(chart.mean, null), extreme(chart.most, chart.most_rank)]))];
}

const parts = {
  files: filesPart,
  notes: ({ comparison, text }) => (text && listAt(comparison, 'notes').length ? items(comparison.notes) : null),
  happened,
  'ranks-and-devices': ranksPart,
  time: timePart,
  links: linksPart,
  scaling: scalingPart,
  tests: testsPart,
  results: resultsPart,
  counters: countersPart,
  system: (data) => (data.text ? null : systemPart(data)),
  text: ({ text }) => (text ? terminal('The comparison as the terminal shows it', text) : null),
};

// Updates `old` to `fresh` in place, so that open, scrolled, focused or selected elements keep their state.
function sync(old, fresh) {
  if (old.nodeName !== fresh.nodeName) return old.replaceWith(fresh);
  if (old.nodeType === Node.TEXT_NODE) return old.data === fresh.data || (old.data = fresh.data);
  for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name) && name !== 'open') old.removeAttribute(name);
  for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value && name !== 'open') old.setAttribute(name, value);
  const children = [...old.childNodes];
  [...fresh.childNodes].forEach((child, place) => (children[place] ? sync(children[place], child) : old.append(child)));
  for (const child of children.slice(fresh.childNodes.length)) child.remove();
}

// Shows `data`; sections without content are hidden.
function render(data) {
  const build = (part, old) => {
    const fresh = html('div', { id: old.id || null });
    try {
      fresh.append(...[part(data)].flat().filter(Boolean));
    } catch (error) {
      fresh.append(`This part of the result cannot be shown (${error.message}); see result.json.`);
    }
    sync(old, fresh);
  };
  build(verdictPart, document.getElementById('verdict'));
  const shown = Object.entries(parts).map(([id, part]) => {
    const section = document.getElementById(id);
    build(part, section.lastElementChild);
    section.hidden = !section.lastElementChild.hasChildNodes();
    return section;
  }).filter((section) => !section.hidden);
  sync(document.querySelector('nav'), html('nav', { 'aria-label': 'Parts of this page' },
    shown.flatMap((section) => [html('a', { href: `#${section.id}` }, section.firstElementChild.textContent), '\n'])));
  document.querySelector('main').hidden = false;
}
