// The view in an HTML file: the packed trace is in the file, as text in base64.
import { mount } from "svelte";
import Alone from "./Alone.svelte";
import { traceOf, type PackedTrace } from "./trace";
import { fromBase64, unpack } from "./unpack";

const packed = document.getElementById("trace")?.textContent ?? "";
const target = document.getElementById("view")!;
unpack<PackedTrace>(fromBase64(packed.trim())).then(
  (answer) => mount(Alone, { target, props: { trace: traceOf(answer) } }),
  (error: unknown) => (target.textContent = `This page cannot be shown: ${String(error)}`),
);
