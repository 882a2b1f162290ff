'use strict';
// Builds the sections of the page from its data. Names of hosts, files and devices are untrusted: they become text nodes
// and attributes, never markup. The result may be truncated or from another version: `at` and its variants read any value.

const maxReasons = 8;    // visible without expanding
const maxRows = 1000;    // of faults; result.json has all
const openFaults = 3;    // faults whose values are visible at once
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
// Words of result keys as the field writes them.
const words = { cublas: 'cuBLAS', nvlink: 'NVLink', nvlinks: 'NVLinks', pcie: 'PCIe', xid: 'Xid', tflops: 'TFLOP/s', c: '°C', w: 'W', j: 'J', mhz: 'MHz', s: 's' };
const capitals = /^(ecc|crc|gpu|cpu|cuda|nccl|mpi|sm|numa|uuid|pci)$/;
const spoken = (name) => name.replace(/_(gb|gbit)_per_s(econd)?/g, (_, unit) => (unit === 'gb' ? ' GB/s' : ' Gb/s'))
  .split(/[_ ]/).map((word) => (Object.hasOwn(words, word) ? words[word] : capitals.test(word) ? word.toUpperCase() : word)).join(' ');
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
  if (Array.isArray(value) && !value.some(isObject)) return value.join(', ');
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
// Too much for paper: printed only if it is open.
function bulk(one) {
  one.className = 'bulk';
  return one;
}
const terminal = (label, text) => html('pre', { tabindex: 0, role: 'region', 'aria-label': label }, text);

// A cell is a text, a node, or one of them with its class: [content, class]. The first one of a row is its header.
// Columns without any value are left out; columns of numbers are aligned to the right. A click on a column's head sorts by it.
// `cards`: narrow screens show each row as a card; otherwise the table scrolls. Null without rows.
function table(caption, columns, rows, cards = false) {
  if (!rows.length) return null;
  const role = (name) => (cards ? name : null), parts = (content) => (Array.isArray(content) ? content : [content, null]);
  const isNone = (content) => ['-', '', null].includes(parts(content)[0]);
  const isNumber = (content) => isNone(content) || parts(content)[0] === 'X' || /^[-+<]? ?\d[^:]{0,24}$/.test(parts(content)[0]);
  const shown = [...columns.keys()].filter((column) => !column || !rows.every((cells) => isNone(cells[column])));
  const numbers = new Set(shown.filter((column) => column && rows.every((cells) => isNumber(cells[column]))));
  const aligned = (kind, column) => [kind, numbers.has(column) ? 'number' : null].filter(Boolean).join(' ') || null;
  const cell = (content, column) => {
    const [inner, kind, more] = parts(content);
    return html(column ? 'td' : 'th', { scope: column ? null : 'row', class: aligned(kind, column), role: role(column ? 'cell' : 'rowheader'),
      'data-label': role(columns[column]), 'data-none': role(inner === '-' ? '' : null), ...more }, inner);
  };
  const head = shown.map((column) => html('th', { scope: 'col', class: aligned(null, column), role: role('columnheader') },
    rows.length > 2 && columns[column] ? html('button', { type: 'button', class: 'sort', title: 'Sort' }, columns[column]) : columns[column]));
  return html('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': caption },
    html('table', { class: role('cards'), role: role('table') }, html('caption', {}, caption), html('thead', {}, html('tr', { role: role('row') }, head)),
      html('tbody', {}, rows.map((cells) => html('tr', { role: role('row') }, shown.map((column) => cell(cells[column], column)))))));
}

// Sorts the rows of a table by the column of the clicked head: numbers with their prefixes, then texts.
document.addEventListener('click', ({ target }) => {
  if (!target.matches('button.sort')) return;
  const head = target.parentElement, body = head.closest('table').tBodies[0], column = head.cellIndex;
  const sign = head.getAttribute('aria-sort') === 'descending' ? 1 : -1;
  const valueOf = (row) => {
    const text = row.cells[column]?.textContent ?? '', [, number, prefix] = text.match(/^[< ]*([-+]?\d[\d.]*(?:e[-+]?\d+)?) ?([kKMGTPE]?)/) ?? [];
    return number === undefined ? [-Infinity, text] : [number * 1000 ** ' kMGTPE'.indexOf(prefix?.replace('K', 'k') || ' '), text];
  };
  const rows = [...body.rows].map((row) => [row, valueOf(row)]);
  rows.sort(([, a], [, b]) => sign * (a[0] === b[0] ? a[1].localeCompare(b[1]) : a[0] - b[0]));
  for (const other of head.parentElement.cells) other.removeAttribute('aria-sort');
  head.setAttribute('aria-sort', sign > 0 ? 'ascending' : 'descending');
  body.append(...rows.map(([row]) => row));
});

// Whether the page has charts, in which a time can be shown.
const hasCharts = (data) => typeof Dygraph !== 'undefined' && listAt(data, 'lines', 'charts').some((chart) => chart.lines.length);
function moment(data, time) {
  if (!Date.parse(time)) return time || '-';
  if (!hasCharts(data)) return html('time', { datetime: time }, time);
  return html('button', { type: 'button', class: 'moment', 'data-time': time, title: 'Show this moment in the charts' }, clock(Date.parse(time)));
}

// All faults of selftest are injected, so they are no evidence against a device.
const isSelftest = (result) => textAt(result, 'command') === 'selftest';

// "GPU 1 on node7, UUID GPU-1234, PCI 00000000:18:00.0, serial 165": its name, or with all that identifies the board.
const deviceOf = (data, rank) => listAt(data, 'devices', 'rows').find((row) => at(row, 'rank') === rank);
const deviceName = (data, rank, key = 'label') => textAt(deviceOf(data, rank), key) || (rank === null ? 'unknown device' : `rank ${figure(rank)}`);

// Equal texts once, with their number.
function collapsed(texts) {
  const counts = new Map();
  for (const text of texts) counts.set(text, (counts.get(text) || 0) + 1);
  return [...counts].map(([text, count]) => (count > 1 ? `${text} (${count} times)` : text));
}

// The verdict and its reasons, for a run or a comparison. `of`: its subject; `when`: its time.
function verdictHeader(result, of, when) {
  const verdict = textAt(result, 'verdict'), code = numberAt(result, 'exit_code') ?? 4;
  const isRunning = at(result, 'running') === true, isOpen = isRunning && verdict === 'running';
  const kind = isOpen ? 'running' : { 0: 'pass', 1: 'fault' }[code] || 'warn';
  const reasons = collapsed(listAt(result, 'reasons').map((reason) => figure(reason))), notRun = listAt(result, 'checks_not_run');
  return html('header', { class: `verdict ${kind}` }, html('p', {}, `extreme_gpu_trainer ${textAt(result, 'command')}: ${of}`),
    html('h1', {}, html('span', { 'aria-hidden': true }, { running: '●', pass: '✓', fault: '✗', warn: '!' }[kind]), ` ${verdict || 'no verdict'} `,
      html('small', {}, isOpen ? 'no verdict yet' : isRunning ? 'so far' : `exit code ${code}`)),
    items(reasons.slice(0, maxReasons)),
    reasons.length > maxReasons ? details(counted(reasons.length - maxReasons, 'more reason'), items(reasons.slice(maxReasons))) : null,
    notRun.length ? details(`Checks not run: ${notRun.length}`, items(notRun.map((one) =>
      `${textAt(one, 'check')}${numberAt(one, 'rank') === null ? '' : ` (rank ${at(one, 'rank')})`}: ${textAt(one, 'reason')}`))) : null,
    html('p', {}, when));
}

// The recommended action of each node that needs one.
function actions(data) {
  const nodes = listAt(data.result, 'nodes').filter((node) => !['', 'nothing to do'].includes(textAt(node, 'action', 'text')));
  return nodes.length ? [html('h2', {}, 'What to do next'), html('ul', { class: 'next' }, nodes.map((node) => html('li', {},
    html('b', {}, textAt(node, 'hostname')), `: ${textAt(node, 'action', 'text')}`,
    numberAt(node, 'action', 'rank') === null ? '' : ` (${deviceName(data, at(node, 'action', 'rank'), 'identity')})`,
    textAt(node, 'action', 'command') ? ['. First: ', html('code', {}, textAt(node, 'action', 'command'))] : '')))] : [];
}

// New errors of all devices by their counters; null if no device reports them.
function newErrors(result) {
  const all = entriesAt(result, 'counters').flatMap(([, counters]) => [
    ...['ecc_corrected', 'ecc_uncorrected'].map((name) => at(counters, name)).filter((one) => numberAt(one, 'after') !== null && numberAt(one, 'before') !== null)
      .map((one) => Math.max(one.after - one.before, 0)), ...(Array.isArray(at(counters, 'xid')) ? [counters.xid.length] : [])]);
  return all.length ? all.reduce((sum, one) => sum + one, 0) : null;
}

function tiles(data) {
  const result = data.result, telemetry = entriesAt(result, 'telemetry').map(([, one]) => one);
  const name = (rank) => (listAt(data, 'devices', 'rows').length > 1 ? ` (${deviceName(data, +rank)})` : '');
  const extreme = (part, isBetter, ...keys) => entriesAt(result, part).map(([rank, one]) => [rank, numberAt(one, ...keys)])
    .filter(([, value]) => value !== null).reduce((best, one) => (best && !isBetter(one[1], best[1]) ? best : one), null);
  const repeats = listAt(result, 'fault_repeats').reduce((sum, repeat) => sum + (numberAt(repeat, 'count') || 0), 0);
  const faults = listAt(result, 'faults').length, errors = newErrors(result);
  const hottest = extreme('telemetry', (a, b) => a > b, 'temperature_c', 'max'), slowest = extreme('peers', (a, b) => a < b, 'compute_tflops', 'ratio');
  const share = extreme('verified_share', (a, b) => a < b);
  const power = telemetry.filter((one) => numberAt(one, 'power_w_mean') !== null && numberAt(one, 'power_limit_w') > 0)
    .map((one) => fixed((100 * one.power_w_mean) / one.power_limit_w, 0)).sort((a, b) => a - b);
  const all = [
    [isSelftest(result) ? 'Injected faults' : 'Errors', repeats ? `${faults} + ${repeats} repeats` : faults],
    power.length ? ['Average power', `${power[0] === power.at(-1) ? '' : `${power[0]} to `}${power.at(-1)} % of limit`] : null,
    hottest && ['Max temperature', `${fixed(hottest[1], 0)} °C${name(hottest[0])}`],
    slowest && ['Slowest vs peers', `${slowest[1] < 1 ? '−' : '+'}${fixed(100 * Math.abs(slowest[1] - 1), 1)} %${name(slowest[0])}`],
    errors === null ? null : ['New ECC errors, Xids', errors],
    ...listAt(data, 'work'),
    share && ['Work verified, min', `${short(100 * share[1])} %${share[1] < 1 ? ` (${spoken(share[0])})` : ''}`],
  ];
  return html('dl', { class: 'tiles' }, all.filter(Boolean).map(([title, value]) => html('div', {}, html('dt', {}, title), html('dd', {}, value))));
}

// "2026-11-25 10:26:15 UTC to 10:27:02 UTC (here: 25/11/2026, 11:26:15 CET)"
function runTimes(result) {
  const [started, ended] = ['started_at', 'ended_at'].map((key) => Date.parse(textAt(result, 'system_info', key)));
  if (!started) return '';
  const here = new Date(started), isElsewhere = here.getTimezoneOffset() !== 0, until = at(result, 'running') === true || !ended ? '' : clock(ended);
  return `${clock(started)} UTC${until && ` to ${until.slice(until.startsWith(clock(started).slice(0, 10)) ? 11 : 0)} UTC`}`
    + (isElsewhere ? ` (here: ${here.toLocaleString(undefined, { timeZoneName: 'short' })})` : '');
}

function verdictPart(data) {
  if (data.text) return comparisonHeader(data);
  const { result } = data, driver = textAt(result, 'system_info', 'driver_version');
  const of = listAt(data, 'devices', 'headline').slice(1);
  return [verdictHeader(result, [...(of.length ? of : ['no device']), ...(driver ? [`driver ${driver}`] : [])].join(', '), runTimes(result)), ...actions(data), tiles(data)];
}

// The places of the bits of a mask such as 0x02000080; empty if it is none.
const bitsOf = (mask) => (/^0x[0-9a-f]{1,16}$/.test(mask) ? [...BigInt(mask).toString(2)].reverse().flatMap((digit, bit) => (digit === '1' ? [bit] : [])) : []);

// "0x02000080 (bits 7, 25)", which distinguishes a stuck bit from a lost line.
function xorText(mask) {
  const bits = bitsOf(mask);
  if (!bits.length) return mask;
  return bits.length > 4 ? `${mask} (${bits.length} bits)` : `${mask} (bit${bits.length === 1 ? '' : 's'} ${bits.join(', ')})`;
}

const spacing = (of, unit = '') => numberAt(of, 'period') && `${numberAt(of, 'stride') ? 'stride' : 'period'} ${numberAt(of, 'period')}${unit}`;

// Wrong words: addresses from left to right, bit 0 at the bottom. A bad cell of every row is a line from left to right, a wrong word one
// from top to bottom.
function wordMap(map) {
  const offsets = listAt(map, 'offsets'), ends = [offsets[0], offsets.at(-1)], readers = numberAt(map, 'readers');
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

// The bits of the expected and the actual value below each other; wrong ones are marked. Null if they are no words.
function bitGrid(fault) {
  const values = ['expected', 'actual'].map((key) => textAt(fault, key));
  if (!values.every((value) => /^0x[0-9a-f]{1,16}$/.test(value))) return null;
  const size = 4 * Math.max(...values.map((value) => value.length - 2)), [expected, actual] = values.map((value) => BigInt(value).toString(2).padStart(size, '0'));
  const line = (title, bits) => [title, ...[...bits].flatMap((bit, place) => [place % 4 ? '' : ' ', expected[place] === actual[place] ? bit : html('mark', {}, bit)]), '\n'];
  return html('pre', { class: 'bits', tabindex: 0, role: 'region', 'aria-label': `Bits ${size - 1} to 0` }, line('expected', expected), line('read    ', actual));
}

// What is wrong, in one clause.
function faultText(fault) {
  const bits = bitsOf(textAt(fault, 'xor')), offset = numberAt(fault, 'offset');
  if (!bits.length) return figureAt(fault, 'where');
  const place = offset === null ? '' : `byte ${offset}, `, count = numberAt(fault, 'count') > 1 ? `; ${counted(at(fault, 'count'), 'wrong value')}` : '';
  return `${place}${bits.length > 4 ? `${bits.length} bits` : `${bits.length > 1 ? 'bits' : 'bit'} ${bits.join(', ')}`} wrong: `
    + `expected ${textAt(fault, 'expected')}, read ${textAt(fault, 'actual')}${count}`;
}

// One fault: the device and what is wrong; all values when it is opened.
function faultEntry(data, fault, number) {
  const code = (key) => html('code', {}, textAt(fault, key) || '-');
  const facts = [['where', errorMap(at(fault, 'map'), figureAt(fault, 'where'))], ['rank', figureAt(fault, 'rank')], ['host', figureAt(fault, 'hostname')],
    ['device', figureAt(fault, 'device_uuid')], ['time', moment(data, textAt(fault, 'time'))], ['step', figureAt(fault, 'step')], ['phase', textAt(fault, 'phase') || '-'],
    ['offset', figureAt(fault, 'offset')], ['expected', code('expected')], ['actual', code('actual')], ['xor', html('code', {}, xorText(textAt(fault, 'xor')) || '-')],
    ['count', figureAt(fault, 'count')], ['detector', figureAt(fault, 'detector')],
    ['blame', textAt(fault, 'blame') + (listAt(fault, 'suspects').length ? `: ranks ${figureAt(fault, 'suspects')}` : '')]];
  return html('details', { class: 'fault', id: `fault-${number}`, open: number <= openFaults && !isSelftest(data.result) ? '' : null },
    html('summary', {}, html('a', { href: `#fault-${number}` }, `#${number}`), ' ', html('b', {}, `${deviceName(data, at(fault, 'rank'), 'identity')}: ${figureAt(fault, 'kind')} fault`),
      ' ', faultText(fault)),
    bitGrid(fault), html('dl', { class: 'facts' }, facts.filter(([, value]) => value !== '-').map(([name, value]) => html('div', {}, html('dt', {}, name), html('dd', {}, value)))));
}

function faultList(data) {
  const faults = listAt(data.result, 'faults');
  return [...faults.slice(0, maxRows).map((fault, at) => faultEntry(data, fault, at + 1)),
    faults.length > maxRows ? html('p', {}, `The first ${maxRows} of ${faults.length}; all are in result.json.`) : null];
}

// Other events, one line each.
function eventTable(data) {
  const row = (what, entry, text) => [what, figureAt(entry, 'rank'), moment(data, textAt(entry, 'time')), text];
  return table('Losses, findings, restarts, injected faults', ['what', 'rank', 'time', 'text'], [
    ...listAt(data, 'events').map((event) => row(event.what, event, event.text)),
    ...listAt(data.result, 'fault_repeats').map((entry) =>
      ['repeats', figureAt(entry, 'rank'), moment(data, textAt(entry, 'last_time')),
        `${counted(numberAt(entry, 'count') || 0, 'more fault')} like one above: ${figureAt(entry, 'kind')}, part ${figureAt(entry, 'part')}, detected by ${figureAt(entry, 'detector')}; time of the last one`]),
    ...listAt(data.result, 'injections').map((entry) => row('injected', entry, `${textAt(entry, 'planned') || textAt(entry, 'kind')}: ${textAt(entry, 'where')}`
      + (at(entry, 'found') === null ? '' : at(entry, 'found') === true ? '; found' : '; NOT found')))], true);
}

function happened(data) {
  const all = [...faultList(data), eventTable(data)].filter(Boolean);
  return isSelftest(data.result) && all.length ? bulk(details('Injected faults and their detection', all)) : all;
}

// "691 (700)"
const withBracket = (value, next) => (next === '-' ? value : `${value} (${next})`);

// One row per device, as at the end of the console's output; more about each on demand.
function devicesPart(data) {
  const { result } = data, ranks = new Map(listAt(result, 'ranks').map((rank) => [at(rank, 'rank'), rank])), heads = listAt(data, 'devices', 'columns');
  const own = (rank, key) => figureAt(ranks.get(rank) ?? null, 'device', key), identity = ['uuid', 'pci_bus_id', 'serial'];
  const rows = listAt(data, 'devices', 'rows').map((row) => {
    const kind = row.is_bad ? 'bad' : row.has_finding ? 'notable' : null, error = at(ranks.get(row.rank) ?? null, 'error');
    return [[row.label, kind], ...row.cells.map((cell, at) => [cell, row.is_bad && heads[at] === 'errors' ? 'bad' : row.notable[at] ? 'notable' : null]),
      textAt(error, 'what') || figure(error), ...identity.map((key) => own(row.rank, key))];
  });
  const kinds = new Set(rows.flat().map(([, kind]) => kind));
  const more = table('More about each device', ['device', 'rank', 'model', 'link', 'NUMA node', 'compute capability', 'memory', 'memory used', 'utilization %', 'batch', 'steps', 'ended'],
    [...ranks].map(([number, rank]) => {
      const of = (...keys) => numberAt(result, 'telemetry', number, ...keys);
      return [deviceName(data, number), figure(number), ...['name', 'link'].map((key) => own(number, key)), figureAt(rank, 'numa_node'), own(number, 'compute_capability'),
        own(number, 'memory_total_bytes'), figure(of('memory_used_bytes', 'max'), 'bytes'), fixed(of('gpu_utilization_percent', 'avg'), 1), ...['batch', 'steps', 'end_reason'].map((key) => figureAt(rank, key))];
    }));
  const legend = [['bad', 'red: errors or lost'], ['notable', 'amber: finding, heat, throttling or new corrected errors']].filter(([kind]) => kinds.has(kind));
  return [table(['One row per device', ...legend.map(([, text]) => text)].join('; '), ['device', ...heads, 'error', 'UUID', 'PCI', 'serial'], rows),
    more && details('More about each device', more, peersTable(data))];
}

function peersTable(data) {
  const peers = entriesAt(data.result, 'peers');
  const figures = [...new Set(peers.flatMap(([, own]) => Object.keys(own ?? {}).filter((name) => numberAt(own, name, 'ratio') !== null)))].sort();
  if (!figures.length) return null;
  return table('Each device compared with the median of its model (in brackets; 1 is the median)', ['device', ...figures.map(spoken)], peers.map(([rank, own]) =>
    [deviceName(data, +rank), ...figures.map((name) => withBracket(figureAt(own, name, 'value'), fixed(numberAt(own, name, 'ratio'), 3)))]));
}

// The directions of `links` whose better method is below its limit: "0 1".
function slowLinks(result) {
  const best = new Map();
  for (const entry of listAt(result, 'results').filter((one) => textAt(one, 'measurement') === 'pair'))
    for (const [way, rate] of entriesAt(entry, 'one_way'))
      if (numberAt(rate, 'gb_per_second') > (numberAt(best.get(way) ?? null, 'gb_per_second') ?? -1)) best.set(way, rate);
  return new Set([...best].filter(([, rate]) => at(rate, 'below_limit') === true).map(([way]) => way.replace('->', ' ')));
}

// A table of the terminal's text. In a matrix over ranks a darker cell is a higher value; red is only what was judged too slow.
function textTable(caption, [head, ...rows], result) {
  const isMatrix = head[0] === 'rank' && head.slice(1).every((name) => /^\d+$/.test(name));
  if (!isMatrix) return table(caption, head, rows);
  const slow = caption.startsWith('One way') ? slowLinks(result) : new Set(), most = Math.max(...rows.flatMap((row) => row.slice(1).map(parseFloat)).filter(Number.isFinite));
  return table(slow.size ? `${caption}; red: below its limit` : caption, head, rows.map(([from, ...cells]) => [from, ...cells.map((cell, column) => {
    const share = parseFloat(cell) / most;
    return slow.has(`${from} ${head[column + 1]}`) ? [cell, 'bad'] : share >= 0 ? [cell, 'heat', { style: `--share: ${share.toFixed(2)}` }] : cell;
  })]));
}

// The command's summary: its Markdown tables as tables, other lines as they are.
function summaryPart({ result, summary }) {
  const blocks = [];  // [is a table, lines]
  for (const line of (typeof summary === 'string' ? summary : '').split('\n')) {
    const isRow = line.startsWith('|');
    if (blocks.at(-1)?.[0] !== isRow) blocks.push([isRow, []]);
    blocks.at(-1)[1].push(line);
  }
  const isTitle = (line) => /^\S/.test(line ?? '');
  return blocks.map(([isTable, lines], place) => {
    if (!isTable) {
      const text = lines.slice(0, place + 1 < blocks.length && isTitle(lines.at(-1)) ? -1 : undefined).join('\n').replace(/^\n+|\s+$/g, '');
      return text.includes('\n') ? terminal('Results', text) : text && html('p', {}, text);
    }
    const rows = lines.map((line) => line.slice(1, -1).split('|').map((cell) => cell.trim())), before = blocks[place - 1]?.[1].at(-1), caption = isTitle(before) ? before : 'Results';
    return rows.some((row) => row.length !== rows[0].length) ? terminal(caption, lines.join('\n')) : textTable(caption, [rows[0], ...rows.slice(2)], result);
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
  for (const flat of all) if (flat.get('undone') === flat.get('failure')) flat.delete('undone');
  for (const flat of all) for (const shown of ['test_name', 'test_type', 'description', 'rank', 'measurement']) flat.delete(shown);
  const place = (key) => (key === 'success' ? 0 : key === 'failure' ? 2 : 1);
  const keys = [...new Set(all.flatMap((flat) => [...flat.keys()]))].sort((a, b) => place(a) - place(b) || (a < b ? -1 : 1));
  const cell = (flat, key) => figure(flat.get(key) ?? null, key);
  if (keys.length > entries.length) return table(name, ['figure', ...titles], keys.map((key) => [spoken(key), ...all.map((flat) => cell(flat, key))]));
  return table(name, ['of', ...keys.map(spoken)], all.map((flat, row) => [titles[row], ...keys.map((key) => cell(flat, key))]));
}

// The command's summary, then all metrics of all parts, in tables by subject.
function resultsPart(data) {
  const { result } = data, summary = summaryPart(data).filter(Boolean);
  const groups = new Map();
  for (const entry of listAt(result, 'results')) {
    const name = textAt(entry, 'measurement') || (textAt(result, 'command') === 'burn' && textAt(entry, 'test_name')) || textAt(entry, 'test_type');
    groups.set(name, [...(groups.get(name) || []), entry]);
  }
  const tables = [...groups].map(([name, entries]) =>
    details(`${name} (${Math.min(entries.length, maxEntries)})`, figuresTable(name, entries.slice(0, maxEntries))));
  if (!summary.length && tables.length === 1) tables[0].open = true;  // selftest has no other summary
  const left = [...groups.values()].reduce((sum, entries) => sum + Math.max(entries.length - maxEntries, 0), 0);
  return [...summary, ...(tables.length > 1 ? [bulk(details('All values', ...tables))] : tables.map(bulk)),
    left ? html('p', {}, `Not shown here: ${counted(left, 'result')} of result.json.`) : null];
}

// The counters of a rank and of its NVLinks, as far as the device reports them, by display name.
function flatCounters(counters) {
  const links = listAt(counters, 'nvlinks').flatMap((link) => entriesAt(link).filter(([, value]) => at(value, 'before') !== at(value, 'after'))
    .map(([name, value]) => [`nvlink ${figureAt(link, 'link')} ${name}`, value]));
  const isReported = (value) => (isObject(value) ? Object.values(value).some((one) => one !== null) : value !== null);
  return new Map([...entriesAt(counters).filter(([name]) => name !== 'nvlinks'), ...links].filter(([, value]) => isReported(value)));
}

const isMoved = (value) => isObject(value) && Object.hasOwn(value, 'after') && !Object.hasOwn(value, 'max')
  && at(value, 'after') !== null && at(value, 'before') !== at(value, 'after');

function counterCell(value) {
  const [before, after] = ['before', 'after'].map((key) => at(value, key));
  if (!isObject(value) || !Object.hasOwn(value, 'after')) return figure(value);
  const more = [['under load', at(value, 'under_load')], ['max', at(value, 'max')]].filter(([, one]) => one !== null).map(([name, one]) => `, ${name} ${figure(one)}`).join('');
  if (!isMoved(value)) return figure(after) + more;
  return [`${figure(before)} → ${figure(after)}${[before, after].every(Number.isFinite) ? ` (${after > before ? '+' : ''}${after - before})` : ''}${more}`, 'bad'];
}

// Xids by device, then the counters; those that moved first.
function countersPart(data) {
  const ranks = entriesAt(data.result, 'counters').map(([rank, counters]) => [deviceName(data, +rank), flatCounters(counters), counters]);
  const moved = (name) => ranks.some(([, counters]) => isMoved(counters.get(name)));
  const names = [...new Set(ranks.flatMap(([, counters]) => [...counters.keys()]))].filter((name) => name !== 'xid').sort((a, b) => moved(b) - moved(a) || (a < b ? -1 : 1));
  const xids = ranks.flatMap(([name, , counters]) => listAt(counters, 'xid').map((one) => [name, [figure(at(one, 'xid') ?? one), 'bad'],
    numberAt(one, 'time') ? moment(data, new Date(one.time * 1000).toISOString()) : '-', figureAt(one, 'step'), figureAt(one, 'phase'), figureAt(one, 'detail')]));
  if (ranks.length && !names.length && !xids.length) return html('p', {}, 'No error counters available on this backend.');
  return [table('Driver errors (Xid)', ['device', 'Xid', 'time', 'step', 'phase', 'detail'], xids),
    table('Before the run → after it (change); one number: no change', ['counter', ...ranks.map(([name]) => name)],
      names.map((name) => [spoken(name), ...ranks.map(([, counters]) => counterCell(counters.get(name) ?? null))]))];
}

// As one line for a shell.
const commandLine = (words) => ['extreme_gpu_trainer', ...words.map((word) => (/^[\w@%+=:,./-]+$/.test(figure(word)) ? word : `'${figure(word).replaceAll("'", "'\\''")}'`))].join(' ');

// System data that a vendor's support needs. A run on the host used none of NVIDIA's libraries.
function systemPart({ result }) {
  const isUsed = (name) => !/^(cuda|cublas|nccl|driver)_version$/.test(name) || listAt(result, 'ranks').some((rank) => textAt(rank, 'backend') !== 'host');
  const system = entriesAt(result, 'system_info').filter(([name, value]) => value !== null && figure(value) !== '' && isUsed(name));
  const options = entriesAt(result, 'options').filter(([name, value]) => name !== 'command' && value !== null && figure(value) !== '');
  const rows = [['program version', textAt(result, 'program_version')], ['command line', html('code', {}, commandLine(listAt(result, 'arguments')))],
    ...system.map(([name, value]) => [spoken(name), figure(value, name)])];
  return details('Command line, versions and options in effect', table('System', ['what', 'value'], rows),
    table('Options in effect', ['option', 'value'], options.map(([name, value]) => [`--${name}`, figure(value)])));
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

// A line of the means, or of the median, within a band from min to max over all ranks.
function spark(chart) {
  const lines = chart.lines.slice(0, chart.lines[0].name.startsWith('median') ? 1 : undefined), height = 28, range = chart.most - chart.least || 1;
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

// The factor and the unit, with its prefix, for a chart's values: 0.0035 TFLOP/s are 3.5 GFLOP/s. Units such as W, °C and MHz stay.
function unitFor(chart) {
  const [, prefix, base] = /^([µmkMGT]?)(FLOP\/s|B\/s|B|s|samples\/s|steps\/s)$/.exec(chart.unit) || [], prefixes = ['n', 'µ', 'm', '', 'k', 'M', 'G', 'T', 'P', 'E'];
  if (!base || !(chart.most > 0)) return { factor: 1, unit: chart.unit };
  const own = prefixes.indexOf(prefix), [lowest, highest] = base === 's' ? [0, 3] : [3, 9];
  const best = Math.min(highest, Math.max(lowest, own + Math.floor(Math.log10(chart.most) / 3 + 1e-9)));
  return { factor: 1000 ** (own - best), unit: prefixes[best] + (/^s./.test(base) && best > 3 ? ' ' : '') + base };
}
const titleOf = (chart) => [chart.title, unitFor(chart).unit].filter(Boolean).join(', ');

// Each group's heading, the place of its charts, and a table of its time series with a small chart for each.
function timePart({ lines }) {
  if (!lines) return null;
  if (!lines.charts.length) return html('p', {}, 'The journals have no time series.');
  const row = (chart) => {
    const extreme = (value, rank) => [short(value === null ? null : value * unitFor(chart).factor) + (rank === null ? '' : ` (rank ${rank})`), 'short'];
    return [titleOf(chart), chart.lines.length ? spark(chart) : '', extreme(chart.least, chart.least_rank), extreme(chart.mean, null), extreme(chart.most, chart.most_rank)];
  };
  const note = 'This program was built without dygraphs (Debian: libjs-dygraphs), so there are drawings in the table, and no charts to zoom into.';
  return [typeof Dygraph === 'undefined' ? html('p', {}, note) : null, ...[...new Set(lines.charts.map((chart) => chart.group))].flatMap((group) => [
    html('h3', {}, group), html('div', { class: 'charts', 'data-group': group }),
    table('Line: mean, or median of 4 or more ranks; band: min to max', ['metric', 'over time', 'min', 'mean', 'max'], lines.charts.filter((chart) => chart.group === group).map(row))])];
}

const parts = {
  fleet: fleetPart,
  files: filesPart,
  notes: ({ comparison, text }) => (text && listAt(comparison, 'notes').length ? items(comparison.notes) : null),
  devices: devicesPart,
  happened,
  results: resultsPart,
  time: timePart,
  scaling: scalingPart,
  tests: testsPart,
  counters: countersPart,
  system: (data) => (data.text ? null : systemPart(data)),
  text: ({ text }) => (text ? terminal('The comparison as the terminal shows it', text) : null),
};

// Updates `old` to `fresh` in place, so that open, scrolled, focused or selected elements keep their state. Charts are drawn elsewhere.
function sync(old, fresh) {
  if (old.nodeName !== fresh.nodeName) return old.replaceWith(fresh);
  if (old.nodeType === Node.TEXT_NODE) return old.data === fresh.data || (old.data = fresh.data);
  for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name) && name !== 'open') old.removeAttribute(name);
  for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value && name !== 'open') old.setAttribute(name, value);
  if (old.className === 'charts') return;
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

// A link to a fault opens it, and so does printing all that is collapsed.
const openFault = () => document.querySelector('details.fault:target')?.setAttribute('open', '');
addEventListener('hashchange', openFault);
addEventListener('beforeprint', () => document.querySelectorAll('details:not(.bulk, .bulk *)').forEach((one) => one.setAttribute('open', '')));
