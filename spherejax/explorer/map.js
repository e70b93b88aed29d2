// The map of the page. Bokeh draws the points, pans, zooms and says where the
// pointer is; this file fills the panels and draws pictures over the points. While the map
// moves nothing is painted: what is there moves along, and all is painted anew at rest.
// Names of classes and files may be hostile: they reach the page as text only.
"use strict";
window.explorer = (() => {
  const { content, names, classes, styles, count, labels, predicted, neighbours, apart, k,
    weights, prototypes, WRONG, classOf, percent, verdict, node, mark, load, painter, picture, heat,
  } = window.explorerImages;
  const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1],
    ArrowDown: [0, 1] };
  const REST = 120; // milliseconds without a move after which the map is painted anew
  const byId = (id) => document.getElementById(id);
  const shown = new Uint8Array(count).fill(1);
  const chosen = new Set(); // classes that the filter keeps; none: all
  let wanted = ""; // what the names of a shown image's class or file have in them
  let colors = labels, selected = -1, under = -1, waiting = false;
  let bokeh, view; // models, and Bokeh's own view of the plot
  let bounds; // of the map
  let painted, size; // the part of the map that is painted, and what symbols measure
  let sketched = false, resting = 0; // whether the sketch is up to date; a timer

  function button(row, side, className, ...children) {
    const made = node("button", { type: "button", className, title: names[row] },
      picture(row, side), ...children);
    made.dataset.row = row;
    made.addEventListener("click", () => select(row));
    return made;
  }

  // ------------------------------------------------------------------ panels

  function neighbour(row, place) {
    const other = neighbours[row * k + place];
    const { symbol, text, kind } = verdict(row, other);
    const badge = node("span", { className: "badge", textContent: symbol });
    badge.setAttribute("aria-label", text);
    const caption = node("span", { className: "caption" }, mark(labels[other]),
      ` ${classOf(labels[other])}`);
    const distance = node("span", { className: "distance",
      textContent: apart[row * k + place].toPrecision(3) });
    return button(other, 56, `neighbour ${kind}`, badge, caption, distance);
  }

  function dominant(row) {
    const { shown, order, shares, examples } = prototypes;
    const list = node("div", { id: "prototypes" });
    for (let place = 0; place < shown; place++) {
      const index = order[row * shown + place], share = shares[row * shown + place];
      const bar = node("div", { className: "bar" });
      bar.style.width = `${100 * share}%`;
      const head = node("div", {}, `prototype ${index}: ${percent(share)}`, bar);
      const rows = examples.subarray(index * shown, (index + 1) * shown);
      list.append(node("div", { className: "prototype" }, head,
        ...Array.from(rows, (other) => button(other, 28, "example"))));
    }
    return list;
  }

  function pooling(row) {
    const parts = [];
    if (weights || prototypes) parts.push(node("h2", { textContent: "Pooling" }));
    if (weights) {
      const legend = node("span", { className: "note" },
        `Weights at ${weights.layout.join(" × ")} positions, from 0 `,
        node("span", { className: "scale" }), ` to ${percent(weights.peaks[row])};`
        + ` their mean is ${percent(weights.means[row])}.`);
      parts.push(node("div", { id: "heat" }, heat(row, 112), legend));
    }
    if (prototypes) {
      const note = "Prototypes with the largest shares of what is pooled, and the images"
        + " in which each has most:";
      parts.push(node("p", { className: "note", textContent: note }), dominant(row));
    }
    return parts;
  }

  function describe(row) {
    const { symbol, text, kind } = verdict(row, neighbours[row * k]);
    const said = node("span", { className: kind }, `${symbol} ${text}`);
    return node("div", { className: "facts" },
      node("div", { id: "class" }, mark(labels[row]), ` ${classOf(labels[row])}`),
      node("div", { className: "file", textContent: names[row] }),
      node("div", {}, "predicted: ", mark(predicted[row]),
        ` ${classOf(predicted[row])} `, said));
  }

  function select(row) {
    selected = row;
    const list = node("div", { id: "neighbours" });
    for (let place = 0; place < k; place++) list.append(neighbour(row, place));
    byId("panel").replaceChildren(
      node("div", { id: "chosen" }, picture(row, 112), describe(row)),
      node("h2", { textContent: `${k} nearest by distance` }), list, ...pooling(row));
    byId("panel").dataset.row = row;
    byId("panel").scrollTop = 0;
    requestMarks();
  }

  function hover(row) {
    const card = byId("card");
    card.hidden = row < 0;
    if (row !== under && row >= 0) {
      card.replaceChildren(picture(row, 96), describe(row));
      card.dataset.row = row;
    }
    if (row >= 0) {
      const [x, y] = places()(row), box = byId("map");
      const left = x + 150 < box.clientWidth / 2 || x < 320 ? x + 16 : x - 306;
      card.style.left = `${Math.max(4, Math.min(left, box.clientWidth - 296))}px`;
      card.style.top = `${Math.max(4, Math.min(y + 14, box.clientHeight - 130))}px`;
    }
    if (row !== under) requestMarks();
    under = row;
  }

  // ------------------------------------------------------------------ map

  // The part of the map that is shown.
  function region() {
    const { x_range: across, y_range: up } = bokeh.plot;
    return { left: across.start, right: across.end, top: up.end, bottom: up.start };
  }

  // From images to pixels, where that part of the map fills its box.
  function places({ left, right, top, bottom } = region()) {
    const { clientWidth, clientHeight } = byId("map"), { x, y } = bokeh.source.data;
    const width = clientWidth / (right - left), height = clientHeight / (top - bottom);
    return (row) => [(x[row] - left) * width, (top - y[row]) * height];
  }

  // The image whose symbol or picture lies there; of several the nearest; or -1.
  function hit({ sx, sy }) {
    const place = places(), reach = size / 2 + 2;
    let best = -1, least = Infinity;
    for (let row = 0; row < count; row++) {
      if (!shown[row]) continue;
      const [x, y] = place(row), across = Math.abs(x - sx), down = Math.abs(y - sy);
      const distance = Math.hypot(across, down);
      if (Math.max(across, down) <= reach && distance < least) {
        [best, least] = [row, distance];
      }
    }
    return best;
  }

  // By keyboard: the next image in a direction, at first the one nearest to the middle.
  function step(across, down) {
    const place = places(), { clientWidth, clientHeight } = byId("map");
    const from = under >= 0 ? under : selected;
    const [x, y] = from >= 0 ? place(from) : [clientWidth / 2, clientHeight / 2];
    let best = -1, least = Infinity;
    for (let row = 0; row < count; row++) {
      if (!shown[row] || row === from) continue;
      const [u, v] = place(row), along = (u - x) * across + (v - y) * down;
      const aside = Math.abs((u - x) * down) + Math.abs((v - y) * across);
      const cost = from < 0 ? Math.hypot(u - x, v - y) : along + 2 * aside;
      if (cost < least && (from < 0 || along > 0)) [best, least] = [row, cost];
    }
    if (best < 0) return;
    const [left, top] = place(best);
    if (left < 0 || top < 0 || left > clientWidth || top > clientHeight) center(best);
    hover(best);
  }

  function center(row) {
    const { left, right, top, bottom } = region(), { x, y } = bokeh.source.data;
    const { x_range: wide, y_range: high } = bokeh.plot;
    wide.setv({ start: x[row] - (right - left) / 2, end: x[row] + (right - left) / 2 });
    high.setv({ start: y[row] - (top - bottom) / 2, end: y[row] + (top - bottom) / 2 });
  }

  function press(event) {
    if (event.key in ARROWS) step(...ARROWS[event.key]);
    else if (event.key === "Enter" && under >= 0) select(under);
    else return;
    event.preventDefault();
  }

  // The part of the map that holds all images.
  function whole() {
    const box = byId("map"), [left, right, bottom, top] = bounds;
    const unit = 1.08 * Math.max((right - left) / box.clientWidth,
      (top - bottom) / box.clientHeight); // of the map, for each pixel
    const across = unit * box.clientWidth / 2, up = unit * box.clientHeight / 2;
    const x = (left + right) / 2, y = (bottom + top) / 2;
    return { left: x - across, right: x + across, top: y + up, bottom: y - up };
  }

  function fit() {
    const { left, right, top, bottom } = whole();
    bokeh.plot.x_range.setv({ start: left, end: right });
    bokeh.plot.y_range.setv({ start: bottom, end: top });
    sketched = false;
    rest();
  }

  function side() {
    // Pictures cover about the area of the map, and grow when one zooms in.
    const box = byId("map"), { start, end } = bokeh.plot.x_range;
    const unit = (end - start) / box.clientWidth, [left, right, bottom, top] = bounds;
    const area = (right - left) * (top - bottom) / unit ** 2;
    return Math.max(8, Math.min(64, 0.65 * Math.sqrt(area / count)));
  }

  // Around a point a ring; a picture is drawn again, above the others.
  function frame({ context, place, paint }, row, reach, color, dashes = []) {
    const [x, y] = place(row), half = reach / 2 + (paint ? 2 : 3);
    if (paint) paint(row, x - reach / 2, y - reach / 2, reach);
    context.beginPath();
    if (paint) context.rect(x - half, y - half, 2 * half, 2 * half);
    else context.arc(x, y, half, 0, 2 * Math.PI);
    for (const [style, width, dash] of [["#fff", 6, []], [color, 3, dashes]]) {
      context.setLineDash(dash);
      context.strokeStyle = style;
      context.lineWidth = width;
      context.stroke();
    }
  }

  // A canvas over the map, empty.
  function blank(id) {
    const canvas = byId(id), context = canvas.getContext("2d");
    const { clientWidth: width, clientHeight: height } = byId("map");
    const scale = window.devicePixelRatio;
    const across = Math.round(width * scale), down = Math.round(height * scale);
    if (canvas.width !== across) canvas.width = across;
    if (canvas.height !== down) canvas.height = down;
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, width, height);
    return { context, width, height };
  }

  function drawPictures() {
    const { context, width, height } = blank("drawn"), place = places();
    const paint = painter(context, size * window.devicePixelRatio);
    for (let row = 0; row < count; row++) {
      if (!shown[row]) continue;
      const [x, y] = place(row), left = x - size / 2, top = y - size / 2;
      if (left > width || top > height || left + size < 0 || top + size < 0) continue;
      context.fillStyle = styles[colors[row]].color;
      context.fillRect(left - 1.5, top - 1.5, size + 3, size + 3);
      paint(row, left, top, size);
    }
  }

  // All images as small squares: what a moving map shows around the part that is painted.
  function drawSketch() {
    sketched = true;
    const { context } = blank("sketch"), place = places(whole());
    const dot = content.point - 1;
    for (let row = 0; row < count; row++) {
      if (!shown[row]) continue;
      const [x, y] = place(row);
      context.fillStyle = styles[colors[row]].color;
      context.fillRect(x - dot / 2, y - dot / 2, dot, dot);
    }
  }

  // What is chosen and what is under the pointer; symbols there have so many pixels.
  function drawMarks(reach) {
    const { context } = blank("over"), place = places();
    const paint = byId("pictures").checked
      && painter(context, reach * window.devicePixelRatio);
    const drawing = { context, paint, place };
    if (selected >= 0 && shown[selected]) {
      const others = neighbours.subarray(selected * k, (selected + 1) * k);
      const seen = Array.from(others).filter((other) => shown[other]).reverse();
      for (const other of seen) {
        const { color, dashes } = verdict(selected, other);
        context.beginPath();
        context.setLineDash(dashes);
        context.moveTo(...place(selected));
        context.lineTo(...place(other));
        context.strokeStyle = color;
        context.lineWidth = 1.2;
        context.stroke();
      }
      for (const other of seen) {
        const { color, dashes } = verdict(selected, other);
        frame(drawing, other, reach, color, dashes);
      }
      frame(drawing, selected, reach + 6, "#111");
    }
    if (under >= 0 && shown[under]) frame(drawing, under, reach + 3, "#111");
  }

  // Shows a part of the map that is painted on a canvas where it lies now.
  function lay(canvas, from) {
    const to = region(), { clientWidth, clientHeight } = byId("map");
    const across = (from.right - from.left) / (to.right - to.left);
    const down = (from.top - from.bottom) / (to.top - to.bottom);
    const x = clientWidth * (from.left - to.left) / (to.right - to.left);
    const y = clientHeight * (to.top - from.top) / (to.top - to.bottom);
    canvas.style.transform = `translate(${x}px, ${y}px) scale(${across}, ${down})`;
    return across;
  }

  function drawMoving() {
    waiting = false;
    if (!bokeh.plot.hold_render) {
      drawMarks(size);
      return;
    }
    if (!sketched) drawSketch();
    byId("sketch").hidden = false;
    lay(byId("sketch"), whole());
    const scale = lay(view.canvas.primary.el, painted);
    lay(byId("drawn"), painted);
    drawMarks(size * scale);
  }

  function requestMarks() {
    if (waiting || !painted) return;
    waiting = true;
    window.requestAnimationFrame(drawMoving);
  }

  function move() {
    hover(-1);
    if (painted) bokeh.plot.hold_render = true;
    clearTimeout(resting);
    resting = setTimeout(rest, REST);
    requestMarks();
  }

  // Everything is painted in Bokeh's next frame.
  function rest() {
    clearTimeout(resting);
    bokeh.plot.hold_render = false;
    view.request_paint();
  }

  // After Bokeh has painted the points.
  function draw() {
    const pictures = byId("pictures").checked;
    size = pictures ? side() : content.point;
    painted = region();
    for (const canvas of [view.canvas.primary.el, byId("drawn")]) {
      canvas.style.transform = "";
    }
    byId("sketch").hidden = true;
    byId("drawn").hidden = !pictures;
    if (pictures) drawPictures();
    drawMarks(size);
    document.body.dataset.ready = "yes";
  }

  // ------------------------------------------------------------------ filter, colour

  const holds = (text) => text.toLowerCase().includes(wanted);

  function applyFilter() {
    const wrong = byId("wrong").checked, named = classes.map((_, i) => holds(classOf(i)));
    const rows = [];
    for (let row = 0; row < count; row++) {
      shown[row] = (!chosen.size || chosen.has(labels[row]))
        && (named[labels[row]] || holds(names[row]))
        && (!wrong || verdict(row, neighbours[row * k]) === WRONG);
      if (shown[row]) rows.push(row);
    }
    bokeh.filter.indices = rows.length === count ? null : rows;
    byId("count").textContent = `${rows.length} of ${count} images shown`;
    hover(-1);
    sketched = false;
    rest();
  }

  function applyColors() {
    colors = byId("color").value === "class" ? labels : predicted;
    bokeh.source.data.color = Array.from(colors, (index) => styles[index].color);
    bokeh.source.data.marker = Array.from(colors, (index) => styles[index].marker);
    bokeh.source.change.emit();
    sketched = false;
    rest();
  }

  function applyPictures() {
    bokeh.points.visible = !byId("pictures").checked;
    rest();
  }

  function listClasses() {
    const sizes = new Int32Array(classes.length);
    for (const label of labels) sizes[label]++;
    const items = classes.map((name, index) => {
      const box = node("input", { type: "checkbox", value: index });
      box.addEventListener("change", () => {
        if (box.checked) chosen.add(index);
        else chosen.delete(index);
        applyFilter();
      });
      return node("label", { title: classOf(index) }, box, mark(index),
        node("span", { className: "name", textContent: classOf(index) }),
        node("span", { className: "size", textContent: sizes[index] }));
    });
    byId("classes").append(...items);
    byId("search").addEventListener("input", ({ target }) => {
      wanted = target.value.trim().toLowerCase();
      items.forEach((item, index) => {
        item.hidden = !holds(classOf(index));
      });
      applyFilter();
    });
    byId("all").addEventListener("click", () => {
      chosen.clear();
      for (const box of byId("classes").querySelectorAll("input")) box.checked = false;
      byId("wrong").checked = false;
      byId("search").value = wanted = "";
      for (const item of items) item.hidden = false;
      applyFilter();
    });
  }

  function listDuplicates() {
    const groups = content.duplicates.map((rows) => node("div", { className: "group" },
      ...rows.map((row) => button(row, 56, "example"))));
    const said = "Images much nearer to each other than images are to their nearest one:";
    byId("panel").replaceChildren(
      node("h2", { textContent: `${groups.length} groups of near-duplicates` }),
      node("p", { className: "note", textContent: said }), ...groups);
    delete byId("panel").dataset.row;
  }

  // What is shown, as a table.
  function table() {
    const quoted = (text) => `"${text.replaceAll('"', '""')}"`;
    const lines = ["file,class,nearest image's class"];
    for (let row = 0; row < count; row++) {
      if (shown[row]) lines.push([names[row], classes[labels[row]],
        classes[predicted[row]]].map(quoted).join(","));
    }
    return `${lines.join("\n")}\n`;
  }

  function save() {
    const href = URL.createObjectURL(new Blob([table()], { type: "text/csv" }));
    node("a", { href, download: "images.csv" }).click();
    setTimeout(() => URL.revokeObjectURL(href), 60000);
  }

  function fold() {
    const open = document.body.classList.toggle("unfolded");
    byId("fold").setAttribute("aria-expanded", open);
  }

  async function start(models) {
    bokeh = models;
    view = window.Bokeh.index.get_one(bokeh.plot);
    const { x, y } = bokeh.source.data;
    bounds = [Infinity, -Infinity, Infinity, -Infinity];
    for (let row = 0; row < count; row++) {
      bounds = [Math.min(bounds[0], x[row]), Math.max(bounds[1], x[row]),
        Math.min(bounds[2], y[row]), Math.max(bounds[3], y[row])];
    }
    await load();
    byId("pictures").parentElement.hidden = !content.atlas;
    document.title = byId("title").textContent = content.title;
    byId("subtitle").textContent = content.subtitle;
    listClasses();
    for (const range of [bokeh.plot.x_range, bokeh.plot.y_range]) {
      range.change.connect(move);
    }
    byId("map").addEventListener("mouseleave", () => hover(-1));
    byId("map").addEventListener("keydown", press);
    byId("wrong").addEventListener("change", applyFilter);
    byId("color").addEventListener("change", applyColors);
    byId("pictures").addEventListener("change", applyPictures);
    byId("fit").addEventListener("click", fit);
    byId("fold").addEventListener("click", fold);
    byId("save").addEventListener("click", save);
    byId("duplicates").hidden = !content.duplicates.length;
    byId("duplicates").addEventListener("click", listDuplicates);
    view.canvas.primary.el.style.transformOrigin = "0 0";
    applyFilter();
    fit();
    view.repainted.connect(draw);
    new ResizeObserver(fit).observe(byId("map"));
  }

  return {
    start, select, rest, table,
    place: (row) => places()(row),
    size: () => size,
    inspect: (event) => hover(hit(event)),
    tap: (event) => {
      const row = hit(event);
      if (row >= 0) select(row);
    },
  };
})();
