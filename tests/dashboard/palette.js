// A picture in at most 256 colours: those that most of its points have, then those that would be missed most; each other
// point takes the nearest of them. Gives [width, height, the colours as [red, green, blue], one number for each point as
// base64 text].
async (png) => {
  const COMMON = 64;
  const image = new Image();
  image.src = `data:image/png;base64,${png}`;
  await image.decode();
  const { width, height } = image;
  const canvas = new OffscreenCanvas(width, height).getContext("2d");
  canvas.drawImage(image, 0, 0);
  const points = new Uint32Array(canvas.getImageData(0, 0, width, height).data.buffer);
  const counts = new Map();
  for (const point of points) counts.set(point, (counts.get(point) || 0) + 1);
  const parts = (point) => [point & 255, (point >> 8) & 255, (point >> 16) & 255];
  const known = [...counts.keys()].sort((a, b) => counts.get(b) - counts.get(a) || a - b);
  const places = known.map(parts);
  const away = places.map(() => Infinity);
  const colours = [];
  const keep = (chosen) => {
    colours.push(places[chosen]);
    places.forEach((one, at) => {
      const far = places[chosen].reduce((sum, part, channel) => sum + (part - one[channel]) ** 2, 0);
      away[at] = Math.min(away[at], far);
    });
  };
  while (colours.length < Math.min(COMMON, known.length)) keep(colours.length);
  while (colours.length < Math.min(256, known.length)) {
    const missed = away.map((far, at) => far * Math.sqrt(counts.get(known[at])));
    keep(missed.indexOf(Math.max(...missed)));
  }
  const nearest = (point) => {
    const [red, green, blue] = parts(point);
    let best = 0, least = Infinity;
    colours.forEach((one, at) => {
      const far = (one[0] - red) ** 2 + (one[1] - green) ** 2 + (one[2] - blue) ** 2;
      if (far < least) [best, least] = [at, far];
    });
    return best;
  };
  const numbers = new Map([...counts.keys()].map((point) => [point, nearest(point)]));
  let text = "";
  for (let at = 0; at < points.length; at += 8192) {
    text += String.fromCharCode(...Array.from(points.subarray(at, at + 8192), (point) => numbers.get(point)));
  }
  return [width, height, colours, btoa(text)];
}
