// What a picture shows of the controls of a page, whose looks are the browser's own: their values.
import { made, word, type Origin } from "./drawing";

export type Control = HTMLInputElement | HTMLSelectElement | HTMLTextAreaElement;

export function isControl(element: Element): element is Control {
  return element instanceof HTMLInputElement || element instanceof HTMLSelectElement || element instanceof HTMLTextAreaElement;
}

export function drawControl(element: Control, style: CSSStyleDeclaration, into: SVGElement, { x, y }: Origin, { width, height }: DOMRect) {
  const middle = y + height / 2;
  const [accent, line] = [style.accentColor === "auto" ? style.color : style.accentColor, style.color];
  if (element.type === "range") {
    const { min, max, valueAsNumber } = element as HTMLInputElement;
    const at = x + 8 + (width - 16) * ((valueAsNumber - Number(min)) / (Number(max) - Number(min) || 1));
    into.append(
      made("line", { x1: x + 4, x2: x + width - 4, y1: middle, y2: middle, stroke: line, "stroke-opacity": 0.25, "stroke-width": 3 }),
      made("line", { x1: x + 4, x2: at, y1: middle, y2: middle, stroke: accent, "stroke-width": 3 }),
      made("circle", { cx: at, cy: middle, r: 6, fill: accent }),
    );
  } else if (element.type === "checkbox") {
    const { checked } = element as HTMLInputElement;
    into.append(made("rect", { x, y, width, height, rx: 2, fill: checked ? accent : "none", stroke: checked ? accent : line }));
    if (checked) into.append(made("path", { d: `M${x + 3} ${middle}l2.5 3l4.5 -6`, fill: "none", stroke: "white", "stroke-width": 1.8 }));
  } else {
    const value = element instanceof HTMLSelectElement ? (element.selectedOptions[0]?.text ?? "") : element.value || element.placeholder;
    const quiet = !(element instanceof HTMLSelectElement) && !element.value;
    const text = word(value, quiet ? getComputedStyle(element, "::placeholder") : style, { x: x + parseFloat(style.paddingLeft) + 1, y: middle });
    const inside = made("svg", { x, y, width, height, viewBox: `${x} ${y} ${width} ${height}` });
    inside.append(text);
    into.append(inside);
  }
}
