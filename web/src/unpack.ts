// An answer from its packed form: a header and arrays by name; looking/answer.py says what the bytes are.

export interface Numbers {
  type: "u1" | "u2" | "f4" | "i4";
  shape: number[];
  data: Uint8Array | Uint16Array | Float32Array | Int32Array;
}

export interface Answer<Header> {
  header: Header;
  arrays: Record<string, Numbers>;
}

const KINDS = { u1: Uint8Array, u2: Uint16Array, f4: Float32Array, i4: Int32Array };

export async function unpack<Header>(packed: Uint8Array<ArrayBuffer>): Promise<Answer<Header>> {
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const bytes = await new Response(stream).arrayBuffer();
  const length = new DataView(bytes).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(bytes, 4, length)));
  const { arrays: said, ...rest } = header as { arrays: (Omit<Numbers, "data"> & { name: string })[] };
  const arrays: Record<string, Numbers> = {};
  let place = 4 + length;
  for (const { name, type, shape } of said) {
    const size = shape.reduce((product, each) => product * each, KINDS[type].BYTES_PER_ELEMENT);
    arrays[name] = { type, shape, data: new KINDS[type](bytes.slice(place, (place += size))) };
  }
  return { header: rest as Header, arrays };
}

// Numbers from 0 to 1 that were packed as integers.
export function fractions({ type, data }: Numbers): Float32Array {
  if (type === "f4") return data as Float32Array;
  const largest = type === "u1" ? 255 : 65535;
  return Float32Array.from(data, (each) => each / largest);
}

export function fromBase64(text: string): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
}
