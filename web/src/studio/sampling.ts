// From which tokens one is drawn, and how likely each is: the rules of Sampler.likely (decoding/sampling.py), which a test
// holds equal.

export interface Limits {
  temperature: number;
  top_k: number | null;
  top_p: number | null;
}

// The probabilities of tokens whose log-probabilities are given, the highest first; 0 for those that may not be drawn.
export function likely(scores: ArrayLike<number>, { temperature, top_k, top_p }: Limits): Float64Array {
  const count = top_k === null ? scores.length : Math.min(top_k, scores.length);
  const highest = scores[0]!;
  let found: Float64Array = Float64Array.from({ length: count }, (_, place) => Math.exp(Math.fround(scores[place]! - highest) / temperature));
  found = scaled(found);
  if (top_p !== null && top_p < 1) {
    let before = 0;
    found = found.map((each) => {
      const kept = before < top_p ? each : 0;
      before += each;
      return kept;
    });
  }
  return scaled(found);
}

function scaled(values: Float64Array): Float64Array {
  const sum = values.reduce((total, each) => total + each, 0);
  return values.map((each) => each / sum);
}
