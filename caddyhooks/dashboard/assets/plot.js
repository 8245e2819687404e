// @ts-check
// Plots of numbers over time: stacked bars, and lines. Dragging over one leads to the runs of that time, and a click on a bar to what it
// counts. The table of a plot has the same as links.
import { button, el, panel, put, redraw, svg, table, tr, time } from "./dom.js";
import { iso, periodName } from "./times.js";
import { clock } from "./words.js";

const right = 6, top = 8, bottom = 20, height = 150;

/** Ends of an axis of seconds beyond a minute. */
const spans = [60, 120, 240, 360, 600, 1200, 1800, 3600, 7200, 14400, 28800, 57600, 86400];

/** The end of the axis: a number whose half is easy to read as well. */
function nice(peak = 0, whole = false, seconds = false) {
	const span = seconds && peak > 40 && spans.find(end => peak <= end);
	if (span) return span;
	if (whole && peak <= 2) return 2;
	if (!whole && peak) peak = Math.max(peak, .01); // 10 ms
	const power = 10 ** Math.floor(Math.log10(peak || 1));
	return power * ([1, 2, 4, 6, 8].find(m => peak <= m * power) ?? 10);
}

/** A panel with a plot, its legend and the same as a table. @param {Drawing} drawing */
export function plotPanel(drawing) {
	let asTable = false;
	const title = el("span");
	const picture = svg("svg", { class: "plot", role: "img" });
	const readout = el("span", { "aria-hidden": "true" });
	const legend = el("div.legend");
	const body = el("div.body");
	const toggle = button("Show as table", () => { asTable = !asTable; draw(); }, { class: "plain small" });
	const under = el("div.readout", readout, toggle);
	const node = panel(title, body, legend);

	let left = 42; // where the plot begins, after the labels of its axis
	const x = (i = 0, width = 0) => {
		const n = drawing.series[0].points.length;
		return left + (width - left - right) * (drawing.kind === "bars" ? (i + .5) / n : i / Math.max(1, n - 1));
	};

	function draw() {
		const { series, kind, format } = drawing, points = series[0].points;
		put(title, drawing.title);
		toggle.setAttribute("aria-description", drawing.title);
		put(legend, series.map(s => el("span", { class: s.class }, el("i"), s.text)));
		toggle.lastChild?.replaceWith(asTable ? "Show as plot" : "Show as table");
		if (asTable) {
			const columns = [["Time"], ...series.map(s => [s.text, "right"])];
			redraw(body, el("div.plot-table", { tabindex: "0", role: "region", "aria-label": drawing.title }, table({ caption: drawing.title, class: "tight", columns,
				rows: points.map(([at], i) => tr(columns, [el("a", { href: drawing.select(at, at + drawing.step) }, time(new Date(at * 1000).toISOString(), { short: true })), ...series.map(s => {
					const value = s.points[i]?.[1], text = value == null ? "–" : format(value);
					return value && drawing.open ? el("a", { href: drawing.open(s, i) }, text) : text;
				})])).reverse() })), under);
			return;
		}
		if (picture.parentNode !== body) redraw(body, picture, under);
		const width = picture.clientWidth || 560;
		const n = points.length, base = height - bottom;
		const peak = nice(Math.max(...points.map((_, i) => {
			const values = series.map(s => s.points[i]?.[1] ?? 0);
			return kind === "bars" ? values.reduce((a, b) => a + b) : Math.max(...values);
		})), drawing.whole, drawing.seconds);
		left = Math.max(42, ...[.5, 1].map(part => 12 + 6.2 * format(peak * part).length));
		const y = (v = 0) => top + (base - top) * (1 - v / peak);
		picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
		picture.setAttribute("aria-label", drawing.sentence);
		put(picture, axes(), kind === "bars" ? bars() : lines());

		function bars() {
			const wide = Math.max(1, (width - left - right) / n - 1.5);
			const bases = Array(n).fill(0);
			return series.map((s, k) => svg("path", { class: `bar ${s.class}`, "data-series": drawing.open ? k : null, d: s.points.map(([, value], i) => {
				if (!value) return "";
				const from = y(bases[i]), to = Math.min(y(bases[i] += value), from - (k ? 3 : 1)); // few among many can be seen, and be clicked on
				return `M${(x(i, width) - wide / 2).toFixed(1)} ${from.toFixed(1)}V${to.toFixed(1)}h${wide.toFixed(1)}V${from.toFixed(1)}z`;
			}).join("") }));
		}

		// Where there is no value the line has a hole; a value between two holes is a dash.
		function lines() {
			return series.map(s => {
				let d = "", area = "", start = -1;
				s.points.forEach(([, value], i) => {
					const has = value != null, at = `${x(i, width).toFixed(1)} ${y(value ?? 0).toFixed(1)}`;
					if (has) d += `${start < 0 ? "M" : "L"}${at}`;
					if (has && start < 0) start = i;
					if (has) area += start === i ? `M${x(i, width).toFixed(1)} ${base}L${at}` : `L${at}`;
					if (start >= 0 && (!has || i === n - 1)) {
						if (start === (has ? i : i - 1)) d += "m-2 0h4";
						area += `V${base}z`;
						start = -1;
					}
				});
				return [s.area && svg("path", { class: "area", d: area }), svg("path", { class: `line ${s.class}`, d })];
			});
		}

		function axes() {
			const days = n > 1 && points[n - 1][0] - points[0][0] > 90000, labels = width < 400 ? 3 : 5;
			return [
				[0, .5, 1].map(part => {
					const at = Math.round(y(peak * part)) + .5;
					return [svg("line", { class: part ? "gridline" : "axis", x1: left, x2: width - right, y1: at, y2: at }), svg("text", { x: left - 6, y: at + 3.5, "text-anchor": "end" }, format(peak * part))];
				}),
				Array.from({ length: labels }, (_, k) => {
					const i = Math.round((n - 1) * k / (labels - 1)), last = k === labels - 1;
					const text = last ? "now" : clock(points[i][0] * 1000, { short: true, always: !days }).replace(days ? / \d\d:\d\d$/ : "", "");
					return svg("text", { x: left + (width - left - right) * k / (labels - 1), y: height - 5, "text-anchor": last ? "end" : k ? "middle" : "start" }, text);
				}),
			];
		}
	}

	/** Where dragging began, and on which bar. @type {{i: number, x: number, bar: string | null | undefined} | undefined} */
	let began;
	/** The point below a pointer. @param {PointerEvent} event */
	function below(event) {
		const box = picture.getBoundingClientRect(), n = drawing.series[0].points.length, part = (event.clientX - box.left - left) / (box.width - left - right);
		return Math.min(n - 1, Math.max(0, drawing.kind === "bars" ? Math.floor(part * n) : Math.round(part * (n - 1))));
	}
	/** The time that was dragged over. @param {PointerEvent} event */
	function dragged(event) {
		if (!began || Math.abs(event.clientX - began.x) < 5) return;
		const points = drawing.series[0].points, [a, b] = [began.i, below(event)].sort((one, other) => one - other);
		return { a, b, from: points[a][0], to: points[b][0] + drawing.step };
	}
	const forget = () => picture.querySelectorAll(".cursor, .selection").forEach(mark => mark.remove());

	picture.addEventListener("pointerdown", event => {
		if (event.button) return;
		event.preventDefault(); // or it would select texts
		began = { i: below(event), x: event.clientX, bar: event.target instanceof Element ? event.target.getAttribute("data-series") : null };
		picture.setPointerCapture(event.pointerId);
	});
	picture.addEventListener("pointermove", event => {
		const { series, format } = drawing, width = picture.clientWidth, i = below(event), time = dragged(event);
		forget();
		if (time) {
			const wide = drawing.kind === "bars" ? (width - left - right) / series[0].points.length / 2 : 0, x1 = x(time.a, width) - wide, x2 = x(time.b, width) + wide;
			picture.append(svg("rect", { class: "selection", x: x1, width: Math.max(2, x2 - x1), y: top, height: height - bottom - top }));
			readout.textContent = `Runs of ${periodName(iso(time.from * 1000), iso(time.to * 1000))}`;
			return;
		}
		picture.append(svg("line", { class: "cursor", x1: x(i, width), x2: x(i, width), y1: top, y2: height - bottom }));
		readout.textContent = [clock(series[0].points[i][0] * 1000, { short: true }), ...series.map(s => `${s.text} ${s.points[i][1] == null ? "–" : format(s.points[i][1] ?? 0)}`)].join(" · ");
	});
	picture.addEventListener("pointerup", event => {
		const time = dragged(event), bar = began?.bar;
		began = undefined;
		forget();
		if (time) location.hash = drawing.select(time.from, time.to);
		else if (bar && drawing.open) location.hash = drawing.open(drawing.series[Number(bar)], below(event));
	});
	for (const name of ["pointerleave", "pointercancel"]) picture.addEventListener(name, () => {
		if (name === "pointercancel") began = undefined;
		if (began) return;
		forget();
		readout.textContent = "";
	});

	let width = 0;
	const watcher = new ResizeObserver(() => {
		if (body.clientWidth === width) return;
		width = body.clientWidth;
		draw();
	});
	draw();
	watcher.observe(body);
	return {
		node,
		/** @param {Drawing} next */
		update(next) {
			drawing = next;
			if (!node.contains(document.activeElement) || !asTable) draw();
		},
	};
}

/** A small line without axes. @param {Point[]} points */
export function spark(points) {
	const peak = Math.max(1, ...points.map(([, value]) => value ?? 0));
	const d = points.map(([, value], i) => `${i ? "L" : "M"}${(1 + 88 * i / Math.max(1, points.length - 1)).toFixed(1)} ${(19 - 18 * (value ?? 0) / peak).toFixed(1)}`).join("");
	return svg("svg", { class: "spark", viewBox: "0 0 90 20", "aria-hidden": "true" }, svg("path", { d }));
}
