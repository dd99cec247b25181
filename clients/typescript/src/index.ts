import createFetchClient, { type Client as FetchClient } from "openapi-fetch";
import type { components, paths } from "./schema.js";

export type { components, paths } from "./schema.js";
export type Schemas = components["schemas"];
export type Client = FetchClient<paths>;

/** A client of a service. Paths, parameters, bodies and results have the types of its OpenAPI document. */
export function createClient(baseUrl: string, credentials?: string): Client {
  const headers: Record<string, string> = credentials === undefined ? {} : { authorization: `Bearer ${credentials}` };
  return createFetchClient<paths>({ baseUrl, headers });
}

/** A part of a streamed answer: `sources`, `token`, `citations`, `done` or `error`, with its JSON. */
export interface AnswerEvent {
  event: string;
  data: unknown;
}

/** Answer a question as a stream. Leaving the loop ends the stream. */
export async function* streamAnswer(client: Client, body: Schemas["AnswerRequest"]): AsyncGenerator<AnswerEvent> {
  const { data, error } = await client.POST("/v1/answer", {
    body,
    headers: { accept: "text/event-stream" },
    parseAs: "stream",
  });
  if (error !== undefined) throw new Error(JSON.stringify(error));
  if (data) yield* readEvents(data as unknown as ReadableStream<Uint8Array>);
}

/** The events of a stream of server-sent events, in whatever pieces they come. */
export async function* readEvents(stream: ReadableStream<Uint8Array>): AsyncGenerator<AnswerEvent> {
  const reader = stream.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const blocks = (rest + decoder.decode(value, { stream: true })).split("\n\n");
      rest = blocks.pop() ?? "";
      for (const block of blocks) {
        const event = parseEvent(block);
        if (event) yield event;
      }
    }
  } finally {
    await reader.cancel();
  }
}

function parseEvent(block: string): AnswerEvent | undefined {
  const fields = new Map<string, string>();
  for (const line of block.split("\n")) {
    const end = line.indexOf(": ");
    if (end > 0) fields.set(line.slice(0, end), line.slice(end + 2));
  }
  const [event, data] = [fields.get("event"), fields.get("data")];
  return event === undefined || data === undefined ? undefined : { event, data: JSON.parse(data) };
}
