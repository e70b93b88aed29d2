// The images of the page: what is known of each, and its picture.
// Names of classes and files may be hostile: they reach the page as text only.
"use strict";
window.explorerImages = (() => {
  const TYPES = { int32: Int32Array, float32: Float32Array, uint8: Uint8Array };
  const SYMBOLS = { circle: "●", square: "■", triangle: "▲", diamond: "◆",
    inverted_triangle: "▼", star: "★", x: "✕" };
  const VIRIDIS = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98],
    [253, 231, 37]]; // equally spaced colours of matplotlib's map
  const RIGHT = { symbol: "✓", text: "right", kind: "right", color: "#00599c",
    dashes: [] };
  const WRONG = { symbol: "✗", text: "wrong", kind: "wrong", color: "#c04000",
    dashes: [4, 3] };
  const UNKNOWN = { symbol: "?", text: "class not known", kind: "unknown",
    color: "#666", dashes: [1, 3] };
  const content = JSON.parse(document.getElementById("explore-data").textContent);
  const { names, classes, atlas, styles } = content;
  const count = names.length;
  const labels = decoded(content.labels), predicted = decoded(content.predicted);
  const neighbours = decoded(content.neighbours), apart = decoded(content.distances);
  const k = neighbours.length / count;
  const unpacked = (part) => part && Object.fromEntries(Object.entries(part).map(
    ([name, value]) => [name, value.bytes === undefined ? value : decoded(value)]));
  const weights = unpacked(content.weights), prototypes = unpacked(content.prototypes);
  let sheets; // all thumbnails, in several sizes

  function decoded({ dtype, bytes }) {
    const raw = Uint8Array.from(atob(bytes), (letter) => letter.charCodeAt(0));
    return new TYPES[dtype](raw.buffer);
  }

  function node(tag, attributes = {}, ...children) {
    const made = Object.assign(document.createElement(tag), attributes);
    made.append(...children);
    return made;
  }

  const classOf = (index) => classes[index] || "no class";
  const percent = (share) => `${(100 * share).toFixed(1)} %`;

  function verdict(row, other) {
    if (!classes[labels[row]] || !classes[labels[other]]) return UNKNOWN;
    return labels[row] === labels[other] ? RIGHT : WRONG;
  }

  function mark(index) {
    const { color, marker } = styles[index];
    const made = node("span", { className: "mark", textContent: SYMBOLS[marker] });
    made.style.color = color;
    made.setAttribute("aria-hidden", "true");
    return made;
  }

  async function load() {
    if (!atlas) return;
    const image = new Image();
    image.src = atlas.url;
    await image.decode();
    sheets = [await createImageBitmap(image)];
    // Small pictures come from small sheets, which are quicker and smoother.
    for (let size = atlas.size / 2; size >= 8 && Number.isInteger(size); size /= 2) {
      const { width, height } = sheets.at(-1);
      sheets.push(await createImageBitmap(image, { resizeWidth: width / 2,
        resizeHeight: height / 2, resizeQuality: "medium" }));
    }
  }

  // Of a canvas where pictures have so many pixels.
  function painter(context, pixels) {
    if (!atlas) return (row, x, y, side) => {
      context.fillStyle = styles[labels[row]].color;
      context.fillRect(x, y, side, side);
    };
    const { columns } = atlas;
    let level = 0, { size } = atlas;
    while (level + 1 < sheets.length && size / 2 >= pixels) {
      level += 1;
      size /= 2;
    }
    context.imageSmoothingEnabled = pixels < size;
    return (row, x, y, side) => context.drawImage(sheets[level], (row % columns) * size,
      Math.floor(row / columns) * size, size, size, x, y, side, side);
  }

  function picture(row, side) {
    const pixels = Math.round(side * window.devicePixelRatio);
    const canvas = node("canvas", { width: pixels, height: pixels });
    canvas.style.width = canvas.style.height = `${side}px`;
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `${classOf(labels[row])}: ${names[row]}`);
    painter(canvas.getContext("2d"), pixels)(row, 0, 0, pixels);
    return canvas;
  }

  function viridis(strength) {
    const last = VIRIDIS.length - 1;
    const below = Math.min(Math.floor(strength * last), last - 1);
    const part = strength * last - below;
    return VIRIDIS[below].map(
      (low, channel) => Math.round(low + part * (VIRIDIS[below + 1][channel] - low)));
  }

  function heat(row, side) {
    const canvas = picture(row, side);
    const context = canvas.getContext("2d");
    const [height, width] = weights.layout;
    for (let place = 0; place < height * width; place++) {
      const x = place % width, y = Math.floor(place / width);
      const strength = weights.values[row * height * width + place] / 255;
      context.fillStyle = `rgb(${viridis(strength).join(" ")} / .6)`;
      const left = Math.round((x * canvas.width) / width);
      const top = Math.round((y * canvas.height) / height);
      context.fillRect(left, top, Math.round(((x + 1) * canvas.width) / width) - left,
        Math.round(((y + 1) * canvas.height) / height) - top);
    }
    canvas.setAttribute("aria-label", "pooling weights over the picture");
    return canvas;
  }

  return { content, names, classes, styles, count, labels, predicted, neighbours, apart,
    k, weights, prototypes, WRONG, classOf, percent, verdict, node, mark, load, painter, picture, heat };
})();
