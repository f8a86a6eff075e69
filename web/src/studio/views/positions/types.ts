// What the server says of positions and embeddings (studio/views/positions.py).

export interface Scheme {
  kind: string; // "Sinusoidal", "Learned", "Rotary", "RelativeBias", "ALiBi"
  distances: number[];
  vectors: Field | null; // positions x features
  similarity: Field | null; // positions x positions
  lines: Float32Array[]; // by distance: one, or one for each head
}

export interface Field {
  values: Float32Array;
  width: number;
  height: number;
}

export interface Maps {
  stack: string;
  points: string[]; // of each layer
  tokens: string[];
  texts: number[]; // which text each token is from
  total: number; // tokens that the texts have
  explained: number[]; // of the variance, by layer
  words: number[][]; // the tokens of each word of the first text
}

export interface Near {
  token: string;
  points: string[];
  near: { text: string; of: number; place: number; cosine: number }[][]; // by layer
  vocabulary: { text: string; cosine: number }[];
}

export function layerName(point: string): string {
  const [, what, end] = point.split(".");
  if (what === "embedding") return "static";
  if (what === "output") return "at the end";
  if (end === "before") return "+ position";
  return end === "state" ? `layer ${what}` : `block ${what}`;
}
