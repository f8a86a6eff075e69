// Elements of drawings.
export const SVG = "http://www.w3.org/2000/svg";

export interface Origin {
  x: number;
  y: number;
}

export function made(name: string, attributes: Record<string, string | number>): SVGElement {
  return set(document.createElementNS(SVG, name) as SVGElement, attributes);
}

export function set(element: SVGElement, attributes: Record<string, string | number>): SVGElement {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  return element;
}

export function word(text: string, style: CSSStyleDeclaration, at: Origin | { transform: string }): SVGElement {
  const font = { "font-size": style.fontSize, "font-weight": style.fontWeight, "font-style": style.fontStyle, "font-family": style.fontFamily };
  const where = { "dominant-baseline": "central", direction: style.direction, "xml:space": "preserve" };
  const found = made("text", { ...at, ...font, fill: style.color, ...where });
  found.textContent = text;
  return found;
}
